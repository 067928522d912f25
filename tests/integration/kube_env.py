"""A real kube-apiserver and etcd on loopback ports of their own, and kubectl to talk to them.

There is no kubelet and no scheduler: a test that needs pods plays the kubelet by editing their
status. Everything lives in one temporary folder and ends with the process that started it.

`python -m tests.integration.kube_env` keeps one running until Ctrl-C, to try things by hand.
"""

import contextlib
import ctypes
import http.client
import json
import os
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, cast

ROOT = Path(__file__).resolve().parents[2]
ADMIN_TOKEN = "integration-admin"
PR_SET_PDEATHSIG = 1
# etcd and kube-apiserver are ready in about three seconds on two idle cores; the limit is for a
# machine that compiles something at the same time.
START_TIMEOUT_SECONDS = 90.0
STOP_TIMEOUT_SECONDS = 10.0
# kube-apiserver closes a connection that was idle for 90 s (a long test on a busy machine).
IDLE_SECONDS = 30.0


class KubectlError(AssertionError):
    """kubectl said no; the message is its stderr."""


@dataclass(frozen=True)
class User:
    """The user of a kubectl call."""

    name: str
    groups: tuple[str, ...] = ()

    def flags(self) -> list[str]:
        """Return kubectl's impersonation flags."""
        return [f"--as={self.name}", *(f"--as-group={group}" for group in self.groups)]


def service_account(namespace: str, name: str) -> User:
    """Return the user that a service account's token authenticates."""
    return User(
        f"system:serviceaccount:{namespace}:{name}",
        ("system:serviceaccounts", f"system:serviceaccounts:{namespace}", "system:authenticated"),
    )


@dataclass
class KubeEnv:
    """A running API server, and kubectl bound to it."""

    folder: Path
    kubeconfig: Path
    server: str
    binaries: Path
    etcd: str
    _requested_at: float = field(default=0.0, repr=False)

    def run(
        self,
        *args: str,
        input: str | None = None,  # noqa: A002 - as subprocess calls it
        user: User | None = None,
        timeout: float = 60,
    ) -> subprocess.CompletedProcess[str]:
        """Run kubectl and return what came of it, whatever that is."""
        return subprocess.run(
            [
                self.binaries / "kubectl",
                f"--kubeconfig={self.kubeconfig}",
                # Discovery is cached here, not in the home of the user who runs the tests.
                f"--cache-dir={self.folder / 'kubectl-cache'}",
                *(user.flags() if user else ()),
                *args,
            ],
            input=input,
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout,
        )

    def kubectl(
        self,
        *args: str,
        input: str | None = None,  # noqa: A002 - as subprocess calls it
        user: User | None = None,
    ) -> str:
        """Run kubectl and return its stdout; KubectlError with its stderr when it fails."""
        done = self.run(*args, input=input, user=user)
        if done.returncode:
            raise KubectlError(done.stderr.strip())
        return done.stdout

    def refusal(
        self,
        *args: str,
        input: str | None = None,  # noqa: A002 - as subprocess calls it
        user: User | None = None,
    ) -> str:
        """Run kubectl, which must fail, and return what it said."""
        done = self.run(*args, input=input, user=user)
        assert done.returncode, f"kubectl {' '.join(args)} was to fail, but: {done.stdout}"
        return done.stderr.strip()

    def get(self, kind: str, name: str, namespace: str | None = None) -> dict[str, Any]:
        """Return one object."""
        where = ["-n", namespace] if namespace else []
        return _parse_object(self.kubectl("get", kind, name, *where, "-o", "json"))

    def apply(self, manifest: dict[str, Any], user: User | None = None) -> dict[str, Any]:
        """`kubectl apply` one manifest, given as JSON, and return the object."""
        out = self.kubectl("apply", "-o", "json", "-f", "-", input=json.dumps(manifest), user=user)
        return _parse_object(out)

    def patch_status(
        self, kind: str, name: str, namespace: str, status: dict[str, Any]
    ) -> dict[str, Any]:
        """Merge into an object's status, as its controller does, and return the object."""
        out = self.kubectl(
            "patch", kind, name, "-n", namespace, "--subresource=status", "--type=merge",
            "-o", "json", "-p", json.dumps({"status": status}),
        )  # fmt: skip
        return _parse_object(out)

    def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        user: User | None = None,
        content_type: str = "",
    ) -> tuple[int, dict[str, Any]]:
        """Send one request; return HTTP status and JSON. PATCH is by default a merge patch.

        For what kubectl cannot say (it reads what it patches, and the system may not), and for
        hundreds of questions in a second. Without `user` as administrator.
        """
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        connection = self._connection
        if time.monotonic() > self._requested_at + IDLE_SECONDS:
            connection.close()  # the next request opens it again
        self._requested_at = time.monotonic()
        connection.putrequest(method, path)
        connection.putheader("Authorization", f"Bearer {ADMIN_TOKEN}")
        if user is not None:
            connection.putheader("Impersonate-User", user.name)
            for group in user.groups:
                connection.putheader("Impersonate-Group", group)
        data = b"" if body is None else json.dumps(body).encode()
        connection.putheader("Content-Type", content_type or kind)
        connection.putheader("Content-Length", str(len(data)))
        connection.endheaders(data)
        answer = connection.getresponse()
        return answer.status, json.loads(answer.read())

    def is_allowed(self, user: User, verb: str, resource: str, namespace: str = "") -> bool:
        """Return whether RBAC lets the user do it; `resource` as in `pods/log`, `jobs.GROUP`."""
        name, _, subresource = resource.partition("/")
        name, _, group = name.partition(".")
        return self.is_allowed_attributes(
            user,
            {
                "verb": verb,
                "group": group,
                "resource": name,
                "subresource": subresource,
                "namespace": namespace,
            },
        )

    def is_allowed_attributes(self, user: User, attributes: dict[str, str]) -> bool:
        """Return what a SubjectAccessReview says."""
        spec = {"user": user.name, "groups": list(user.groups), "resourceAttributes": attributes}
        status, review = self.request(
            "POST",
            "/apis/authorization.k8s.io/v1/subjectaccessreviews",
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SubjectAccessReview",
                "spec": spec,
            },
        )
        assert status == 201, review
        return bool(review["status"]["allowed"])

    def kubeconfig_for_service_account(self, namespace: str, name: str) -> Path:
        """Return a kubeconfig with a service account's own token: what its pod would be."""
        token = self.kubectl("create", "token", name, "-n", namespace).strip()
        path = self.folder / f"{namespace}-{name}.kubeconfig"
        _write_kubeconfig(path, self.server, self.folder / "certs" / "apiserver.crt", token)
        return path

    def close(self) -> None:
        """Close the connection that `request` keeps open."""
        if "_connection" in self.__dict__:
            self._connection.close()

    @cached_property
    def _connection(self) -> http.client.HTTPSConnection:
        host = self.server.removeprefix("https://")
        return http.client.HTTPSConnection(host, context=self._tls(), timeout=30)

    def _tls(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.folder / "certs" / "apiserver.crt"))


