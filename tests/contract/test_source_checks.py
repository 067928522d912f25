"""Sources that are slow, away or hostile, and the answers that checks of rollouts get from them."""

import asyncio
import contextlib
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from job_controller.core.receivers import Endpoint
from job_controller.core.sources import AnswerState, Source, SourceQuery
from job_controller.outbound import Outbound, OutboundError, OutboundRequest
from job_controller.source_checks import QUICK_AT_ONCE, SLOW_AT_ONCE, SourceChecks
from tests.clocks import LoopClock
from tests.contract.controller_cluster import until
from tests.contract.fake_receiver import listening

pytestmark = pytest.mark.looptime(end=10_000)
T0 = datetime(2030, 1, 1, tzinfo=UTC)
KEY = ("team-a", "patch")
# Signs itself, and has no key any more.
CERTIFICATE = b"""-----BEGIN CERTIFICATE-----
MIIBdTCCARugAwIBAgIUJ6Ej0M9kI9ydrArx4TKEBod8D8owCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEdGVzdDAgFw0yNjExMjgxNTIxMjNaGA8yMTI2MTEwNDE1MjEy
M1owDzENMAsGA1UEAwwEdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABC/M
g8MAGzfTxHRf8ady9n5P/5edfhPpfedd1J09pAllRg05mP+KqurucTIOFflphirZ
+fLtkhkobACEnosxceGjUzBRMB0GA1UdDgQWBBSXyAyCSMek04LcnWgmSl0cjY07
kDAfBgNVHSMEGDAWgBSXyAyCSMek04LcnWgmSl0cjY07kDAPBgNVHRMBAf8EBTAD
AQH/MAoGCCqGSM49BAMCA0gAMEUCIGWF+Xgfz9j4CGiGVf3B9atsD2xCTI9Lxp5u
aIjSdBcIAiEA49g8AdWHH7RcjUnQ9nMH+Lo7kaOXsE+LboniU4SZ3uY=
-----END CERTIFICATE-----
"""


@pytest.fixture
async def server():
    async with listening() as found:
        yield found


@contextlib.asynccontextmanager
async def checking(*sources):
    """Run the checker with these sources."""
    known = list(sources)
    outbound = Outbound()
    checks = SourceChecks(lambda: tuple(known), LoopClock(T0), outbound)
    task = asyncio.create_task(checks.run())
    try:
        yield checks
        assert not task.done(), task
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
        await outbound.close()


def source(folder, name, url, **fields):
    file = folder / f"{name}.url"
    file.write_text(f"{url}/base")
    return Source(name, Endpoint(str(file)), ("*",), **fields)


def query(name="web", since=T0, **fields):
    return SourceQuery(name, since, **fields)


async def answer(checks, asked, key=KEY, seconds=30):
    checks.ask(key, [asked])
    return await until(lambda: checks.answers(key).get(asked), seconds)


async def test_an_endpoint_passes_and_fails_and_the_path_is_the_administrators(server, tmp_path):
    async with checking(source(tmp_path, "web", server.url, paths=("/healthz",))) as checks:
        found = await answer(checks, query(path="/healthz"))
        assert found.state is AnswerState.PASS
        server.status = 503
        checks.ask(KEY, [query(path="/healthz")])
        await until(lambda: checks.answers(KEY)[query(path="/healthz")].state is AnswerState.FAIL)
        denied = await answer(checks, query(path="/other"))
        assert denied.state is AnswerState.UNKNOWN
    assert server.paths == ["/base/healthz", "/base/healthz"]


async def test_a_query_of_prometheus_is_encoded(server, tmp_path):
    server.text = '{"data": {"resultType": "vector", "result": [{"value": [1, "0.2"]}]}}'
    found = source(tmp_path, "prom", server.url, queries={"q": 'a{n="{{namespace}}"} + 1 & x'})
    async with checking(found) as checks:
        result = await answer(checks, query("prom", query="q", below=0.5))
    assert (result.state, result.message) == (AnswerState.PASS, "q of source prom is 0.2")
    assert server.paths == ["/base/api/v1/query"]
    assert server.queries == [{"query": 'a{n="team-a"} + 1 & x'}]


async def test_the_query_of_a_sources_address_stays(server, tmp_path):
    """It may have a token, or say which tenant is asked."""
    found = source(tmp_path, "prom", server.url, paths=("/healthz",), queries={"q": "up"})
    (tmp_path / "prom.url").write_text(f"{server.url}/base?tenant=a%26b&tenant=c")
    async with checking(found) as checks:
        await answer(checks, query("prom", query="q", below=0.5))
        await answer(checks, query("prom", path="/healthz"))
    assert server.paths == ["/base/api/v1/query", "/base/healthz"]
    assert [each["tenant"] for each in server.queries] == ["a&b"] * 2
    assert server.queries[0]["query"] == "up"


