"""Live limits: what a connection, an address, an account and everybody together may ask for."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from rmq.auth.credentials import Credentials, Signer
from rmq.broker.delivery.holds import weight
from rmq.protocol import frame
from rmq.protocol.command import Command
from rmq.protocol.errors import ConnectionLost
from rmq.remoting.client import RemotingClient
from tests.support.accounts import SECRET
from tests.support.odd.campaign import Line
from tests.support.raw_peer import pull, send, subscribe
from tests.support.scenes.live import LiveScene, live

ACL = {"aclEnable": "true", "rocketmqHome": "/home"}


def another(s: LiveScene, host: str = "") -> RemotingClient:
    """One more client, on a machine of its own when that is named."""
    return RemotingClient(s.simulation.node(host).world if host else s.outside)


async def line(s: LiveScene) -> Line:
    host, port = s.addr.split(":")
    _, protocol = await s.outside.network.connect(Line, host, int(port))
    assert isinstance(protocol, Line)
    return protocol


async def comes_in(s: LiveScene, client: RemotingClient) -> bool:
    try:
        await client.request(s.addr, Command(38, ext={"consumerGroup": "none"}))
    except ConnectionLost:
        return False
    return True


@live("serverMaxConnections")
async def test_how_many_connections_there_are(s: LiveScene) -> None:
    async with another(s) as one, another(s) as two:
        assert await comes_in(s, one)
        await s.update(serverMaxConnections=2)
        assert not await comes_in(s, two)
        assert s.app.server.cut_off["connections"] == 1


@live("serverMaxConnectionsPerAddress")
async def test_how_many_of_one_address(s: LiveScene) -> None:
    async with another(s) as one, another(s) as two, another(s, "elsewhere") as three:
        assert await comes_in(s, one)
        await s.update(serverMaxConnectionsPerAddress=2)
        assert not await comes_in(s, two)
        assert await comes_in(s, three)
        await one.close()
        await asyncio.sleep(0.1)
        assert await comes_in(s, two)


@live("serverPartialFrameSeconds", "serverTlsHandshakeSeconds")
async def test_how_long_what_was_begun_may_take(s: LiveScene) -> None:
    """X05: a byte every few seconds keeps nobody's place."""

    async def lasts(first: bytes) -> float:
        slow = await line(s)
        slow.transport.write(first)
        loop = asyncio.get_running_loop()
        began = loop.time()
        while not slow.lost and loop.time() - began < 60:
            slow.transport.write(b"\0")
            await asyncio.sleep(1)
        return loop.time() - began

    begun = frame.encode(Command(28, body=b"x" * 1000))[:30]
    hello = b"\x16\x03\x01\x10\x00\x01\x00\x0f\xfc\x03\x03"
    for first in (begun, hello):
        assert 9 <= await lasts(first) <= 15
    await s.update(serverPartialFrameSeconds=3, serverTlsHandshakeSeconds=4)
    assert 3 <= await lasts(begun) <= 6
    assert 4 <= await lasts(hello) <= 7
    assert s.app.server.cut_off == {"unfinished": 2, "handshake": 2}


@live("maxTopics")
async def test_how_many_topics(s: LiveScene) -> None:
    assert await s.code(send("One")) == 0
    there = len(s.app.topics)
    await s.update(maxTopics=there)
    made = {"defaultTopic": "TBW102", "readQueueNums": "1", "writeQueueNums": "1", "perm": "6",
            "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false"}  # fmt: skip
    config = b'{"topicConfigList":[{"topicName":"Three","readQueueNums":1,"writeQueueNums":1,"perm":6}]}'
    for request in (
        send("Two"), send("%RETRY%anything"), Command(17, ext={**made, "topic": "Two"}), Command(18, body=config),
    ):  # fmt: skip
        answer = await s.tell(request)
        assert answer.code == 1, request
        assert "(maxTopics)" in (answer.remark or ""), request
    assert len(s.app.topics) == there
    # What is there is served and changed on.
    assert await s.code(send("One")) == await s.code(Command(17, ext={**made, "topic": "One"})) == 0


