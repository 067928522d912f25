import asyncio
import inspect
import json
import socket
import ssl

import aiohttp
import pytest
from aiohttp import http_exceptions
from aiohttp.client_reqrep import ConnectionKey

from daemonset_job.kube.client import errors
from daemonset_job.kube.client.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    Invalid,
    KubeError,
    OperatorError,
    Throttled,
    TooLarge,
    Unavailable,
)
from daemonset_job.kube.client.messages import clean_text
from daemonset_job.kube.client.status_errors import error_from_response, error_from_status
from daemonset_job.kube.client.transport_errors import as_kube_errors


def exceptions_of(module) -> list[type[BaseException]]:
    return [
        value
        for value in vars(module).values()
        if inspect.isclass(value)
        and issubclass(value, Exception)
        and value.__module__.startswith(("aiohttp", "ssl", "asyncio", "socket", "concurrent"))
    ]


# Raised for web sockets, multipart answers and wrong use, of which there is nothing here.
ELSEWHERE = {
    aiohttp.WebSocketError,
    aiohttp.WSMessageTypeError,
    aiohttp.BadContentDispositionHeader,
    aiohttp.BadContentDispositionParam,
    asyncio.InvalidStateError,
    asyncio.QueueEmpty,
    asyncio.QueueFull,
    asyncio.BrokenBarrierError,
    asyncio.LimitOverrunError,
    asyncio.SendfileNotAvailableError,
}
TRANSPORT = sorted(
    {
        found
        for module in (aiohttp, http_exceptions, ssl, asyncio, socket)
        for found in exceptions_of(module)
        if not found.__name__.startswith("_")
    }
    - ELSEWHERE
    | {OSError, ConnectionResetError, BrokenPipeError, socket.gaierror, TimeoutError, EOFError},
    key=lambda kind: kind.__name__,
)


@pytest.mark.parametrize("kind", TRANSPORT, ids=lambda kind: kind.__name__)
def test_every_exception_of_the_transport_is_unavailable(kind):
    error = kind.__new__(kind)
    error.args = ("broken",)
    if "__str__" in vars(kind) or issubclass(kind, aiohttp.ClientError):
        error = _instance(kind)
    with pytest.raises(Unavailable) as caught, as_kube_errors("GET /x"):
        raise error
    assert (caught.value.status, caught.value.is_retryable) == (0, True)
    assert caught.value.request == "GET /x"
    assert caught.value.message
    assert caught.value.__cause__ is error


def _instance(kind: type[BaseException]) -> BaseException:
    """Make an instance whose message can be had, whatever its constructor asks for."""
    if issubclass(kind, aiohttp.ClientConnectorError | aiohttp.ClientConnectorCertificateError):
        return kind(_address("api"), OSError("broken"))
    error = kind.__new__(kind)
    for candidate in ((), ("broken",), ("broken", "x"), ("broken", "x", "y")):
        try:
            error = kind(*candidate)
            str(error)
        except Exception:  # noqa: BLE001 - another try
            continue
        return error
    plain = type(kind.__name__, (kind,), {"__init__": lambda _: None, "__str__": lambda _: "x"})
    return plain()


def _address(host: str) -> ConnectionKey:
    return ConnectionKey(host, 6443, is_ssl=True, ssl=ssl.create_default_context(), **_NO_PROXY)


_NO_PROXY = {"proxy": None, "proxy_auth": None, "proxy_headers_hash": None}


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (
            aiohttp.ClientConnectorError(
                _address("10.0.0.1"),
                ConnectionRefusedError(111, "Connect call failed ('10.0.0.1', 6443)"),
            ),
            "cannot connect to 10.0.0.1:6443: Connection refused",
        ),
        (
            aiohttp.ClientConnectorError(_address("fd00::1"), OSError(113, "Connect call failed")),
            "cannot connect to [fd00::1]:6443: No route to host",
        ),
        (
            aiohttp.ClientConnectorError(_address("api"), OSError("Multiple exceptions: a, b")),
            "cannot connect to api:6443: Multiple exceptions: a, b",
        ),
        (
            aiohttp.ClientConnectorDNSError(
                _address("api"), socket.gaierror(-2, "Name or service not known")
            ),
            "cannot connect to api:6443: Name or service not known",
        ),
        (
            aiohttp.ClientConnectorSSLError(
                _address("api"), ssl.SSLError(1, "[SSL: WRONG_VERSION_NUMBER] wrong version number")
            ),
            "cannot connect to api:6443: [SSL: WRONG_VERSION_NUMBER] wrong version number",
        ),
        (
            aiohttp.ClientConnectorCertificateError(
                _address("api"), ssl.SSLCertVerificationError(1, "self-signed certificate")
            ),
            "cannot connect to api:6443: self-signed certificate",
        ),
    ],
    ids=["refused", "IPv6", "several addresses", "name", "no TLS", "certificate"],
)
def test_the_message_says_why_there_is_no_connection(error, message):
    with pytest.raises(Unavailable) as caught, as_kube_errors("GET /x"):
        raise error
    assert caught.value.message == message


@pytest.mark.parametrize("kind", [asyncio.CancelledError, KeyboardInterrupt, KeyError])
def test_what_is_not_of_the_transport_passes(kind):
    with pytest.raises(kind), as_kube_errors("GET /x"):
        raise kind


