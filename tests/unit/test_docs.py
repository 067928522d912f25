"""The documentation against the code: all that users meet is in it, and links lead somewhere."""

import ast
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry

from daemonset_job.api import names
from daemonset_job.runtime.clock import SystemClock
from job_controller.config import Config
from job_controller.main import new_controller
from job_controller.metrics import Metrics as ControllerMetrics
from terminator.config import Options, load_config
from terminator.main import Terminator
from terminator.metrics import Metrics as TerminatorMetrics

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
PAGES = sorted({*ROOT.glob("*.md"), *DOCS.rglob("*.md")} | set((ROOT / "examples").rglob("*.md")))

# Modules of daemonset_job/api with the words of the API.
ENUMS = ("choices", "reasons", "states")
# Words of a status that code writes by itself: a condition's reason, an event's, a node's state.
CAMEL_CASE = re.compile(r"[A-Z][a-z]+(?:[A-Z][a-z]*)*")
# CamelCase in core that no user reads: kinds and enums of Kubernetes, suffixes of quantities,
# what containers are in, the inner names of a decision.
NOT_FOR_USERS = {
    *("DaemonSet", "Error", "CrashLoopBackOff", "Evicted", "NodeShutdown", "Preempting"),
    *("Terminated", "Unknown", "ContainerStatusUnknown", "ContainerCreating"),
    "PodInitializing",
    # A value of the controller's configuration.
    "Slack",
    *("Held", "In", "NotIn", "OnDelete", "RuntimeDefault"),
    *("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"),
}


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def page_id(page: Path) -> str:
    return str(page.relative_to(ROOT))


# --- links and commands ------------------------------------------------------------------


def prose(text: str) -> str:
    """Return a page without its code blocks."""
    return re.sub(r"(?ms)^ *```.*?^ *```$", "", text)


def anchors(text: str) -> set[str]:
    """Return the anchors that GitHub gives to a page's headings."""
    found = re.findall(r"(?m)^#+ (.+)$", prose(text))
    return {re.sub(r"[^\w\- ]", "", each.lower()).strip().replace(" ", "-") for each in found}


def links(text: str) -> list[str]:
    return re.findall(r"\[[^\]]*\]\(([^)\s]+)\)", prose(text))


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_links_within_the_project_lead_somewhere(page):
    lost = []
    for link in links(text_of(page)):
        if link.startswith(("https://", "http://")):
            continue
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (
            anchor and target.suffix == ".md" and anchor not in anchors(text_of(target))
        ):
            lost.append(link)
    assert lost == []


def test_every_page_is_in_the_index():
    listed = {(DOCS / link).resolve() for link in links(text_of(DOCS / "README.md"))}
    assert {page for page in DOCS.rglob("*.md") if page.name != "README.md"} <= listed


def test_every_example_is_listed_and_explained():
    """They are numbered without gaps. Each has a page of its own, or one that shows it."""
    folders = sorted(each for each in (ROOT / "examples").iterdir() if each.is_dir())
    assert [each.name[:3] for each in folders] == [f"{i:02}-" for i in range(1, len(folders) + 1)]
    table_rows = [
        line for line in text_of(ROOT / "examples" / "README.md").splitlines() if "](" in line
    ]
    for folder in folders:
        (row,) = [line for line in table_rows if line.startswith(f"| [{folder.name}](")]
        paths = [link.partition("#")[0] for link in links(row)[1:]]
        pages = [(ROOT / "examples" / path).resolve() for path in paths if path]
        about = [page for page in pages if f"examples/{folder.name}" in text_of(page)]
        assert (folder / "README.md").exists() or about, folder.name


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_make_targets_exist(page):
    targets = set(re.findall(r"(?m)^([a-z0-9-]+(?: [a-z0-9-]+)*):", text_of(ROOT / "Makefile")))
    known = {name for line in targets for name in line.split()}
    text = text_of(page)
    commands = re.findall(r"(?m)(?:^|`|&& |\$ )make((?: [^\s`#&]+)+)", code(text))
    named = {
        word for line in commands for word in line.split() if re.fullmatch(r"[a-z0-9-]+", word)
    }
    assert named <= known


