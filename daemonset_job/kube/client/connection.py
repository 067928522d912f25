"""Where the API server is and how to be trusted by it: kubeconfig or service account.

``kubernetes.aio`` is used here and only here, for reading configuration, exec plugins, tokens and
certificates. None of its request machinery is (docs/decisions/0006-own-client.md says why).
"""

import asyncio
import os
import ssl
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

import yaml
from kubernetes.aio.client import Configuration
from kubernetes.aio.client.rest import RESTClientObject
from kubernetes.aio.config import ConfigException, load_kube_config
from kubernetes.aio.config.incluster_config import (
    SERVICE_CERT_FILENAME,
    SERVICE_TOKEN_FILENAME,
    InClusterConfigLoader,
)
from loguru import logger

from daemonset_job.kube.client.errors import ConfigurationError
from daemonset_job.runtime.clock import Clock, SystemClock

# Projected tokens are rotated at 80 % of their life and the kubelet renews the file well before
# that; client-go reads it once a minute too (transport/token_source.go, NewCachedFileTokenSource).
TOKEN_FILE_SECONDS = 60.0
# Renew before the server starts to refuse; also covers clocks that differ a little.
EXPIRY_MARGIN = timedelta(minutes=1)
# A plugin may open a browser the first time; a minute is what a person needs, not a hang.
PLUGIN_TIMEOUT_SECONDS = 60.0


class Credentials(Protocol):
    """Produces the Authorization header, renewing the credentials when needed."""

    async def authorization(self) -> str | None:
        """Return the header's current value, or None where the connection itself authenticates."""
        ...

    async def renew(self, rejected: str | None) -> None:
        """Obtain a new value because the server answered 401 to `rejected`."""
        ...


class Anonymous:
    """No Authorization header: client certificates, a local proxy, tests."""

    async def authorization(self) -> str | None:
        """Return None."""
        return None

    async def renew(self, rejected: str | None) -> None:
        """Do nothing: there is nothing to renew."""


class TokenFile:
    """A bearer token in a file that the kubelet rotates; read again every minute."""

    def __init__(self, path: str, clock: Clock) -> None:
        self._path = Path(path)
        self._clock = clock
        self._value: str | None = None
        self._read_at = 0.0

    async def authorization(self) -> str | None:
        """Return the token; ConfigurationError if there is none and never was."""
        if self._value is None or self._clock.monotonic() - self._read_at >= TOKEN_FILE_SECONDS:
            self._read()
        return self._value

    async def renew(self, rejected: str | None) -> None:
        """Read the file now, unless the value was replaced since it was rejected."""
        if self._value == rejected:
            self._read()

    def _read(self) -> None:
        try:
            token = self._path.read_text("utf-8").strip()
        except OSError as error:
            token = ""
            if self._value is None:
                raise ConfigurationError(f"cannot read the token {self._path}: {error}") from error
        if not token and self._value is None:
            raise ConfigurationError(f"the token file {self._path} is empty")
        # An empty file is in the middle of its rotation. Then the old token is still used, since
        # rotation happens at 80 % of its life. The file is read again after a minute.
        if token:
            self._value = f"Bearer {token}"
        self._read_at = self._clock.monotonic()


class CertificateAuthority:
    """The authorities that a server is verified with, in a file that another program renews.

    Looked at once a minute, like the token. A context that is in use keeps the authorities that it
    was made with, so a changed file makes another one, for new connections.
    """

    def __init__(self, settings: Any, clock: Clock) -> None:
        """Read the file of the settings now; ConfigurationError if that is impossible."""
        self._settings = settings
        self._path = Path(settings.ssl_ca_cert)
        self._clock = clock
        self._context = tls_context(settings)
        self._content = self._path.read_bytes()
        self._read_at = clock.monotonic()

    def context(self) -> ssl.SSLContext:
        """Return the context for a new connection: of the file as it is, or as it last was good."""
        if self._clock.monotonic() - self._read_at >= TOKEN_FILE_SECONDS:
            self._read_at = self._clock.monotonic()
            try:
                self._read()
            except (OSError, ConfigurationError) as error:
                log = logger.bind(path=str(self._path), error=str(error))
                log.warning("cannot read the certificate authorities, keeping the previous ones")
        return self._context

    def _read(self) -> None:
        content = self._path.read_bytes()
        if content != self._content:
            self._context = tls_context(self._settings)
            self._content = content


