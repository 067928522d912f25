import asyncio
import base64
import ssl
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import certifi
import pytest
import yaml
from kubernetes.aio.client import Configuration

from daemonset_job.kube.client import connection
from daemonset_job.kube.client.client import KubeClient
from daemonset_job.kube.client.connection import (
    Anonymous,
    CertificateAuthority,
    Connection,
    Kubeconfig,
    TokenFile,
    discover,
    in_cluster,
    tls_context,
)
from daemonset_job.kube.client.errors import ConfigurationError, Unauthorized, Unavailable
from daemonset_job.kube.client.resource import NODES
from daemonset_job.kube.client.selection import Selection
from tests.clocks import FakeClock
from tests.contract.fake_api import FakeApiServer


@pytest.fixture(autouse=True)
def clean_environ(monkeypatch, tmp_path):
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture
def clock():
    return FakeClock(datetime(2030, 1, 1, tzinfo=UTC))


def kubeconfig(path: Path, user: dict, server: str = "http://127.0.0.1:1", **cluster) -> str:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "one",
        "contexts": [
            {"name": "one", "context": {"cluster": "c", "user": "u"}},
            {"name": "two", "context": {"cluster": "c", "user": "nobody"}},
        ],
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user}, {"name": "nobody", "user": {}}],
    }
    path.write_text(yaml.safe_dump(config))
    return str(path)


def plugin(path: Path, *, expires_at: datetime | None = None, broken: bool = False) -> dict:
    """Write a credential plugin that hands out token-1, token-2, … and return its exec section."""
    stamp = None if expires_at is None else expires_at.isoformat()
    path.write_text(
        f"""import json, pathlib, sys
counter = pathlib.Path({str(path)!r} + ".count")
n = int(counter.read_text()) + 1 if counter.exists() else 1
counter.write_text(str(n))
if {broken}:
    sys.exit("no login")
status = {{"token": "token-%d" % n}}
if {stamp!r}:
    status["expirationTimestamp"] = {stamp!r}
print(json.dumps({{"apiVersion": "client.authentication.k8s.io/v1",
                   "kind": "ExecCredential", "status": status}}))
"""
    )
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": sys.executable,
            "args": [str(path)],
            "interactiveMode": "Never",
        }
    }


# --- token file ----------------------------------------------------------------------------


async def test_token_file_is_read_again_every_minute(tmp_path, clock):
    path = tmp_path / "token"
    path.write_text("one\n")
    token = TokenFile(str(path), clock)
    assert await token.authorization() == "Bearer one"
    path.write_text("two")
    clock.advance(59)
    assert await token.authorization() == "Bearer one"
    clock.advance(1)
    assert await token.authorization() == "Bearer two"


async def test_token_file_is_read_at_once_when_its_token_is_refused(tmp_path, clock):
    path = tmp_path / "token"
    path.write_text("one")
    token = TokenFile(str(path), clock)
    rejected = await token.authorization()
    path.write_text("two")
    await token.renew(rejected)
    assert await token.authorization() == "Bearer two"
    path.write_text("three")
    await token.renew(rejected)  # a late refusal of the first token: renewed already
    assert await token.authorization() == "Bearer two"


async def test_token_file_keeps_its_token_while_the_file_is_away(tmp_path, clock):
    path = tmp_path / "token"
    token = TokenFile(str(path), clock)
    with pytest.raises(ConfigurationError, match="cannot read the token"):
        await token.authorization()
    path.write_text("  \n")
    with pytest.raises(ConfigurationError, match="is empty"):
        await token.authorization()
    path.write_text("one")
    assert await token.authorization() == "Bearer one"
    for damage in (path.unlink, lambda: path.write_text("")):
        damage()
        clock.advance(61)
        assert await token.authorization() == "Bearer one"