def code(text: str) -> str:
    """Return what is in code blocks and in single back quotes, one piece a line."""
    blocks = re.findall(r"(?ms)^ *```\w*\n(.*?)^ *```$", text)
    return "\n".join([*blocks, *re.findall(r"`([^`\n]+)`", prose(text))])


@pytest.mark.parametrize("page", PAGES, ids=page_id)
def test_manifests_are_yaml(page):
    for block in re.findall(r"(?ms)^( *)```yaml\n(.*?)^ *```$", text_of(page)):
        indent, body = block
        for document in yaml.safe_load_all(re.sub(rf"(?m)^{indent}", "", body)):
            assert isinstance(document, Mapping), body


# --- the API -----------------------------------------------------------------------------


@cache
def schema(plural: str) -> Mapping[str, Any]:
    crd = yaml.safe_load(text_of(ROOT / "crds" / f"{plural}.yaml"))
    (version,) = crd["spec"]["versions"]
    return version["schema"]["openAPIV3Schema"]["properties"]


def fields(node: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield every field below `path`; a list's fields as path[].field, a map's as path.<node>."""
    for name, child in (node.get("properties") or {}).items():
        yield f"{path}.{name}", child
        yield from fields(child, f"{path}.{name}")
    if isinstance(node.get("items"), Mapping):
        yield from fields(node["items"], f"{path}[]")
    if isinstance(node.get("additionalProperties"), Mapping):
        key = "<receiver>" if path == "status.notifications" else "<node>"
        yield from fields(node["additionalProperties"], f"{path}.{key}")


def rows(page: str) -> dict[str, list[str]]:
    """Return the cells of every table row that begins with something in back quotes."""
    found = {}
    for line in text_of(REFERENCE / page).splitlines():
        cells = [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells and (name := re.fullmatch(r"`([^`]+)`", cells[0])):
            found.setdefault(name[1], cells)
    return found


def job_fields() -> dict[str, Mapping[str, Any]]:
    # What a pod's spec may hold is Kubernetes' to explain.
    return {
        path: node
        for path, node in fields(schema("jobs")["spec"], "spec")
        if not path.startswith("spec.template.spec.")
    }


def test_every_field_of_a_job_is_in_the_reference_and_no_other():
    documented = {name for name in rows("job.md") if name.startswith("spec.")}
    assert documented == set(job_fields())


@pytest.mark.parametrize("path", [p for p, node in job_fields().items() if "default" in node])
def test_defaults_are_those_of_the_schema(path):
    default = job_fields()[path]["default"]
    words = {True: "true", False: "false"}.get(default) if isinstance(default, bool) else None
    assert rows("job.md")[path][2] == f"`{words or default}`"


@pytest.mark.parametrize("path", [p for p, node in job_fields().items() if "enum" in node])
def test_every_choice_is_explained(path):
    assert all(f"`{choice}`" in rows("job.md")[path][4] for choice in job_fields()[path]["enum"])


def test_what_is_fixed_is_what_the_schema_guards():
    crd = yaml.safe_load(text_of(ROOT / "crds" / "jobs.yaml"))
    (version,) = crd["spec"]["versions"]
    rules = version["schema"]["openAPIV3Schema"]["x-kubernetes-validations"]
    guarded = {rule["fieldPath"].removeprefix(".") for rule in rules if "oldSelf" in rule["rule"]}
    fixed = {
        name for name, cells in rows("job.md").items() if len(cells) == 5 and cells[3] == "yes"
    }
    assert {name for name in fixed if name.count(".") == 1 or name in guarded} == guarded
    inner = {".".join(name.split(".")[:2]).removesuffix("[]") for name in fixed - guarded}
    assert inner <= guarded


def test_every_field_of_a_jobs_status_is_in_the_reference():
    text = text_of(REFERENCE / "job.md")
    # Conditions are those of every Kubernetes object.
    paths = [p for p, _ in fields(schema("jobs")["status"], "status") if "conditions[]" not in p]
    assert [path for path in paths if f"`{path}`" not in text and path != "status.nodes"] == []


def test_every_field_of_a_report_is_in_the_reference_and_no_other():
    inside = {"spec.job", "status.nodes"}
    paths = {
        path
        for part in ("spec", "evidence", "status")
        for path, _ in fields(schema("jobreports")[part], part)
        if path not in inside and not path.startswith("status.nodes.")
    }
    documented = {name for name in rows("jobreport.md") if "." in name} - inside
    assert documented == paths


# --- reasons, names ----------------------------------------------------------------------


def camel_case_words() -> set[str]:
    """Return every CamelCase text in core and in the enums: reasons, states, words of the API."""
    return {
        node.value
        for file in (
            *(ROOT / "job_controller" / "core").rglob("*.py"),
            *(ROOT / "daemonset_job" / "api" / f"{name}.py" for name in ENUMS),
        )
        for node in ast.walk(ast.parse(text_of(file)))
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and CAMEL_CASE.fullmatch(node.value)
    }


def test_every_reason_is_in_the_reference():
    text = text_of(REFERENCE / "status.md") + text_of(REFERENCE / "job.md")
    listed = set(re.findall(r"`([A-Za-z]+)`", text)) | {"True", "False", "Normal", "Warning"}
    assert sorted(camel_case_words() - NOT_FOR_USERS - listed) == []


def test_no_reason_in_the_reference_is_made_up():
    text = text_of(REFERENCE / "status.md")
    listed = set(re.findall(r"^\|.*?\| `([A-Z][A-Za-z]+)`", text, re.MULTILINE))
    assert listed <= camel_case_words()


def test_every_name_is_in_the_reference():
    text = text_of(REFERENCE / "names.md")
    labels = (names.LABEL_DAEMON_SET, names.LABEL_JOB, names.LABEL_MANAGED, names.LABEL_JOB_UID)
    others = (names.LABEL_SHARD, names.ANNOTATION_RETRY, names.START_GATE, names.FIELD_MANAGER)
    containers = (names.CONTAINER_NAME, names.PAUSE_CONTAINER_NAME)
    assert [n for n in (*labels, *others, *containers) if f"`{n}`" not in text] == []


def test_every_variable_of_a_task_is_in_the_reference():
    text = text_of(REFERENCE / "task-protocol.md")
    given = {value for name, value in vars(names).items() if name.startswith("ENV_")}
    script = text_of(ROOT / "images" / "task" / "run-once")
    read = set(re.findall(r"\$\{([A-Z_]+):-", script))
    assert [name for name in sorted(given | read) if f"`{name}`" not in text] == []


# --- metrics, modules -------------------------------------------------------------------

NO_CLIENT: Any = None


def metric_names(registry: CollectorRegistry) -> set[str]:
    return {
        f"{family.name}_total" if family.type == "counter" else family.name
        for family in registry.collect()
    }


async def test_every_metric_is_in_the_reference_and_no_other():
    controller, terminator = ControllerMetrics(), TerminatorMetrics()
    new_controller(NO_CLIENT, Config(), controller)
    Terminator(NO_CLIENT, Options(), load_config({}, None), terminator, SystemClock())
    expected = metric_names(controller.registry) | metric_names(terminator.registry)
    assert set(rows("metrics.md")) == expected


def test_the_architecture_names_every_module_and_none_that_is_gone():
    page = text_of(DOCS / "explanation" / "architecture.md")
    section = page[page.index("## Where the code is") :]
    modules = {
        file.stem
        for program in ("daemonset_job", "job_controller", "terminator")
        for file in (ROOT / program).rglob("*.py")
    } - {"__init__", "__main__"}
    assert modules <= set(re.findall(r"\w+", section))
    named = {name.rpartition("/")[2] for name in re.findall(r"`(\w+/\w+)`", section)}
    assert named <= modules