@pytest.mark.parametrize("text", ["SECRET%2b1", "SECRET%2B1", "SECRET+1", "t=SECRET%2b1"])
async def test_a_secret_of_the_address_is_hidden_however_the_answer_writes_it(
    server, tmp_path, text
):
    server.status, server.text = 500, f"cannot serve {text} here"
    (tmp_path / "url").write_text(f"{server.url}/base?t=SECRET%2B1")
    outbound = Outbound()
    found = await outbound.send(Endpoint(str(tmp_path / "url")), OutboundRequest("GET"))
    await outbound.close()
    assert "secret" not in found.excerpt.lower()
    assert found.excerpt.startswith("cannot serve ")


async def test_an_expression_that_does_not_parse_says_why(server, tmp_path):
    server.status = 400
    server.text = '{"status": "error", "errorType": "bad_data", "error": "1:4: parse error"}'
    free = source(tmp_path, "prom", server.url, queries={"q": "sum("}, allows_expressions=True)
    async with checking(free) as checks:
        own = await answer(checks, query("prom", expression="sum(", above=0))
        named = await answer(checks, query("prom", query="q", above=0))
    assert own.state is named.state is AnswerState.UNKNOWN
    assert own.message == "the source prom answered with HTTP 400: 1:4: parse error"
    assert "parse error" not in named.message


async def test_a_source_that_is_away_or_slow_or_redirects_is_never_a_pass(server, tmp_path):
    away = source(tmp_path, "away", "http://127.0.0.1:1")
    async with checking(away, source(tmp_path, "web", server.url)) as checks:
        assert (await answer(checks, query("away"))).state is AnswerState.UNKNOWN
        server.delay_seconds = 1000
        slow = await answer(checks, query())
        assert slow.state is AnswerState.UNKNOWN
        assert "no complete answer within 10 s" in slow.message
        server.delay_seconds, server.status = 0, 302
        server.headers = {"Location": "/elsewhere"}
        redirected = await answer(checks, query(since=T0.replace(year=2031)))
        assert redirected.state is AnswerState.UNKNOWN
    assert "/elsewhere" not in server.paths


@pytest.mark.parametrize(
    "text", ["# Főtanúsítvány\n".encode(), "# ção\n".encode("latin-1"), b"-----BEGIN", b" "]
)
async def test_whatever_a_ca_file_has_ends_nothing(server, tmp_path, text):
    """Bundles have comments with the names of authorities, in any language."""
    (tmp_path / "ca").write_bytes(text + b"no certificate\n")
    found = source(tmp_path, "web", server.url.replace("http:", "https:"))
    strange = replace(found, endpoint=replace(found.endpoint, ca_file=str(tmp_path / "ca")))
    async with checking(strange) as checks:
        result = await answer(checks, query())
    assert result.state is AnswerState.UNKNOWN
    assert "its CA file has no certificates in PEM form" in result.message


@pytest.mark.parametrize("path", ["/\ud800", "/" + "a" * 5000, "/"], ids=ascii)
async def test_a_file_that_cannot_be_there_ends_nothing(path):
    async with checking(Source("web", Endpoint(path), ("*",))) as checks:
        result = await answer(checks, query())
    assert "its URL cannot be read" in result.message


async def test_a_ca_file_with_comments_in_any_language_is_used(tmp_path):
    comment = "# Főtanúsítvány\n".encode()
    ca, url = tmp_path / "ca", tmp_path / "url"
    ca.write_bytes(comment + CERTIFICATE + comment)
    url.write_text("https://127.0.0.1:1/")
    outbound = Outbound()
    with pytest.raises(OutboundError, match="it cannot be connected to"):
        await outbound.send(Endpoint(str(url), ca_file=str(ca)), OutboundRequest("GET"))
    await outbound.close()


async def test_an_endless_answer_to_a_query_is_no_number(server, tmp_path):
    server.is_endless = True
    async with checking(source(tmp_path, "prom", server.url, queries={"q": "up"})) as checks:
        found = await answer(checks, query("prom", query="q", above=0))
    assert found.state is AnswerState.UNKNOWN
    assert server.sent_bytes < 16 * 1024 * 1024


async def test_one_namespace_that_asks_a_lot_does_not_delay_another_or_another_source(
    server, tmp_path
):
    server.delay_seconds = 1
    async with listening() as quick:
        sources = source(tmp_path, "web", server.url), source(tmp_path, "quick", quick.url)
        async with checking(*sources) as checks:
            for number in range(100):
                checks.ask(("noisy", f"job-{number}"), [query()])
            await answer(checks, query(), ("quiet", "job"), seconds=5)
            await answer(checks, query("quick"), ("other", "job"), seconds=1)


SLOW = [f"slow-{number}" for number in range(40)]
ASKED = query("prom", query="q", above=1)


@pytest.fixture
def uneven(server, tmp_path):
    """A source that answers the questions of some namespaces only."""
    server.text = '{"data": {"resultType": "scalar", "result": [1, "7"]}}'
    server.delays = {"slow-": 1000}
    return source(tmp_path, "prom", server.url, queries={"q": 'a{n="{{namespace}}"}'})


