"""The HTTP listener of probes and metrics against peers that mean no good."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

import pytest

from rmq.namesrv.app import NamesrvApp
from rmq.namesrv.settings import NamesrvSettings
from rmq.protocol.errors import ConfigError
from rmq.remoting import health_http
from rmq.remoting.health_http import Answer, HttpListener
from rmq.runtime.world import World
from rmq.testing.cluster import Cluster
from tests.support.http_get import fetch, raw


async def hello(query: Mapping[str, str]) -> Answer:
    return Answer(200, f"hello {query.get('who', 'you')}\n".encode())


async def broken(query: Mapping[str, str]) -> Answer:
    raise RuntimeError("inside")


@pytest.fixture
async def listener() -> AsyncIterator[HttpListener]:
    made = HttpListener(World.real(), {"/hello": hello, "/broken": broken}, "test")
    made.where = await made.start("127.0.0.1", 0)  # type: ignore[attr-defined]
    yield made
    await made.stop()


def at(listener: HttpListener) -> tuple[str, int]:
    where: tuple[str, int] = listener.where  # type: ignore[attr-defined]
    return where


async def test_pages(listener: HttpListener, caplog: pytest.LogCaptureFixture) -> None:
    assert await fetch(at(listener), "/hello") == (200, "hello you\n")
    assert await fetch(at(listener), "/hello?who=a%20b&who=me") == (200, "hello me\n")
    assert (await fetch(at(listener), "/hello/"))[0] == 404
    assert await fetch(at(listener), "/broken") == (500, "internal error; the log says more\n")
    assert "a page failed" in caplog.text
    head = await raw(at(listener), b"HEAD /hello HTTP/1.0\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 OK\r\n")
    assert head.endswith(b"\r\n\r\n")


@pytest.mark.parametrize(
    ("data", "status"),
    [
        (b"POST /hello HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", b"405"),
        (b"DELETE / HTTP/1.1\r\n\r\n", b"405"),
        (b"GET /hello\r\n\r\n", b"400"),
        (b"\x16\x03\x01\x02\x00\r\n\r\n", b"400"),
        (b"\x00\x00\x00\x40{}\r\n\r\n", b"400"),
        (b"GET /" + b"a" * 9_000, b"431"),
        (b"GET /hello?" + b"a=b&" * 200 + b" HTTP/1.1\r\n\r\n", b"400"),
        (b"GET /hello\xff\xfe HTTP/1.1\r\n\r\n", b"404"),
    ],
)
async def test_what_is_no_request_for_a_page(listener: HttpListener, data: bytes, status: bytes) -> None:
    answer = await raw(at(listener), data)
    assert answer.split(b" ")[1] == status
    assert await fetch(at(listener), "/hello") == (200, "hello you\n")


async def test_slow_and_many_peers(listener: HttpListener, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health_http, "_ASK_SECONDS", 0.05)
    # Who does not finish asking is cut off.
    assert await raw(at(listener), b"GET /hel") == b""
    monkeypatch.setattr(health_http, "_ASK_SECONDS", 60.0)
    monkeypatch.setattr(health_http, "_CONNECTIONS", 3)
    idle = [await asyncio.open_connection(*at(listener)) for _ in range(3)]
    while len(listener._open) < 3:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert await raw(at(listener), b"GET /hello HTTP/1.1\r\n\r\n") == b""
    idle.pop()[1].close()
    while len(listener._open) == 3:  # noqa: ASYNC110
        await asyncio.sleep(0)
    assert await fetch(at(listener), "/hello") == (200, "hello you\n")
    for _, writer in idle:
        writer.close()


async def test_stop_cuts_what_is_under_way() -> None:
    begun = asyncio.Event()

    async def never(query: Mapping[str, str]) -> Answer:
        begun.set()
        await asyncio.Event().wait()
        raise AssertionError

    listener = HttpListener(World.real(), {"/never": never}, "test")
    where = await listener.start("127.0.0.1", 0)
    asking = asyncio.create_task(raw(where, b"GET /never HTTP/1.1\r\n\r\n"))
    await begun.wait()
    await listener.stop()
    assert await asking == b""


async def test_the_nameserver_has_them_too(tmp_path: Path) -> None:
    values = {
        "bindAddress": "127.0.0.1",
        "listenPort": "0",
        "kvConfigPath": str(tmp_path / "kv.json"),
        "configStorePath": str(tmp_path / "n.properties"),
        "metricsExporterType": "PROM",
        "metricsPromExporterPort": "0",
    }
    async with NamesrvApp(World.real(), NamesrvSettings.from_sources(overrides=values)) as app:
        where = app.observer.address
        assert where is not None
        assert await fetch(where, "/health/ready") == (200, "ready\n")
        status, text = await fetch(where, "/metrics")
        assert status == 200
        assert 'rmq_namesrv_topics{node_type="namesrv"} 0\n' in text
        assert 'rmq_loop_lag_seconds{node_type="namesrv"}' in text
        taken = NamesrvSettings.from_sources(overrides={**values, "metricsPromExporterPort": str(where[1])})
        with pytest.raises(
            ConfigError, match=r"metrics cannot be served on 127\.0\.0\.1:\d+: .*metricsPromExporterPort"
        ):
            await NamesrvApp(World.real(), taken).start()
        other = NamesrvSettings.from_sources(overrides={**values, "metricsExporterType": "OTLP_GRPC"})
        with pytest.raises(ConfigError, match="metricsExporterType='OTLP_GRPC': must be DISABLE or PROM"):
            await NamesrvApp(World.real(), other).start()


async def test_metrics_are_for_who_has_the_token_and_stay_on_the_machine(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    token = tmp_path / "token"
    values = {
        "bindAddress": "", "listenPort": "0", "kvConfigPath": str(tmp_path / "kv.json"),
        "configStorePath": str(tmp_path / "n.properties"), "metricsExporterType": "PROM",
        "metricsPromExporterPort": "0", "metricsTokenFile": str(token),
    }  # fmt: skip

    def app(**more: str) -> NamesrvApp:
        return NamesrvApp(World.real(), NamesrvSettings.from_sources(overrides={**values, **more}))

    for content, why in ((None, "it cannot be read: No such file"), (b"\n", "it is empty")):
        if content is not None:
            token.write_bytes(content)
        with pytest.raises(ConfigError, match=f"metricsTokenFile=.*{why}"):
            await app().start()
    token.write_bytes(b"canary-one\n")
    async with app() as served:
        where = served.observer.address
        assert where is not None
        assert where[0] == "127.0.0.1"
        for path in ("/health/live", "/health/ready"):
            assert (await fetch(where, path))[0] == 200
        wrong = (
            "Bearer canary-on",
            "canary-one",
            "Basic canary-one",
            "",
            "Bearer wrong\r\nAuthorization: Bearer canary-one",
        )
        for fields in ((), *((f"Authorization: {given}",) for given in wrong)):
            assert (await fetch(where, "/metrics", *fields))[0] == 401, fields
        answer = await raw(where, b"GET /metrics HTTP/1.1\r\n\r\n")
        assert b"\r\nWWW-Authenticate: Bearer\r\n" in answer
        assert (await fetch(where, "/metrics", "AUTHORIZATION:  bearer canary-one "))[0] == 200
        token.write_bytes(b"canary-two")
        assert (await fetch(where, "/metrics", "Authorization: Bearer canary-one"))[0] == 401
        assert (await fetch(where, "/metrics", "Authorization: Bearer canary-two"))[0] == 200
        token.unlink()
        assert (await fetch(where, "/metrics", "Authorization: Bearer canary-two"))[0] == 503
        assert "canary" not in served.settings.dump() + caplog.text
    assert "whoever reaches" not in caplog.text
    async with app(metricsTokenFile="", metricsPromExporterHost="0.0.0.0") as served:
        assert (await fetch(("127.0.0.1", (served.observer.address or ("", 0))[1]), "/metrics"))[0] == 200
    assert "metrics are told to whoever reaches 0.0.0.0:" in caplog.text


async def test_the_nameserver_counts_brokers(tmp_path: Path) -> None:
    async with Cluster(tmp_path, brokers=2) as cluster:
        app = cluster.namesrvs[0]
        from rmq.namesrv.metrics import NamesrvMetrics

        _, families = await NamesrvMetrics(app.routes, lambda: 7, app._server.unread, {"idle": 3}).page({})
        found = {family.name: list(family.samples) for family in families}
        assert found["rmq_namesrv_brokers"] == [("", (("cluster", "DefaultCluster"),), 2)]
        assert found["rmq_connections"] == [("", (), 7)]
        assert ("", (("reason", "idle"),), 3) in found["rmq_connections_closed_total"]
        assert found["rmq_unread_bytes"] == found["rmq_waiting_requests"] == [("", (), 0)]