def _parse_object(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)
    return found


def find_binaries() -> Path:
    """Return a folder with every component in it.

    KUBEBUILDER_ASSETS (the convention of controller-runtime's envtest) wins; else devcluster's,
    which it builds when they are missing.
    """
    given = os.environ.get("KUBEBUILDER_ASSETS")
    if given:
        return Path(given)
    done = subprocess.run(
        [sys.executable, "-m", "hack.devcluster", "binaries"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return Path(done.stdout.strip().splitlines()[-1])


@contextlib.contextmanager
def kube_env(*, controllers: Sequence[str] = ()) -> Iterator[KubeEnv]:
    """Run etcd and kube-apiserver, and kube-controller-manager with only these `controllers`.

    Ready on entry, gone on exit.
    """
    folder = Path(tempfile.mkdtemp(prefix="daemonset-job-integration-"))
    running: list[subprocess.Popen[bytes]] = []
    try:
        env = _start(folder, running)
        if controllers:
            _start_controller_manager(env, controllers, running)
        try:
            yield env
        finally:
            env.close()
    finally:
        for process in reversed(running):
            _stop(process)
        shutil.rmtree(folder, ignore_errors=True)


def _start(folder: Path, running: list[subprocess.Popen[bytes]]) -> KubeEnv:
    binaries = find_binaries()
    certs = folder / "certs"
    certs.mkdir()
    key = certs / "service-account.key"
    subprocess.run(["openssl", "genrsa", "-out", key, "2048"], check=True, capture_output=True)
    tokens = folder / "tokens.csv"
    tokens.write_text(f"{ADMIN_TOKEN},admin,admin,system:masters\n")
    client, peer, secure = free_ports(3)
    etcd = f"http://127.0.0.1:{client}"
    _spawn(
        running, folder, binaries / "etcd",
        f"--data-dir={folder / 'etcd'}",
        "--unsafe-no-fsync",
        "--log-level=warn",
        f"--listen-client-urls={etcd}",
        f"--advertise-client-urls={etcd}",
        f"--listen-peer-urls=http://127.0.0.1:{peer}",
        f"--initial-advertise-peer-urls=http://127.0.0.1:{peer}",
        f"--initial-cluster=default=http://127.0.0.1:{peer}",
    )  # fmt: skip
    _spawn(
        running, folder, binaries / "kube-apiserver",
        f"--etcd-servers={etcd}",
        f"--secure-port={secure}",
        "--bind-address=127.0.0.1",
        # The certificate it makes for itself is for this address, and so is the one it announces.
        "--advertise-address=127.0.0.1",
        "--endpoint-reconciler-type=none",
        f"--cert-dir={certs}",
        f"--service-account-key-file={key}",
        f"--service-account-signing-key-file={key}",
        "--service-account-issuer=https://kubernetes.default.svc",
        f"--token-auth-file={tokens}",
        "--authorization-mode=RBAC",
        "--service-cluster-ip-range=10.0.0.0/24",
        # No controller creates service accounts here. Without them this plugin refuses every pod.
        "--disable-admission-plugins=ServiceAccount",
        "--allow-privileged",
    )  # fmt: skip
    env = KubeEnv(folder, folder / "kubeconfig", f"https://127.0.0.1:{secure}", binaries, etcd)
    _wait_until_ready(env, running)
    _write_kubeconfig(env.kubeconfig, env.server, certs / "apiserver.crt", ADMIN_TOKEN)
    return env


def _start_controller_manager(
    env: KubeEnv, controllers: Sequence[str], running: list[subprocess.Popen[bytes]]
) -> None:
    _spawn(
        running, env.folder, env.binaries / "kube-controller-manager",
        f"--kubeconfig={env.kubeconfig}",
        f"--controllers={','.join(controllers)}",
        "--leader-elect=false",
        "--secure-port=0",
    )  # fmt: skip


def _wait_until_ready(env: KubeEnv, running: list[subprocess.Popen[bytes]]) -> None:
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    problem: object = "not asked yet"
    while time.monotonic() < deadline:
        for process in running:
            if process.poll() is not None:
                raise RuntimeError(f"{_name(process)} ended at once:\n{_log_tail(env, process)}")
        try:
            status = _probe(env, "/readyz")
        except (OSError, urllib.error.URLError) as error:
            problem = error
        else:
            if status == 200:
                return
            problem = status
        time.sleep(0.1)
    logs = "\n".join(_log_tail(env, process) for process in running)
    raise TimeoutError(f"kube-apiserver is not ready: {problem}\n{logs}")


def _probe(env: KubeEnv, path: str) -> int:
    query = urllib.request.Request(
        env.server + path, headers={"Authorization": f"Bearer {ADMIN_TOKEN}"}
    )
    try:
        with urllib.request.urlopen(query, context=env._tls(), timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        with error:
            return error.code


def _spawn(running: list[subprocess.Popen[bytes]], folder: Path, program: Path, *args: str) -> None:
    with (folder / f"{program.name}.log").open("wb") as log:
        running.append(
            subprocess.Popen(
                [program, *args],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=folder,
                # Three sets of servers share two cores: half of the usual work for the heap.
                env={**os.environ, "GOGC": "200"},
                preexec_fn=_die_with_parent,  # noqa: PLW1509 - no threads have been started
            )
        )


def _die_with_parent() -> None:
    # A pytest killed by SIGKILL must not leave servers behind (prctl(2)); Ctrl-C is for pytest
    # alone, which then ends them in order.
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setpgrp()


def _stop(process: subprocess.Popen[bytes]) -> None:
    # Nothing is worth flushing, and kube-apiserver's graceful end takes longer than most tests.
    process.kill()
    process.wait(STOP_TIMEOUT_SECONDS)


def _name(process: subprocess.Popen[bytes]) -> str:
    # Typed for every form of Popen's first argument; here it is always a list.
    return Path(cast("list[str]", process.args)[0]).name


def _log_tail(env: KubeEnv, process: subprocess.Popen[bytes]) -> str:
    name = _name(process)
    lines = (env.folder / f"{name}.log").read_text(errors="replace").splitlines()
    return "\n".join([f"--- {name}", *lines[-20:]])


def _write_kubeconfig(path: Path, server: str, certificate: Path, token: str) -> None:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "integration",
                "cluster": {"server": server, "certificate-authority": str(certificate)},
            }
        ],
        "users": [{"name": "user", "user": {"token": token}}],
        "contexts": [
            {"name": "integration", "context": {"cluster": "integration", "user": "user"}}
        ],
        "current-context": "integration",
    }
    path.write_text(json.dumps(config))
    path.chmod(0o600)


def free_ports(count: int) -> list[int]:
    """Return loopback ports that were free just now, all different."""
    with contextlib.ExitStack() as stack:
        sockets = [
            stack.enter_context(socket.socket(socket.AF_INET, socket.SOCK_STREAM))
            for _ in range(count)
        ]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]


if __name__ == "__main__":
    started = time.monotonic()
    with kube_env() as running_env, contextlib.suppress(KeyboardInterrupt):
        seconds = time.monotonic() - started
        sys.stdout.write(f"export KUBECONFIG={running_env.kubeconfig}  # {seconds:.1f} s\n")
        sys.stdout.flush()
        signal.pause()
