"""What a soak run makes of its samples: growth is found, noise and steps back are not."""

import random

import pytest

from benchmarks.soak_plot import chart, page
from benchmarks.soak_samples import parse_gauges, parse_processes, parse_totals
from benchmarks.soak_verdict import (
    judge_growth,
    judge_idle,
    judge_programs,
    longest_life,
    quarters,
    series_points,
    theil_sen,
)

MINUTE = 60.0


def points(count, value):
    return [(number * MINUTE, value(number)) for number in range(count)]


def process(program="controller", life="n/1/1", **values):
    return {"program": program, "life": life, "cpu_seconds": 0.0, **values}


def sample(number, *processes, idle=0):
    return {"type": "sample", "at": number * MINUTE, "idle": idle, "processes": list(processes)}


def test_the_slope_is_that_of_a_line_and_outliers_do_not_move_it():
    line = points(50, lambda n: 100 + n)
    assert theil_sen(line) == pytest.approx(1 / MINUTE)
    line[7], line[30] = (7 * MINUTE, 1e6), (30 * MINUTE, -1e6)
    assert theil_sen(line) == pytest.approx(1 / MINUTE)


def test_the_slope_of_one_moment_is_none():
    assert theil_sen([(1, 5), (1, 9)]) == 0
    assert theil_sen([]) == 0


def test_the_slope_of_a_long_run_takes_no_long_time():
    assert theil_sen(points(20_000, lambda n: n)) == pytest.approx(1 / MINUTE)


def test_quarters_are_those_of_the_time():
    assert quarters(points(101, lambda n: n)) == (37, 87.5)


def test_a_leak_is_found_in_noise():
    noise = random.Random(1)
    leak = points(400, lambda n: 90 + n * 0.05 + noise.uniform(-2, 2))
    assert judge_growth(leak, 0.10)[0] == "bad"


def test_noise_a_warm_up_and_a_step_back_are_no_leak():
    noise = random.Random(2)
    assert judge_growth(points(400, lambda _: 90 + noise.uniform(-9, 9)), 0.10)[0] == "good"
    assert judge_growth(points(400, lambda n: 60 if n < 70 else 95), 0.10)[0] == "good"
    assert judge_growth(points(400, lambda n: 150 if 150 < n < 200 else 95), 0.10)[0] == "good"


def test_a_late_step_up_that_stays_is_found():
    assert judge_growth(points(400, lambda n: 95 if n < 300 else 130), 0.10)[0] == "bad"


def test_the_values_of_one_idle_time_are_one():
    lines = [sample(n, process(rss_mib=80, fds=20 + n), idle=n // 3) for n in range(3, 9)]
    (found,) = [f for f in judge_programs(lines) if "descriptors" in f.series]
    assert found.words == "23 -> 26"


def test_a_growth_of_a_few_mebibytes_is_none():
    assert judge_growth(points(100, lambda n: 10 + n * 0.03), 0.10, floor=4)[0] == "good"
    assert judge_growth(points(100, lambda n: 10 + n * 0.3), 0.10, floor=4)[0] == "bad"


def test_a_short_run_says_that_it_is_too_short():
    assert judge_growth(points(20, lambda n: n), 0.10)[0] == "too short"
    assert judge_idle([1], 0, 0)[0] == "too short"


def test_idle_values_have_to_come_back_to_the_first_one():
    assert judge_idle([10, 400, 11], 0, 2)[0] == "good"
    assert judge_idle([10, 11, 13], 0, 2)[0] == "bad"
    assert judge_idle([100, 109], 0.10, 0)[0] == "good"
    assert judge_idle([0, 1], 0, 0)[0] == "bad"


def test_only_the_longest_life_of_a_program_is_looked_at():
    samples = [sample(n, process(life="old", rss_mib=200)) for n in range(5)]
    samples += [sample(n, process(life="new", rss_mib=80)) for n in range(5, 20)]
    life = longest_life(samples, "controller")
    assert [found["life"] for found in life] == ["new"] * 15
    assert longest_life(samples, "terminator") == []


def test_cpu_is_per_minute():
    life = [{"at": n * 30.0, "cpu_seconds": n * 2.0} for n in range(3)]
    assert series_points(life, "cpu") == [(30, 4), (60, 4)]


def test_what_is_not_exported_is_not_judged():
    samples = [sample(n, process(rss_mib=80, fds=20)) for n in range(100)]
    assert {finding.series for finding in judge_programs(samples)} == {
        "resident memory, MiB",
        "resident memory, MiB, idle",
        "CPU, seconds per minute",
        "open file descriptors, idle",
    }


def test_a_leak_of_descriptors_is_found_at_idle_times_only():
    samples = [
        sample(n, process(rss_mib=80, fds=20 + n if n % 10 else 20), idle=0 if n % 10 else n + 1)
        for n in range(100)
    ]
    assert not [f for f in judge_programs(samples) if f.result == "bad"]
    samples.append(sample(100, process(rss_mib=80, fds=30), idle=200))
    (bad,) = [f for f in judge_programs(samples) if f.result == "bad"]
    assert bad.series == "open file descriptors, idle"


def test_processes_are_read_from_what_the_script_prints():
    (found,) = parse_processes("n1", "controller 812 1234 99 93184 81920 4 31 22\n")
    assert found["life"] == "n1/812/99"
    assert (found["cpu_seconds"], found["peak_mib"], found["rss_mib"]) == (12.34, 91, 80)
    assert (found["threads"], found["fds"], found["sockets"]) == (4, 31, 22)


def test_gauges_are_found_under_one_name_for_both_programs():
    text = (
        "# HELP dsj_log_streams x\ndsj_log_streams 3.0\n"
        'dsj_workqueue_keys{component="controller",state="ready"} 2.0\n'
        'dsj_cache_objects{component="terminator",resource="pods"} 7.0\n'
        'dsj_job_nodes{job="a",namespace="b",state="active"} 1.0\n'
        'dsj_reconciles_total{component="controller",result="failed"} 4.0\n'
    )
    assert parse_gauges(text) == {"log_streams": 3, "queue_ready": 2, "cache_pods": 7}
    assert parse_totals(text) == {'reconciles_total{component="controller",result="failed"}': 4}


def test_page_shows_all_series_and_problems_and_loads_nothing():
    lines = [{"type": "start", "hours": 1, "seed": 2}]
    for number in range(30):
        line = sample(number, process(rss_mib=80 + number, log_streams=number % 3))
        lines.append({**line, "cluster": {"Jobs": number}})
    lines.append({"type": "job", "job": "a/b", "problems": ["it is <stuck>"]})
    lines.append({"type": "disturbance", "at": 90.0, "kind": "quota"})
    text = page(lines)
    assert text.count("<svg") == 4  # Jobs, memory, CPU, streams
    assert "a/b: it is &lt;stuck&gt;" in text
    assert "http" not in text


def test_a_curve_lies_within_its_picture():
    drawn = chart({"controller": [[(0, 10), (60, 20)], [(120, 5), (180, 30)]]}, [(30, 0)])
    assert drawn.count("<polyline") == 2
    assert chart({}, []) == ""