async def test_rotated_token_is_taken_up_by_requests_and_streams(server: FakeApiServer, tmp_path):
    path = tmp_path / "token"
    path.write_text("one")
    server.token = "one"
    server.put(NODES, {"metadata": {"name": "n"}})
    there = Connection(server.url, TokenFile(str(path), server.clock))
    async with KubeClient(connection=there) as client:
        await client.get(NODES, "n")
        path.write_text("two")
        server.token = "two"
        await client.get(NODES, "n")
        path.write_text("three")
        server.token = "three"
        async with client.watch(Selection(NODES), resource_version="0") as events:
            assert (await anext(events))["type"] == "ADDED"
        server.token = "four"
        requests = len(server.requests)
        with pytest.raises(Unauthorized):
            await client.get(NODES, "n")
        assert len(server.requests) == requests + 2
        with pytest.raises(Unauthorized):
            async with client.watch(Selection(NODES), resource_version="0"):
                pass


async def test_write_refused_with_401_is_sent_again_with_the_new_token(server, tmp_path):
    path = tmp_path / "token"
    path.write_text("one")
    server.token = "one"
    there = Connection(server.url, TokenFile(str(path), server.clock))
    async with KubeClient(connection=there) as client:
        await client.list(NODES)
        path.write_text("two")
        server.token = "two"
        await client.create(NODES, {"metadata": {"name": "n"}})
    assert server.exists(NODES, "n")


async def test_credential_errors_are_unauthorized_to_a_running_program(server, tmp_path):
    there = Connection(server.url, TokenFile(str(tmp_path / "missing"), server.clock))
    async with KubeClient(connection=there) as client:
        with pytest.raises(Unauthorized, match="cannot read the token") as caught:
            await client.list(NODES)
        assert caught.value.is_retryable
        with pytest.raises(Unauthorized):
            async with client.watch(Selection(NODES), resource_version="0"):
                pass
    assert server.requests == []


# --- kubeconfig ----------------------------------------------------------------------------


async def test_kubeconfig_with_a_token(tmp_path):
    path = kubeconfig(tmp_path / "config", {"token": "secret"}, **{"proxy-url": "http://proxy"})
    there = await discover(path)
    assert (there.base_url, there.proxy) == ("http://127.0.0.1:1", "http://proxy")
    assert await there.credentials.authorization() == "Bearer secret"
    other = await discover(path, "two")
    assert await other.credentials.authorization() is None


async def test_kubeconfig_token_file_is_read_again_after_401(server, tmp_path):
    token = tmp_path / "token"
    token.write_text("one")
    server.token = "one"
    path = kubeconfig(tmp_path / "config", {"tokenFile": str(token)}, server.url)
    async with await KubeClient.connect(kubeconfig=path, user_agent="me/1.0") as client:
        await client.list(NODES)
        token.write_text("two")
        server.token = "two"
        await client.list(NODES)
    assert server.requests[-1].headers["User-Agent"] == "me/1.0"


async def test_plugin_is_asked_once_for_many_requests_refused_together(server, tmp_path):
    server.token = "token-1"
    path = kubeconfig(tmp_path / "config", plugin(tmp_path / "plugin.py"), server.url)
    async with await KubeClient.connect(kubeconfig=path, user_agent="me") as client:
        await client.list(NODES)
        server.token = "token-2"
        await asyncio.gather(*(client.list(NODES) for _ in range(10)))
    assert (tmp_path / "plugin.py.count").read_text() == "2"


async def test_plugin_is_asked_before_its_token_expires(tmp_path, clock):
    section = plugin(tmp_path / "plugin.py", expires_at=clock.now() + timedelta(minutes=30))
    there = await Kubeconfig(kubeconfig(tmp_path / "config", section), None, clock).load()
    assert await there.credentials.authorization() == "Bearer token-1"
    clock.advance(28 * 60)
    assert await there.credentials.authorization() == "Bearer token-1"
    clock.advance(61)
    assert await there.credentials.authorization() == "Bearer token-2"


async def test_plugin_that_fails_leaves_the_user_anonymous(tmp_path, clock):
    section = plugin(tmp_path / "plugin.py", broken=True)
    there = await Kubeconfig(kubeconfig(tmp_path / "config", section), None, clock).load()
    assert await there.credentials.authorization() is None


