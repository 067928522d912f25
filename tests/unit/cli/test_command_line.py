"""The command line: its help, its start, its errors and exit codes."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from daemonset_job.kube.client.errors import (
    ConfigurationError,
    Forbidden,
    Invalid,
    KubeError,
    NotFound,
    Unauthorized,
    Unavailable,
)
from kubectl_dsjob.edge import as_cli_error
from kubectl_dsjob.errors import CliError
from kubectl_dsjob.main import app
from kubectl_dsjob.manifests import Wish, build_job, parse_labels, rerun_patch
from kubectl_dsjob.options import with_command_first
from kubectl_dsjob.target import namespace_of
from tests.unit.cli.man_pages import FOLDER, pages
from tests.unit.cli.reference import reference

ROOT = Path(__file__).parents[3]
HEAVY = ("kubernetes", "aiohttp", "rich", "yaml", "loguru", "asyncio", "daemonset_job")


@pytest.mark.parametrize("module", ["main", "completion"])
def test_help_and_completion_import_nothing_that_a_verb_needs(module):
    code = (
        f"import sys; import kubectl_dsjob.{module}\n"
        f"print([name for name in {HEAVY!r} if name in sys.modules])"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.stdout.strip() == "[]", done


def test_the_reference_is_the_help():
    """Write it again with `make man`."""
    assert (ROOT / "docs" / "reference" / "cli.md").read_text("utf-8") == reference()


def test_the_manual_pages_are_the_help():
    """Write them again with `make man`."""
    assert {page.name: page.read_text("utf-8") for page in FOLDER.glob("*.1")} == pages()


@pytest.mark.parametrize(
    ("words", "ordered"),
    [
        ("-n ours status sweep", "status -n ours sweep"),
        ("-nours --context=lab status sweep", "status -nours --context=lab sweep"),
        ("--kubeconfig file -n ours list", "list --kubeconfig file -n ours"),
        ("status -n ours sweep", "status -n ours sweep"),
        ("--help", "--help"),
        ("-n ours", "-n ours"),
        ("-n", "-n"),
        ("", ""),
    ],
)
def test_options_that_name_the_cluster_may_come_before_the_command(words, ordered):
    """As with kubectl: `kubectl -n ours get pods`."""
    assert with_command_first(words.split()) == ordered.split()


def test_an_option_before_the_command_is_one_of_it(tmp_path, capsys):
    missing = str(tmp_path / "none")
    with pytest.raises(SystemExit) as error:
        app(["--kubeconfig", missing, "status", "sweep"])
    assert error.value.code == 2
    assert missing in capsys.readouterr().err


@pytest.mark.parametrize("words", [["status", "dsj/sweep"], ["diff", "a", "b%2f"], ["wait", ".."]])
def test_a_name_that_no_object_can_have_is_a_usage_error(words, capsys):
    with pytest.raises(SystemExit) as ended:
        app(words)
    assert ended.value.code == 2
    assert "no object can be called" in capsys.readouterr().err


def test_a_manual_page_has_no_line_that_roff_takes_for_a_request():
    requests = (".TH", ".SH", ".TP", ".PP", ".RS", ".RE", ".nf", ".fi", ".B", ".I", ".BR")
    for text in pages().values():
        controls = [line.split()[0] for line in text.splitlines() if line.startswith((".", "'"))]
        assert set(controls) <= set(requests)
        assert "\b" not in text


def test_each_command_says_what_it_does_and_shows_an_example():
    for command in app.registered_commands:
        first = (command.callback.__doc__ or "").strip().split("\n\n", 1)[0]
        assert first.endswith(".")
        assert "Example" in (command.epilog or ""), command.callback


@pytest.mark.parametrize(
    ("error", "word", "code"),
    [
        (ConfigurationError("no kubeconfig"), "--kubeconfig", 2),
        (Unauthorized("x"), "log in", 1),
        (Forbidden("x"), "ClusterRole", 1),
        (NotFound("x", request="list jobs"), "Install", 1),
        (Unavailable("Cannot connect to host"), "cluster-info", 1),
        (Invalid("spec.image: Required value"), "Correct", 1),
        (KubeError("odd", status=418), "cluster-info", 1),
    ],
)
def test_an_error_has_a_way_out(error, word, code):
    shown = as_cli_error(error)
    assert word in shown.way_out
    assert shown.code == code


def test_a_manifest_has_what_was_asked_for():
    wish = Wish("fix", script="echo hi", selector="role=edge", arguments=("a",), is_on_host=True)
    assert build_job(wish, "cli")["spec"] == {
        "script": "echo hi\n",
        "hostExec": True,
        "args": ["a"],
        "nodes": {"selector": {"matchLabels": {"role": "edge"}}},
    }


def test_arguments_are_those_of_the_image_as_with_kubectl_run():
    assert build_job(Wish("a", "i", arguments=("x",)), "n")["spec"] == {"image": "i", "args": ["x"]}
    wish = Wish("a", "i", arguments=("x",), is_command=True)
    assert build_job(wish, "n")["spec"] == {"image": "i", "command": ["x"]}


def test_a_canary_waits_for_approval_and_the_rest_goes_in_parts():
    wish = Wish("a", "i", canary="1", max_parallel="10%")
    steps = [{"nodes": 1, "approval": "Required"}]
    assert build_job(wish, "n")["spec"]["rollout"] == {"maxParallel": "10%", "steps": steps}
    assert build_job(Wish("a", "i", backoff_limit=0), "n")["spec"]["backoffLimit"] == 0


def test_a_job_that_is_to_be_kept_has_a_time_to_live():
    spec = build_job(Wish("a", "i", kept_seconds=600), "n")["spec"]
    assert spec == {"image": "i", "ttlSecondsAfterFinished": 600}
    assert "rollout" not in build_job(Wish("a", "i"), "n")["spec"]


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "0%", "101%", "%", "many", "²", "9" * 5000])
def test_what_is_no_number_of_nodes_is_refused(text):
    for wish in (Wish("a", "i", canary=text), Wish("a", "i", max_parallel=text)):
        with pytest.raises(CliError) as caught:
            build_job(wish, "n")
        assert caught.value.code == 2


@pytest.mark.parametrize(
    "wish",
    [
        Wish("x"),
        Wish("x", script="s", is_command=True),
        Wish("x", image="i", is_on_host=True),
        Wish("x", "i", "s", is_on_host=True),
    ],
)
def test_options_that_exclude_each_other_are_a_usage_error(wish):
    with pytest.raises(CliError) as caught:
        build_job(wish, "cli")
    assert caught.value.code == 2
    assert caught.value.way_out


@pytest.mark.parametrize(
    "words",
    [
        ("--nodes", "role=edge"),
        ("-l", "role=edge"),
        ("--nodes", "-l", "role=edge"),
        ("--nodes", "-lrole=edge"),
        ("--nodes", "--selector=role=edge"),
    ],
)
def test_nodes_are_chosen_by_labels_in_each_form(words):
    command = [sys.executable, "-m", "kubectl_dsjob.main", "run", "x", "--image", "i", *words]
    last = ["-n", "cli", "--dry-run=client", "--", "--nodes", "-l"]
    done = subprocess.run([*command, *last], capture_output=True, text=True, cwd=ROOT, check=False)
    spec = yaml.safe_load(done.stdout)["spec"]
    assert spec["nodes"] == {"selector": {"matchLabels": {"role": "edge"}}}
    assert spec["args"] == ["--nodes", "-l"]


@pytest.mark.parametrize("words", [(), ("--",), ("--nodes",)])
def test_too_few_words_are_a_usage_error(words):
    command = [sys.executable, "-m", "kubectl_dsjob.main", "run", *words]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("text", ["", "role", "role!=edge", "a==b", "a=b,,c=d"])
def test_what_is_no_label_is_refused(text):
    with pytest.raises(CliError):
        parse_labels(text)


def test_a_rerun_names_nodes_or_all():
    (value,) = rerun_patch(("a", "b"), "t")["metadata"]["annotations"].values()
    assert value == "a,b@t"
    (value,) = rerun_patch((), "t")["metadata"]["annotations"].values()
    assert value == "*@t"


def test_a_rerun_of_more_nodes_than_a_request_can_name_is_refused() -> None:
    """The controller does not act on a longer one, and nothing in the cluster would say so."""
    names = [f"ip-10-0-{n:04}.eu-central-1.compute.internal" for n in range(1000)]
    rerun_patch(names[:300], "t")
    with pytest.raises(CliError, match="1000 nodes is longer than 16384 characters"):
        rerun_patch(names, "t")


def test_the_namespace_is_that_of_the_context():
    contexts = [{"name": "c", "context": {"namespace": "team"}}, {"name": "d", "context": {}}]
    files = [{"current-context": "c"}, {"current-context": "d", "contexts": contexts}]
    assert namespace_of(files) == "team"
    assert namespace_of(files, "d") == "default"
    assert namespace_of([]) == "default"


@pytest.mark.parametrize(
    "file",
    [
        {"contexts": [None], "current-context": "c"},
        {"contexts": "abc", "current-context": "c"},
        {"contexts": 5, "current-context": "c"},
        {"contexts": [{"name": "c", "context": "abc"}], "current-context": "c"},
    ],
)
def test_a_kubeconfig_of_another_form_is_a_usage_error(file, tmp_path, capsys):
    assert namespace_of([file]) == "default"
    path = tmp_path / "config"
    path.write_text(yaml.safe_dump(file), "utf-8")
    with pytest.raises(SystemExit) as caught:
        app(["list", "--kubeconfig", str(path)])
    assert caught.value.code == 2
    assert "error: cannot reach a cluster" in capsys.readouterr().err


def test_a_kubeconfig_of_a_user_that_does_not_exist_is_a_usage_error(capsys):
    with pytest.raises(SystemExit) as caught:
        app(["list", "--kubeconfig", "~no-such-user/config"])
    assert caught.value.code == 2
    assert "cannot read the kubeconfig" in capsys.readouterr().err


def test_a_script_that_is_no_text_is_a_usage_error(tmp_path, capsys):
    script = tmp_path / "program"
    script.write_bytes(b"\x7fELF\xc7\xff")
    with pytest.raises(SystemExit) as caught:
        app(["run", "x", "--script", str(script), "--dry-run=client", "-n", "cli"])
    assert caught.value.code == 2
    assert "no text in UTF-8" in capsys.readouterr().err


@pytest.mark.parametrize("options", [[], ["--image", "busybox:1.37"]])
def test_a_script_that_is_empty_is_a_usage_error(tmp_path, capsys, options):
    """With an image, a Job was created that ran the image's own command."""
    script = tmp_path / "empty"
    script.write_text("\ufeff \n")
    with pytest.raises(SystemExit) as caught:
        app(["run", "x", "--script", str(script), *options, "--dry-run=client", "-n", "cli"])
    assert caught.value.code == 2
    assert f"cannot read the script {script}: it is empty" in capsys.readouterr().err


def test_a_byte_order_mark_is_no_part_of_a_script(tmp_path, capsys):
    """Behind one, the first line names no interpreter: sh ran a script of any language."""
    script = tmp_path / "script"
    script.write_bytes(b"\xef\xbb\xbf#!/bin/bash\r\necho\r\n")
    with pytest.raises(SystemExit):
        app(["run", "x", "--script", str(script), "--dry-run=client", "-n", "cli"])
    printed = yaml.safe_load(capsys.readouterr().out)
    assert printed["spec"]["script"] == "#!/bin/bash\necho\n"


def test_a_namespace_that_does_not_exist_has_a_way_out():
    details = {"name": "nons", "kind": "namespaces"}
    shown = as_cli_error(NotFound("x", request="create jobs", details=details))
    assert shown.message == "there is no namespace 'nons'"
    assert "kubectl create namespace" in shown.way_out


def test_the_doctor_takes_any_number_of_seconds(tmp_path):
    named = ["-n", "cli", "--kubeconfig", str(tmp_path / "none")]
    with pytest.raises(SystemExit) as caught:
        app(["doctor", "--stuck-after", "1e20", *named])
    assert caught.value.code == 2