def test_kube_errors_pass_through_translation_unchanged():
    error = Conflict("mine")
    with pytest.raises(Conflict) as caught, as_kube_errors("GET /x"):
        raise error
    assert caught.value is error


def test_tree_in_the_docstring_names_every_class_and_status():
    text = errors.__doc__ or ""
    for name, kind in vars(errors).items():
        if inspect.isclass(kind) and issubclass(kind, OperatorError):
            assert name in text
            if issubclass(kind, KubeError) and kind.default_status:
                line = next(line for line in text.splitlines() if name in line)
                assert str(kind.default_status) in line


def test_retryable_is_what_may_succeed_by_itself():
    retryable = {
        kind.__name__
        for kind in vars(errors).values()
        if inspect.isclass(kind) and issubclass(kind, KubeError) and kind.is_retryable
    }
    assert retryable == {"Unauthorized", "Conflict", "Gone", "Throttled", "Unavailable"}


def status(code: int, reason: str, message: str = "no", **more) -> bytes:
    return json.dumps(
        {"kind": "Status", "code": code, "reason": reason, "message": message} | more
    ).encode()


def test_already_exists_differs_from_conflict_by_its_reason():
    assert type(error_from_response(409, status(409, "AlreadyExists"))) is AlreadyExists
    assert type(error_from_response(409, status(409, "Conflict"))) is Conflict
    assert type(error_from_response(409, b"")) is Conflict


@pytest.mark.parametrize(("code", "limit"), [(400, 1024), (403, 1024), (422, 1024), (500, 256)])
def test_messages_are_bounded_and_those_for_users_are_longer(code, limit):
    error = error_from_response(code, status(code, "R", "x" * 9000))
    assert len(error.message) == limit
    assert len(error_from_response(code, b"y" * 9000).message) == limit


@pytest.mark.parametrize("body", [b"", b"\xff\xfe", b"[]", b"null", b"<html>gateway</html>"])
def test_body_that_is_no_status_still_makes_an_error(body):
    error = error_from_response(502, body, request="GET /x")
    assert type(error) is Unavailable
    assert error.reason == "BadGateway"
    assert str(error).startswith("GET /x: 502 BadGateway: ")
    assert error.message


def test_unknown_status_is_a_plain_kube_error():
    error = error_from_response(499, b"")
    assert (type(error), error.reason) == (KubeError, "Unknown")
    assert type(error_from_status({"code": "410"})) is KubeError


def test_details_are_kept_and_their_causes_bounded():
    causes = [{"field": f"spec.f{i}"} for i in range(100)]
    body = status(422, "Invalid", details={"name": "clean", "causes": causes})
    error = error_from_response(422, body)
    assert type(error) is Invalid
    assert error.details["name"] == "clean"
    assert len(error.details["causes"]) == 16
    assert error_from_response(403, status(403, "Forbidden", details="x")).details == {}
    assert type(error_from_response(403, b"")) is Forbidden


@pytest.mark.parametrize(
    ("header", "details", "expected"),
    [
        ("7", {}, 7.0),
        ("7", {"retryAfterSeconds": 3}, 7.0),
        (None, {"retryAfterSeconds": 3}, 3.0),
        (None, {"retryAfterSeconds": 0}, None),
        ("0", {}, None),
        ("0", {"retryAfterSeconds": 3}, 3.0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", {}, None),
        ("-1", {}, None),
        (None, {}, None),
        ("60", {}, 60.0),
        ("61", {}, 60.0),
        ("9" * 400, {}, 60.0),
        (None, {"retryAfterSeconds": 86400}, 60.0),
        (None, {"retryAfterSeconds": 10**19}, 60.0),
    ],
)
def test_retry_after_comes_from_the_header_or_the_details(header, details, expected):
    error = error_from_response(429, status(429, "R", details=details), retry_after=header)
    assert type(error) is Throttled
    assert error.retry_after_seconds == expected


def test_text_is_one_printable_line():
    assert clean_text("a\x1b[2J\r\n  b\u202e\x00c\tü ", 99) == "a [2J b c ü"
    assert clean_text("abcdef", 4) == "abc…"
    assert clean_text("", 4) == ""


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (413, "Request entity too large: limit is 3145728"),
        (500, "etcdserver: request is too large"),
        (500, "rpc error: code = ResourceExhausted desc = trying to send message larger than max"),
    ],
)
def test_what_is_too_large_is_not_worth_another_try(code, message):
    error = error_from_response(code, status(code, "InternalError", message))
    assert isinstance(error, TooLarge)
    assert (error.status, error.is_retryable) == (code, False)
    assert not isinstance(error_from_response(500, status(500, "InternalError", "no")), TooLarge)


def test_a_patch_with_fields_that_the_crd_lacks_is_refused_by_their_names():
    quoted = json.dumps({"status": {"message": "x" * 9000, "forged": '": strict decoding error: '}})
    fields = 'unknown field "status.timeline", unknown field "status.turns"'
    message = f' "" is invalid: patch: Invalid value: {json.dumps(quoted)}: strict decoding error: '
    error = error_from_status({"code": 422, "reason": "Invalid", "message": message + fields})
    assert isinstance(error, Invalid)
    assert error.message == f"its CRD is of another version, and lacks what is written: {fields}"
    plain = "Job in version v1 cannot be handled: strict decoding error: unknown field"
    assert error_from_status({"code": 400, "message": plain}).message == plain