@live("maxGroups")
async def test_how_many_groups(s: LiveScene) -> None:
    assert await s.code(subscribe("G1")) == 0
    await s.update(maxGroups=len(s.app.groups.all()))
    assert (await s.tell(Command(200, body=b'{"groupName":"G2"}'))).code == 1
    assert (await s.tell(Command(225, body=b'{"groupConfigList":[{"groupName":"G2"}]}'))).code == 1
    await s.tell(subscribe("G2"))
    await s.tell(subscribe("CID_RMQ_SYS_any"))
    assert s.app.groups.get("G2") is s.app.groups.get("CID_RMQ_SYS_any") is None
    assert (await s.tell(Command(200, body=b'{"groupName":"G1","retryMaxTimes":3}'))).code == 0


@live("maxHeldPulls", "maxHeldPullsPerConnection")
async def test_how_many_pulls_wait(s: LiveScene) -> None:
    await s.tell(subscribe())
    await s.tell(send())

    async def held(count: int, client: RemotingClient) -> list[int]:
        """The codes of those of so many pulls that are answered at once."""
        asked = [asyncio.ensure_future(client.request(s.addr, pull(offset=1, hold_ms=5_000))) for _ in range(count)]
        done, waiting = await asyncio.wait(asked, timeout=1)
        for one in waiting:
            one.cancel()
        await client.close()
        await asyncio.sleep(0.1)
        return [one.result().code for one in done]

    assert await held(9, another(s)) == []
    await s.update(maxHeldPullsPerConnection=6)
    assert await held(9, another(s)) == [2, 2, 2]
    await s.update(maxHeldPulls=4)
    assert await held(9, another(s)) == [2] * 5


@live()
async def test_a_wait_with_a_long_expression_counts_for_many(s: LiveScene) -> None:
    """What is made of it is kept with it: a connection of a stranger had a gigabyte kept so."""
    long = "||".join(f"tag{number}" for number in range(1_500))
    each = weight(long)
    assert each > 20
    assert weight(None) == weight("TagA || TagB") == 1
    await s.tell(subscribe())
    await s.tell(send())
    pop = {"topic": "T", "consumerGroup": "G", "queueId": "0", "maxMsgNums": "1", "invisibleTime": "60000",
           "pollTime": "20000", "initMode": "1", "expType": "TAG"}  # fmt: skip
    pulls = {**(pull(offset=1, hold_ms=20_000).ext or {}), "sysFlag": "6"}
    for code, ext, name in ((11, pulls, "subscription"), (200050, pop, "exp")):

        async def waits(
            count: int, text: str, code: int = code, ext: Mapping[str, str | None] = ext, name: str = name
        ) -> int:
            """How many of so many requests with an expression wait."""
            client = another(s)
            fields = {**ext, name: text, "bornTime": str(s.outside.clock.now_ms())}
            tasks = [
                asyncio.ensure_future(client.request(s.addr, Command(code, ext=dict(fields)), 60)) for _ in range(count)
            ]
            done, waiting = await asyncio.wait(tasks, timeout=1)
            for one in waiting:
                one.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            await client.close()
            await asyncio.sleep(0.1)
            return count - len(done)

        await s.update(maxHeldPullsPerConnection=4_096, maxHeldPulls=100_000)
        assert await waits(30, "A") == 30
        await s.update(maxHeldPullsPerConnection=2 * each)
        assert await waits(30, long) == 2
        await s.update(maxHeldPullsPerConnection=1)
        assert await waits(3, long) == 1, "one may always wait"
        await s.update(maxHeldPullsPerConnection=1_000, maxHeldPulls=each + 1)
        assert await waits(30, long) == 2
        assert await waits(5, "A") == 5, "nothing is counted any more of those that are gone"
        await s.update(maxHeldPullsPerConnection=each + 1, maxHeldPulls=100_000)
        fields: dict[str, str | None] = {**ext, name: "A", "bornTime": str(s.outside.clock.now_ms())}
        light = asyncio.ensure_future(s.tell(Command(code, ext=dict(fields))))
        fields |= {name: long, "suspendTimeoutMillis": "2000", "pollTime": "2000"}
        for _ in range(3):  # on one connection, each when the time of the other is up
            fields["bornTime"] = str(s.outside.clock.now_ms())
            waited, refused = await asyncio.gather(*(s.tell(Command(code, ext=dict(fields))) for _ in range(2)))
            assert waited.code in (19, 210)
            assert refused.code in (2, 209)
        assert not light.done()
        assert (await light).code in (19, 210)


