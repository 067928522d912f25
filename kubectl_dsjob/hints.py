"""What mostly helps against a failure, by the words of the kubelet or of the task. Pure."""

from __future__ import annotations

import re
from typing import Final

from daemonset_job.api.states import Phase
from kubectl_dsjob.run_view import RunView

_CORRECT: Final = (
    "suspend the Job, apply the corrected one once its reason is StartTakenBack, and resume it"
)
_ON_THE_NODE: Final = "with spec.hostExec (run --host) a script runs on the node itself, as root"

# The words of a failure, and what mostly helps. The first one that is found counts.
_WORDS: Final = (
    (
        r'exec: ".*": permission denied',
        "the file is not executable: name it in spec.scriptFrom, or set defaultMode: 0755",
    ),
    (
        r"nsenter: failed to execute .*: No such file",
        "the node lacks the program in the first line of the script",
    ),
    (
        r'(?:configmap|secret) "[^"]*" not found|non-existent config key',
        "create it in the namespace of the Job: its pods wait for it, and need no retry",
    ),
    (
        r"/basetarget\S*: (?:Directory nonexistent|No such file)|'/basetarget\S*': No such file",
        "/basetarget is a directory of the node only with spec.mountPath (run --mount)",
    ),
    (
        r"cannot pull the image|ErrImagePull|failed to pull",
        f"correct the image, or let the nodes pull it: {_CORRECT}",
    ),
    (
        r"(?:systemctl|journalctl|sysctl|apt-get|dnf|crictl|chroot): (?:command )?not found",
        f"the image lacks the program: {_ON_THE_NODE}",
    ),
    (
        r"Read-only file system",
        f"mount the directory that is to be written (spec.mountPath, run --mount); {_ON_THE_NODE}",
    ),
    (
        r"Operation not permitted|[Pp]ermission denied|must be (?:super-?user|root)",
        f"the task may need more rights: {_ON_THE_NODE}",
    ),
)
# The hint is searched for in the texts of at most this many failed nodes, for each screen.
NODES_LIMIT: Final = 100
_HINTS: Final = tuple((re.compile(pattern), hint) for pattern, hint in _WORDS)


def hint_lines(view: RunView) -> list[str]:
    """Return what mostly helps a run that has failed, or does not get on; [] if not known."""
    if not (view.trouble or view.phase == Phase.FAILED):
        return []
    nodes = view.failed[:NODES_LIMIT]
    texts = [view.message, *(text for node in nodes for text in (node.message, *node.last_lines))]
    found = (
        hint
        for words, hint in _HINTS
        if not (view.is_on_host and _ON_THE_NODE in hint)
        and any(words.search(text) for text in texts)
    )
    first = next(found, "")
    return [f"hint: {first}"] if first else []