async def test_plugin_that_hangs_is_a_configuration_error(tmp_path, clock, monkeypatch):
    monkeypatch.setattr(connection, "PLUGIN_TIMEOUT_SECONDS", 0.05)

    async def hang(**options):
        await asyncio.sleep(60)

    monkeypatch.setattr(connection, "load_kube_config", hang)
    path = kubeconfig(tmp_path / "config", {})
    with pytest.raises(ConfigurationError, match="plugin did not finish"):
        await Kubeconfig(path, None, clock).load()


@pytest.mark.parametrize(
    "text", ["{", "", "[]", "contexts: []", "current-context: x\ncontexts: []\nclusters: []\n"]
)
async def test_broken_kubeconfig_is_a_configuration_error(tmp_path, text):
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match="config"):
        await discover(str(path))


async def test_kubeconfig_is_looked_for_as_kubectl_does(tmp_path, monkeypatch):
    with pytest.raises(ConfigurationError, match="there is no kubeconfig at"):
        await discover(None)
    (tmp_path / ".kube").mkdir()
    kubeconfig(tmp_path / ".kube" / "config", {}, "http://home")
    assert (await discover(None)).base_url == "http://home"
    kubeconfig(tmp_path / "named", {}, "http://named")
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/missing:{tmp_path}/named")
    assert (await discover(None)).base_url == "http://named"


# --- in the cluster ------------------------------------------------------------------------


async def test_pod_uses_its_service_account(tmp_path, monkeypatch, clock):
    ca = certifi.where()
    (tmp_path / "token").write_text("sa")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    there = in_cluster(clock, token_path=str(tmp_path / "token"), ca_path=ca)
    assert there.base_url == "https://[fd00::1]:443"
    assert await there.credentials.authorization() == "Bearer sa"
    assert there.tls is not None
    assert there.tls.verify_mode == ssl.CERT_REQUIRED


async def test_pod_without_a_service_account_is_a_configuration_error(monkeypatch):
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(ConfigurationError, match="no usable service account"):
        await discover(None)


# --- TLS -----------------------------------------------------------------------------------


def test_tls_never_insists_on_what_cluster_cas_lack(monkeypatch):
    context = ssl.create_default_context()
    context.verify_flags |= ssl.VERIFY_X509_STRICT  # the default from Python 3.13 on
    monkeypatch.setattr(ssl, "create_default_context", lambda **_: context)
    made = tls_context(Configuration())
    assert not made.verify_flags & ssl.VERIFY_X509_STRICT
    assert made.verify_mode == ssl.CERT_REQUIRED
    assert made.check_hostname


def test_tls_verification_is_off_only_when_asked():
    settings = Configuration()
    settings.verify_ssl = False
    made = tls_context(settings)
    assert made.verify_mode == ssl.CERT_NONE


def test_unreadable_certificates_are_a_configuration_error(tmp_path):
    settings = Configuration()
    settings.ssl_ca_cert = str(tmp_path / "missing")
    with pytest.raises(ConfigurationError, match="unusable certificates"):
        tls_context(settings)
    (tmp_path / "cert").write_text("not a certificate")
    settings.ssl_ca_cert = None
    settings.cert_file = settings.key_file = str(tmp_path / "cert")
    with pytest.raises(ConfigurationError, match="unusable certificates"):
        tls_context(settings)


def openssl(directory: Path, *arguments: str) -> None:
    subprocess.run(["openssl", *arguments], cwd=directory, check=True, capture_output=True)


@pytest.fixture
def certificates(tmp_path):
    """Make a CA without key usage, as old clusters have, and what it signed."""
    subject = ["-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj"]
    openssl(tmp_path, "req", "-x509", *subject, "/CN=ca", "-keyout", "ca.key", "-out", "ca.crt")
    (tmp_path / "san").write_text("subjectAltName=IP:127.0.0.1,DNS:kubernetes")
    for name in ("server", "admin", "renewed"):
        keys = ["-keyout", f"{name}.key", "-out", f"{name}.csr"]
        openssl(tmp_path, "req", *subject, f"/CN={name}", *keys)
        sign = ["-CA", "ca.crt", "-CAkey", "ca.key", "-CAcreateserial", "-extfile", "san"]
        openssl(tmp_path, "x509", "-req", "-in", f"{name}.csr", *sign, "-out", f"{name}.crt")
    return tmp_path


