"""Runs of a benchmark are compared within their round, and none is always first."""

import pytest

from benchmarks.pairs import compare_with_floor, order_of_round, table
from benchmarks.speed import SpeedMeter


def run(kind, number, seconds, cpu, *, warm_up=False, work=5.0):
    return {
        "work_milliseconds": work,
        "kind": kind,
        "round": number,
        "warm_up": warm_up,
        "seconds": seconds,
        "cpu_seconds_all": cpu,
        "cpu_seconds": {"kube-apiserver": cpu / 2},
    }


def test_odd_rounds_go_backwards():
    assert order_of_round(["small", "exit"], 0) == ["floor", "small", "exit"]
    assert order_of_round(["small", "exit"], 1) == ["exit", "small", "floor"]


def test_a_run_is_compared_with_the_floor_of_its_own_round():
    """The machine is three times as slow in the second round; the ratio is the same."""
    runs = [run("floor", 1, 10, 16), run("small", 1, 15, 24)]
    runs += [run("small", 2, 45, 24), run("floor", 2, 30, 16)]
    small = compare_with_floor(runs)["small"]
    assert small["time_ratio"] == {"median": 1.5, "least": 1.5, "greatest": 1.5}
    assert small["cpu_ratio"]["median"] == 1.5
    assert small["rounds"] == 2


def test_a_machine_that_slows_down_within_a_round_is_divided_out():
    """The Job's run took twice the time and CPU, and so did the fixed work beside it."""
    runs = [run("floor", 1, 10, 16), run("small", 1, 30, 48, work=10.0)]
    assert compare_with_floor(runs)["small"]["time_ratio"]["median"] == 1.5
    assert compare_with_floor(runs)["small"]["cpu_ratio"]["median"] == 1.5


def test_the_fixed_work_is_measured_since_a_mark():
    moments = iter([0.0, 0.005, 1.0, 1.01, 2.0, 2.02])
    meter = SpeedMeter(now=lambda: next(moments))
    meter.measure_once()
    mark = meter.mark()
    assert meter.milliseconds_since(mark) == 5
    meter.measure_once()
    meter.measure_once()
    assert meter.milliseconds_since(mark) == pytest.approx(15)


def test_warm_up_rounds_do_not_count():
    runs = [run("floor", 0, 1, 1, warm_up=True), run("small", 0, 99, 99, warm_up=True)]
    runs += [run("floor", 1, 10, 16), run("small", 1, 12, 20)]
    assert compare_with_floor(runs)["small"]["time_ratio"]["greatest"] == 1.2


def test_a_run_whose_floor_is_missing_has_no_ratio():
    assert compare_with_floor([run("small", 1, 12, 20)])["small"]["time_ratio"] is None


def test_the_table_has_ratios_with_their_spread_and_the_floor_in_seconds():
    runs = [run("floor", 1, 10, 16), run("small", 1, 12, 20)]
    assert table(compare_with_floor(runs)).splitlines() == [
        "| what runs | time | CPU of everything | kube-apiserver |",
        "|---|---|---|---|",
        "| floor | 1 (10 s) | 1 (16 s) | 8.0 s |",
        "| small | 1.2 (1.2 to 1.2) | 1.25 (1.25 to 1.25) | 10.0 s |",
    ]