@live("maxNewTopicsPerHour")
async def test_how_many_topics_one_sender_makes(s: LiveScene) -> None:
    """X03: a flood of new topics."""

    async def made(client: RemotingClient, name: str, count: int) -> int:
        return sum([(await client.request(s.addr, send(f"{name}{n}"))).code == 0 for n in range(count)])

    assert await made(s.client, "a", 10) == 10
    await s.update(maxNewTopicsPerHour=6)
    assert await made(s.client, "b", 10) == 6
    answer = await s.tell(send("c"))
    assert answer.code == 2
    assert "(maxNewTopicsPerHour)" in (answer.remark or "")
    assert await s.code(send("b0")) == 0
    async with another(s, "elsewhere") as other:
        assert await made(other, "d", 10) == 6
    await asyncio.sleep(1_250)
    assert await made(s.client, "e", 10) == 2


async def codes(s: LiveScene, owner: RemotingClient, count: int, request: Command) -> list[int]:
    found = []
    for _ in range(count):
        fresh = Command(request.code, ext=dict(request.ext or {}), body=request.body)
        found.append((await owner.request(s.addr, fresh)).code)
    return found


async def at_once(s: LiveScene, client: RemotingClient, count: int, request: Command) -> list[int]:
    return [code for (code,) in await asyncio.gather(*[codes(s, client, 1, request) for _ in range(count)])]


def owner(s: LiveScene) -> RemotingClient:
    made = another(s)
    made.hooks.append(Signer(Credentials("owner-of-T", SECRET)))
    return made


@live("accountMaxRequestsPerSecond", **ACL)
async def test_how_much_an_account_asks(s: LiveScene) -> None:
    async with owner(s) as one:
        assert await at_once(s, one, 30, send()) == [0] * 30
        await s.update(accountMaxRequestsPerSecond=10)
        assert sorted(await at_once(s, one, 15, send())) == [0] * 10 + [2] * 5
        # What keeps a client its place is refused to who goes on all the same.
        assert await at_once(s, one, 10, subscribe()) == [0] * 10
        assert 2 in await at_once(s, one, 10, subscribe())
        assert await s.code(send()) == 0, "the operator is not bounded"
        await asyncio.sleep(3)
        answers = await at_once(s, one, 11, pull())
        assert answers.count(2) == 1, answers
        assert s.app.access is not None
        assert s.app.access.guard.refused["quota"] >= 7


@live("accountMaxBytesPerSecond", **ACL)
async def test_how_much_an_account_sends_and_gets(s: LiveScene) -> None:
    async with owner(s) as one:
        big = send(body=b"x" * 10_000)
        assert await codes(s, one, 10, big) == [0] * 10
        await s.update(accountMaxBytesPerSecond=20_000)
        assert await codes(s, one, 4, big) == [0, 0, 2, 2]
        await asyncio.sleep(2)
        # What it is sent counts, too: it is known when it is sent.
        assert await codes(s, one, 2, pull()) == [0, 2]
        await asyncio.sleep(1)
        assert await codes(s, one, 1, pull()) == [2]
        await asyncio.sleep(6)
        assert await codes(s, one, 1, pull()) == [0]


@live("accountMaxConnections", **ACL)
async def test_how_many_connections_an_account_has(s: LiveScene) -> None:
    async with owner(s) as one, owner(s) as two, owner(s) as three:
        for client in (one, two):
            assert await codes(s, client, 1, send()) == [0]
        await s.update(accountMaxConnections=2)
        for client in (one, two):
            assert await codes(s, client, 1, send()) == [0]
        assert await codes(s, three, 1, send()) == [2]
        await one.close()
        await asyncio.sleep(0.1)
        assert await codes(s, three, 1, send()) == [0]