@pytest.mark.parametrize("count", [6, 40])
async def test_namespaces_whose_questions_are_slow_do_not_delay_that_of_another(
    server, uneven, count
):
    async with checking(uneven) as checks:
        for namespace in SLOW[:count]:
            checks.ask((namespace, "job"), [ASKED])
        # By then each of them has been asked, and has shown that it is slow.
        await until(lambda: len(server.got) >= count + min(count, SLOW_AT_ONCE))
        for number in range(5):
            for namespace in SLOW[:count]:
                checks.ask((namespace, "job"), [ASKED])
            sent = len(server.queries)
            await answer(checks, ASKED, (f"other-{number}", "job"), seconds=5)
            asked = [each["query"] for each in server.queries[sent:]]
            (place,) = [place for place, each in enumerate(asked) if "other" in each]
            # None had to have its answer before.
            assert place <= SLOW_AT_ONCE


async def test_each_of_many_slow_namespaces_has_its_answer_in_its_turn(uneven):
    async with checking(uneven) as checks:
        for namespace in SLOW:
            checks.ask((namespace, "job"), [ASKED])
        for namespace in SLOW:
            found = await until(lambda n=namespace: checks.answers((n, "job")).get(ASKED), 70)
            assert found.state is AnswerState.UNKNOWN
            assert "no complete answer within 10 s" in found.message


async def test_a_source_is_asked_few_questions_at_a_time_and_each_namespace_has_one_of_a_kind(
    server, uneven
):
    async with checking(uneven) as checks:
        for number in range(5):
            for namespace in SLOW:
                checks.ask((namespace, f"job-{number}"), [ASKED])
        await asyncio.sleep(200)
    assert server.most_at_once <= QUICK_AT_ONCE + SLOW_AT_ONCE
    assert server.most_of_one_query <= 2


async def test_an_answer_that_takes_longer_than_a_second_counts_and_so_does_the_next_quick_one(
    server, tmp_path
):
    server.delay_seconds = 3
    async with checking(source(tmp_path, "web", server.url)) as checks:
        assert (await answer(checks, query())).state is AnswerState.PASS
        # It is known to be slow, so it is asked once only.
        later = query(since=T0.replace(hour=1))
        sent = len(server.got)
        assert (await answer(checks, later, seconds=4)).state is AnswerState.PASS
        assert len(server.got) - sent == 1
        server.delay_seconds = 0
        assert (await answer(checks, query(), seconds=1)).state is AnswerState.PASS


async def test_what_a_job_no_longer_asks_is_forgotten_and_never_answers_a_later_question(
    server, tmp_path
):
    async with checking(source(tmp_path, "web", server.url)) as checks:
        await answer(checks, query())
        later = query(since=T0.replace(hour=1))
        server.delay_seconds = 5
        checks.ask(KEY, [later])
        assert checks.answers(KEY) == {}
        checks.ask(KEY, [later])
        await until(lambda: checks.answers(KEY))
        assert list(checks.answers(KEY)) == [later]
        checks.ask(KEY, [query(path=f"/{number}") for number in range(50)])
        assert len(checks.answers(KEY)) <= 4
        checks.forget(KEY)
        await asyncio.sleep(60)
        assert len(checks) == 0


async def test_a_job_that_changes_its_question_all_the_time_has_one_that_waits(server, tmp_path):
    """Only the newest question is asked, so neither the line nor the source has many of them."""
    server.delay_seconds = 5
    server.text = '{"data": {"resultType": "scalar", "result": [1, "7"]}}'
    async with checking(source(tmp_path, "prom", server.url, queries={"q": "up"})) as checks:
        for number in range(500):
            asked = query("prom", query="q", above=number / 1000)
            checks.ask(KEY, [asked])
            await asyncio.sleep(0.01)
        found = await until(lambda: checks.answers(KEY).get(asked), 30)
        assert found.state is AnswerState.PASS
        await asyncio.sleep(60)
    assert len(server.paths) <= 3


async def test_an_error_of_the_program_is_the_answer_of_one_question(tmp_path, server, monkeypatch):
    send = Outbound.send

    async def failing(self, endpoint, request):
        if endpoint.url_file.endswith("broken.url"):
            raise TypeError("https://host/secret")
        return await send(self, endpoint, request)

    monkeypatch.setattr(Outbound, "send", failing)
    broken = source(tmp_path, "broken", server.url)
    async with checking(broken, source(tmp_path, "web", server.url)) as checks:
        found = await answer(checks, query("broken"))
        assert found.state == AnswerState.UNKNOWN
        assert "TypeError" in found.message
        assert "secret" not in found.message
        other = await answer(checks, query("web"), ("team-b", "patch"))
        assert other.state != AnswerState.UNKNOWN
