"""Folded names. The cases are those people meet: padding, gaps, 9 to 10, 99 to 100."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from daemonset_job.api.fold_names import fold


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        ([], ""),
        (["a"], "a"),
        (["node-1"], "node-1"),
        (["node-1", "node-2", "node-3"], "node-[1-3]"),
        (["node-1", "node-3"], "node-[1,3]"),
        (["node-9", "node-10"], "node-[9-10]"),
        (["node-09", "node-10"], "node-[09-10]"),
        (["node-099", "node-100"], "node-[099-100]"),
        (["node-9", "node-09"], "node-[9,09]"),
        (["node-09", "node-010"], "node-[09,010]"),
        (["node-99", "node-0100"], "node-[99,0100]"),
        ([f"node-{i:03}" for i in range(1, 413)], "node-[001-412]"),
        (["b-2", "a", "b-1"], "a,b-[1-2]"),
        (["r1-n1.x", "r1-n2.x", "r2-n1.x"], "r1-n[1-2].x,r2-n1.x"),
        (["kind-worker", "kind-worker2", "kind-worker3"], "kind-worker,kind-worker[2-3]"),
        (["ip-10-0-0-7", "ip-10-0-0-8"], "ip-10-0-0-[7-8]"),
        (["n-12345678901234", "n-12345678901235"], "n-12345678901234,n-12345678901235"),
        (["a1", "a1", "a2"], "a[1-2]"),
    ],
)
def test_names_are_folded(names, expected):
    assert fold(names) == expected


def test_what_does_not_fit_is_counted():
    names = [f"{c}{c}{c}" for c in "abcdefgh"]
    assert fold(names, limit=11) == "aaa,bbb,ccc and 5 more"
    assert fold(names, limit=2) == "8 nodes"


def unfold(text: str) -> set[str]:
    names = set()
    for part in re.findall(r"(?:[^,\[]|\[[^\]]*\])+", text):
        found = re.fullmatch(r"(.*)\[(.*)\](.*)", part)
        if not found:
            names.add(part)
            continue
        head, inner, tail = found.groups()
        for piece in inner.split(","):
            low, _, high = piece.partition("-")
            for number in range(int(low), int(high or low) + 1):
                names.add(
                    f"{head}{number:0{len(low)}}{tail}"
                    if low[0] == "0"
                    else f"{head}{number}{tail}"
                )
    return names


@given(st.sets(st.from_regex(r"\A[a-c]{1,2}-?[0-9]{0,3}\Z"), max_size=40))
def test_folding_loses_no_name_and_invents_none(names):
    assert unfold(fold(names, limit=10**6)) == names