class Kubeconfig:
    """The user of a kubeconfig: static token, token file, client certificate, OIDC, exec plugin.

    Renewing means loading the file again, so that a rotated token file, a new certificate and a
    new login are all picked up.
    """

    def __init__(self, path: str, context: str | None, clock: Clock) -> None:
        self._path = path
        self._context = context
        self._clock = clock
        self._lock = asyncio.Lock()
        self._value: str | None = None
        self._expires_at: datetime | None = None
        self._tls: ssl.SSLContext | None = None

    async def load(self) -> "Connection":
        """Return the connection this kubeconfig describes; ConfigurationError if it cannot."""
        settings = await self._load()
        self._tls = tls_context(settings)
        return Connection(
            base_url=settings.host,
            credentials=self,
            tls=self._tls,
            proxy=settings.proxy,
            server_hostname=settings.tls_server_name,
        )

    async def authorization(self) -> str | None:
        """Return the current value; a plugin's is renewed a minute before it expires."""
        expires_at = self._expires_at
        if expires_at is not None and self._clock.now() >= expires_at - EXPIRY_MARGIN:
            await self.renew(self._value)
        return self._value

    async def renew(self, rejected: str | None) -> None:
        """Load the kubeconfig again, once for any number of requests refused together."""
        async with self._lock:
            if self._value != rejected:
                return
            settings = await self._load()
            if self._tls is not None and settings.cert_file:
                self._tls.load_cert_chain(settings.cert_file, settings.key_file)

    async def _load(self) -> Any:
        settings = Configuration()
        try:
            async with asyncio.timeout(PLUGIN_TIMEOUT_SECONDS):
                loader = await load_kube_config(
                    config_file=self._path,
                    context=self._context,
                    client_configuration=settings,
                    persist_config=False,
                )
        except TimeoutError as error:
            raise ConfigurationError(
                f"{self._path}: the credential plugin did not finish in time"
            ) from error
        # A file of another form is an AttributeError or a TypeError there.
        except (
            *(ConfigException, yaml.YAMLError, OSError, ValueError, TypeError, AttributeError),
        ) as error:
            raise ConfigurationError(f"{self._path}: {error}") from error
        self._value = settings.api_key.get("BearerToken")
        expires_at = getattr(loader, "exec_plugin_expiry", None)
        self._expires_at = expires_at.astimezone(UTC) if expires_at is not None else None
        return settings


@dataclass(frozen=True, slots=True)
class Connection:
    """Everything needed to open a connection to one API server."""

    base_url: str
    credentials: Credentials
    tls: ssl.SSLContext | None = None
    proxy: str | None = None
    server_hostname: str | None = None
    authority: CertificateAuthority | None = None
    """Makes the contexts of new connections, in place of `tls`, where authorities may change."""

    def context(self) -> ssl.SSLContext | None:
        """Return what a new connection is to be made with, None for the system's own settings."""
        return self.tls if self.authority is None else self.authority.context()


async def discover(kubeconfig: str | None, context: str | None = None) -> Connection:
    """Return the connection to use: the named kubeconfig, else the pod's own, else the user's.

    `kubeconfig` may be a list of paths as in ``$KUBECONFIG``. ConfigurationError if nothing fits.
    """
    clock = SystemClock()
    if kubeconfig is None and context is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
        return in_cluster(clock)
    path = kubeconfig or os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")
    if not any(_exists(part) for part in path.split(os.pathsep)):
        raise ConfigurationError(f"there is no kubeconfig at {path}")
    return await Kubeconfig(path, context, clock).load()


def in_cluster(
    clock: Clock,
    *,
    token_path: str = SERVICE_TOKEN_FILENAME,
    ca_path: str = SERVICE_CERT_FILENAME,
) -> Connection:
    """Return the connection of the pod's service account; ConfigurationError outside a pod."""
    settings = Configuration()
    loader = InClusterConfigLoader(token_path, ca_path, try_refresh_token=False)
    try:
        loader.load_and_set(settings)
    except (ConfigException, OSError) as error:
        raise ConfigurationError(f"no usable service account: {error}") from error
    authority = CertificateAuthority(settings, clock)
    return Connection(
        base_url=settings.host,
        credentials=TokenFile(token_path, clock),
        tls=authority.context(),
        authority=authority,
    )


def tls_context(settings: Any) -> ssl.SSLContext:
    """Return a context for these settings; ConfigurationError for unreadable certificates."""
    # Python 3.13 turned this on by default; many cluster CAs lack the extensions it insists on.
    settings.disable_strict_ssl_verification = True
    try:
        context: ssl.SSLContext = RESTClientObject(settings).ssl_context
    except (OSError, ValueError) as error:
        raise ConfigurationError(f"unusable certificates: {error}") from error
    return context


def _exists(path: str) -> bool:
    return bool(path) and Path(path).expanduser().exists()
