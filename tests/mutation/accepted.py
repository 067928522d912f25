"""Values of fields that their type does not describe, and such as only a condition can judge."""

from collections.abc import Mapping
from typing import Any

# Values that a pattern or a CEL rule accepts, if types and lengths are not enough. The key is the
# end of the field's path. The shortest value is the first, the longest the last.
_LABEL_VALUES = ("", "a", "A-_.9", "1.10", "01", "1e3", "a" * 63)
_KEYS = ("a", "example.com/team", "kubernetes.io/arch", "a" * 253 + "/" + "b" * 63)
_NODES = ("a", "node-a", "node-b", "node-c", "node..2", "a.-b", "0", "1e3", "n" * 253)
EMOJI = "\N{LOBSTER}"
_FOLDERS = ("/", "/mnt/example", "//a//", "/mnt/..x", f"/{EMOJI}", "/" + "a" * 4095)
_SCRIPTS = ("a", "exit 0", "#!/bin/sh\nexit 1\n", "a" * 16384, EMOJI * 16384)
_ZONES = (
    "UTC",
    "Europe/Berlin",
    "Asia/Kathmandu",
    "Pacific/Kiritimati",
    "utc",
    "Nowhere/City",
    "../../etc/passwd",
    "/etc/localtime",
    "posixrules",
    "a" * 64,
)
_SOURCES = ("web", "a", "a" * 63, "unknown")
# The last ones belong to Kubernetes or to this system.
_NODE_KEYS = (
    *_KEYS,
    "a",
    "kubernetes.io/hostname",
    "node-role.kubernetes.io/control-plane",
    "daemonset.darkowlzz.space/x",
    "daemonset.darkowlzz.space/cordoned-by",
)
ACCEPTED: Mapping[str, tuple[Any, ...]] = {
    "spec.schedule": (
        "* * * * *",
        "0 0 30 2 *",
        "@daily",
        " @hourly ",
        "60 0 * * *",
        "*/0 * * * *",
        "0 0 31 4 *",
        "5-1 * * * *",
        "a b c d e",
        "0 2 * * 7",
        "? ? ? ? ?",
    ),
    "spec.timeZone": _ZONES,
    "spec.image": ("a", "example/task:v1", "a" * 1024, EMOJI * 1024, "'\"`$(x)<>&\\"),
    "spec.mountPath": ("/", "/tmp", "//a//", "/ ", f"/{EMOJI}", "/" + "a" * 4095),
    "nodes.selector.matchLabels{}": _LABEL_VALUES,
    "template.metadata.labels{}": _LABEL_VALUES,
    "matchExpressions[].values[]": _LABEL_VALUES,
    "matchExpressions[].key": _KEYS,
    "nodes.include[]": _NODES,
    "nodes.exclude[]": _NODES,
    "completion.token": ("x", "done", "all done", EMOJI * 256, "<&>", "\u202eenod", "(", "\\"),
    "completion.failureToken": ("x", "failed", "has failed", EMOJI * 256, "<&>", "[", "\\"),
    "failurePolicy.maxFailedNodes": (0, 1, 2**31 - 1, "0%", "1%", "99%", "100%"),
    "failurePolicy.maxUnreachableNodes": (0, 1, 2**31 - 1, "0%", "1%", "99%", "100%"),
    "rollout.maxParallel": (1, 2, 2**31 - 1, "1%", "99%", "100%"),
    "rollout.maxParallelPerZone": (1, 2, 2**31 - 1, "1%", "99%", "100%"),
    "rollout.steps[].nodes": (1, 2, 2**31 - 1, "1%", "99%", "100%"),
    "check.script.image": ("a", "example/task:v1", "a" * 1024, EMOJI * 1024),
    "check.script.script": _SCRIPTS,
    "spec.script": (*_SCRIPTS, "\ufeffexit 0", "exit 0\x00", "$(NODE_NAME)", "a" * 32768),
    "rollback.script": _SCRIPTS,
    "rollback.image": ("a", "example/undo:v1", "a" * 1024, EMOJI * 1024),
    "KeyRef.name": ("scripts", "a" * 253, "UPPER", "a b", EMOJI),
    "KeyRef.key": ("run.sh", ".", "..", "a" * 253),
    "mounts[].hostPath": _FOLDERS,
    "mounts[].mountPath": (*_FOLDERS, "/etc", "/proc", "/dev/termination-log"),
    "rollout.exclusive": ("a", "A-_.9", "1e3", "a" * 63),
    "window.start": (
        "* * * * *",
        "0 0 29 2 *",
        "0 0 30 2 *",
        "*/7 0-23/5 1,15 JAN-DEC SUN",
        "@daily",
        "59 23 31 12 7",
        "60 * * * *",
        "* * * * * *",
        "0 0 0 0 0",
        "x",
    ),
    "window.duration": ("1s", "24h", "0h59m61s", "1h1m1s", "0s", "", "9" * 31 + "s"),
    "window.timeZone": _ZONES,
    "check.http.source": _SOURCES,
    "check.http.path": ("/", "/ok", "/../x?y=z#f", "//", f"/{EMOJI}", "/" + "a" * 255),
    "check.prometheus.source": _SOURCES,
    "check.prometheus.query": ("errors", "unknown", "a" * 63, " "),
    "check.prometheus.expression": ("up", "sum(", "{{job}}", "a" * 1024),
    "notify[].receiver": ("chat", "a", "a" * 63, "unknown"),
    "results[].label": _NODE_KEYS,
    "results[].annotation": _NODE_KEYS,
    "removeTaints[]": _NODE_KEYS,
    "onSuccess.labels{}": _LABEL_VALUES,
    "onSuccess.annotations{}": ("", "a", "a\nb", EMOJI * 1000, "a" * 5000),
    "podSelector.matchLabels{}": (*_LABEL_VALUES, "a b", "-", "a" * 64),
    "steps[].selector.matchLabels{}": _LABEL_VALUES,
    "check.pods.matchLabels{}": _LABEL_VALUES,
    "spec.after[]": ("a", "a.b", "no-such-job", "a" * 253),
    "successPolicy.minCompleted": (1, 2, 2**31 - 1, "1%", "99%", "100%"),
    "results[].name": ("a", "A-_.9", "v.1_2-3", "a" * 63),
}


def accepted(path: str) -> tuple[Any, ...]:
    """Return values known to be accepted at a path, () when the schema alone says it all."""
    return next((values for end, values in ACCEPTED.items() if path.endswith(end)), ())
