"""The plot of a sweep shows all of its CPU, and says how it was measured."""

from benchmarks import token_latency
from benchmarks.many_jobs import choose_nodes, summarize
from benchmarks.sweep_plot import OTHERS, bars, cpu_by_process, curves


def found(cpu, *, api=4.0, ratio=None):
    each = {"seconds": 9.5, "cpu_seconds_all": cpu, "cpu_seconds": {"kube-apiserver": api}}
    return {**each, **({"cpu_ratio": {"median": ratio}} if ratio else {})}


def results(simulated, **summary):
    return {
        "nodes": {"simulated": simulated, "real": 3},
        "machine": {"processors": 2, "kubernetes": "v1.34.4"},
        "summary": summary,
    }


def test_the_parts_of_a_bar_add_up_to_all_cpu():
    parts = cpu_by_process(found(10.0))
    assert parts[OTHERS] == 6.0
    assert sum(parts.values()) == 10.0


def test_a_plot_of_one_file_has_a_bar_for_each_kind_and_names_the_machine():
    drawn = bars(results(1000, small=found(16.0, ratio=1.6), floor=found(10.0)))
    assert drawn.index("floor") < drawn.index("small"), "the least first"
    assert "1,003 nodes" in drawn
    assert "2 cores, Kubernetes v1.34.4" in drawn
    assert "(1.6 times the floor)" in drawn


def test_a_plot_of_several_files_has_a_curve_for_each_kind():
    drawn = curves([results(5000, floor=found(50.0)), results(1000, floor=found(10.0))])
    assert drawn.count("<polyline") == 2, "time and CPU"
    assert "1,003, 5,003 nodes" in drawn


def test_the_slowest_of_many_jobs_is_compared_with_the_median():
    assert summarize([10.0] * 98 + [12.0, 20.0])["slowest_to_median"] == 2.0


def test_the_nodes_of_many_jobs_are_spread_over_all():
    names = [f"n{number}" for number in range(10)]
    chosen = [choose_nodes(names, number, 4) for number in range(5)]
    assert all(len(set(each)) == 4 for each in chosen)
    assert {name for each in chosen for name in each} == set(names)


def test_the_latency_of_tokens_is_in_milliseconds():
    found = token_latency.summarize([0.1] * 99 + [0.9])
    assert (found["median_ms"], found["greatest_ms"]) == (100, 900)
    assert found["p99_ms"] <= 150
