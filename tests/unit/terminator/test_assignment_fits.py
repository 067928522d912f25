"""What the terminator enters fits the CRD, whatever a log says and a kubelet counts."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daemonset_job.api.evidence import parse_evidence
from daemonset_job.api.pod import parse_pod
from terminator.ledger.assignment import build_patch
from terminator.ledger.evidence import combine_evidence, exit_evidence, log_evidence
from terminator.logs.findings import Findings
from terminator.logs.matcher import Matcher
from terminator.logs.tail_read import TailRead
from tests.mutation.schema import part, problems
from tests.unit.terminator.builders import make_report

ENTRY = part("jobreports", "evidence")["additionalProperties"]
NAMES = tuple(f"r{n}" + "x" * (n * 4) for n in range(16))
MATCHER = Matcher("done", "Line", "broken", NAMES)

# Pieces of lines: words of the protocol between texts at their longest and strangest.
PIECES = st.sampled_from(
    [
        *(
            "done",
            "broken",
            " ",
            "\t",
            "\x00",
            "\x1b[31m",
            "\u202e",
            "\ufeff",
            "\u2028",
            "<&>",
            '"\\',
        ),
        *("\N{LOBSTER}" * 300, "x" * 5000, "<" * 400, "dsjob:result ", "dsjob:progress 5/7 "),
        *(f"{name}=" for name in NAMES),
    ]
) | st.text(max_size=20)
LINES = st.one_of(
    st.sampled_from([b"done", b"broken", b"\xff\xfe\x80", b"dsjob:result r0=\xf0\x9f"]),
    st.lists(PIECES, max_size=5).map(lambda pieces: "".join(pieces).encode("utf-8", "replace")),
    st.tuples(st.sampled_from(NAMES), PIECES).map(lambda r: f"dsjob:result {r[0]}={r[1]}".encode()),
)
STAMPS = st.sampled_from(
    [
        *("2026-01-02T03:04:05.000000001Z", "2026-01-02T03:04:05Z", "0001-01-01T00:00:00Z"),
        *("9999-12-31T23:59:59.999999999Z", "2026-01-02T03:04:05.5+14:00", "2026-01-02T25:61:61Z"),
        "9999-12-31T23:59:59-05:00",
    ]
)
COUNTS = st.sampled_from([0, 1, 7, 10**6, 2**31 - 1, -1, -4, -(2**31)])
POD = {
    "name": st.sampled_from(["a", "n" * 253]),
    "uid": st.sampled_from(["u", "u" * 128]),
}


def entry_problems(evidence):
    raw = evidence.to_raw()
    assert parse_evidence(raw) == evidence
    return list(problems(ENTRY, raw, "evidence"))


@st.composite
def pods(draw):
    ended = {
        "exitCode": draw(COUNTS),
        "reason": "R" * 3000,
        "finishedAt": draw(st.sampled_from(["0001-01-01T00:00:01Z", "9999-12-31T23:59:59Z", None])),
    }
    task = {"name": "job-container", "restartCount": draw(COUNTS), "state": {"terminated": ended}}
    return parse_pod(
        {
            "metadata": {key: draw(value) for key, value in POD.items()} | {"namespace": "a"},
            "spec": {"nodeName": "n"},
            "status": {"containerStatuses": [task], "initContainerStatuses": [task]},
        }
    )


@settings(max_examples=200)
@given(pods(), st.lists(st.tuples(STAMPS, LINES), max_size=60), st.integers(0, 50))
def test_what_a_log_says_fits_its_entry(pod, records, lines):
    log = b"".join(at.encode() + b" " + text + b"\n" for at, text in records)
    found = Findings()
    tail = TailRead(MATCHER, found, None, None)
    while tail.request is not None:
        tail.feed(log[: tail.request.max_bytes])
    found.attempt = pod.container.restart_count + 1
    entry = log_evidence(pod, "node-uid", found, lines)
    ended = exit_evidence(pod, "node-uid")
    for each in (entry, ended, combine_evidence(ended, entry) if entry else None):
        if each is not None:
            assert entry_problems(each) == []
            patch = build_patch(make_report(), {"n": each})["evidence"]["n"]
            assert list(problems(ENTRY, patch, "evidence")) == []


@pytest.mark.parametrize(("counted", "kept"), [(-4, 0), (-(2**31), 0), (3, 3), (2**31 - 1, 10**9)])
def test_restart_count_of_a_rogue_kubelet_is_bounded(counted, kept):
    task = {"name": "job-container", "restartCount": counted, "state": {}}
    pod = parse_pod({"metadata": {"name": "a"}, "status": {"containerStatuses": [task]}})
    assert pod.container.restart_count == kept