async def test_client_certificates_authenticate_and_the_server_is_verified(certificates):
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=certificates / "ca.crt")
    tls.load_cert_chain(certificates / "server.crt", certificates / "server.key")
    tls.verify_mode = ssl.CERT_REQUIRED
    server = FakeApiServer()
    url = await server.start(tls)
    user = {
        # Relative to the kubeconfig, as kubeadm and kind write them, and as data.
        "client-certificate": "admin.crt",
        "client-key-data": base64.b64encode((certificates / "admin.key").read_bytes()).decode(),
    }
    ca = {"certificate-authority": "ca.crt"}
    path = kubeconfig(certificates / "config", user, url, **ca)
    async with await KubeClient.connect(kubeconfig=path, user_agent="me") as client:
        await client.list(NODES)
        async with client.watch(Selection(NODES), resource_version="0"):
            pass
    named = ca | {"tls-server-name": "kubernetes"}
    for cluster, is_trusted in ((named, True), ({}, False), (ca | {"tls-server-name": "x"}, False)):
        path = kubeconfig(certificates / "config", user, url, **cluster)
        async with await KubeClient.connect(kubeconfig=path, user_agent="me") as client:
            if is_trusted:
                await client.list(NODES)
            else:
                with pytest.raises(Unavailable, match="certificate verify failed"):
                    await client.list(NODES)
    await server.stop()


async def test_renewed_client_certificate_is_used_for_new_connections(certificates, clock):
    user = {"client-certificate": "admin.crt", "client-key": "admin.key"}
    ca = {"certificate-authority": "ca.crt"}
    path = kubeconfig(certificates / "config", user, "https://127.0.0.1:1", **ca)
    there = await Kubeconfig(path, None, clock).load()
    loaded: list[str] = []
    assert there.tls is not None
    there.tls.load_cert_chain = lambda cert, key: loaded.append(Path(cert).name)
    kubeconfig(
        certificates / "config",
        {"client-certificate": "renewed.crt", "client-key": "renewed.key"},
        "https://127.0.0.1:1",
        **ca,
    )
    await there.credentials.renew(None)
    assert loaded == ["renewed.crt"]


async def test_renewed_authorities_are_used_for_new_connections(certificates, clock, monkeypatch):
    former = certificates / "former"
    former.mkdir()
    subject = ["-nodes", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj"]
    openssl(former, "req", "-x509", *subject, "/CN=old", "-keyout", "ca.key", "-out", "ca.crt")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(certificates / "server.crt", certificates / "server.key")
    server = FakeApiServer()
    host, port = (await server.start(tls)).removeprefix("https://").split(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    (certificates / "token").write_text("sa")
    there = in_cluster(
        clock, token_path=str(certificates / "token"), ca_path=str(former / "ca.crt")
    )
    async with KubeClient(connection=there) as client:
        for _ in range(2):
            with pytest.raises(Unavailable, match="certificate verify failed"):
                await client.list(NODES)
            # Half a file changes nothing.
            (former / "ca.crt").write_bytes((certificates / "ca.crt").read_bytes()[:100])
            clock.advance(60)
            there.context()
        (former / "ca.crt").write_bytes((certificates / "ca.crt").read_bytes())
        clock.advance(59)
        with pytest.raises(Unavailable, match="certificate verify failed"):
            await client.list(NODES)
        clock.advance(1)
        await client.list(NODES)
        async with client.watch(Selection(NODES), resource_version="0"):
            pass
        (former / "ca.crt").unlink()
        clock.advance(60)
        await client.list(NODES)
    await server.stop()


async def test_authorities_that_stay_the_same_keep_their_context(certificates, clock):
    settings = Configuration()
    settings.ssl_ca_cert = str(certificates / "ca.crt")
    authority = CertificateAuthority(settings, clock)
    first = authority.context()
    clock.advance(60)
    assert authority.context() is first


async def test_anonymous_has_nothing_to_renew():
    await Anonymous().renew(None)
    assert await Anonymous().authorization() is None
