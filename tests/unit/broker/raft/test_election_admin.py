"""What whoever runs a group asks its members: how it is, and to have another one lead."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from rmq.aio import AdminClient, Producer
from rmq.client.message import Message
from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import NotFound, ResponseError
from rmq.raft.messages import VoteRequest
from tests.support.raft.brokers import GroupCluster
from tests.support.virtual import eventually, in_virtual_time


def number(name: str) -> int:
    return int(name[1:]) + 1


def address(cluster: GroupCluster, name: str) -> str:
    return f"{cluster.addresses[name]}:10911"


async def refused(
    admin: AdminClient, broker_id: int, member: str | None = None, cluster: str | None = None
) -> tuple[int, str]:
    with pytest.raises(ResponseError) as caught:
        await admin.elect_master("group", broker_id, cluster, member)
    return caught.value.code, str(caught.value)


@in_virtual_time
async def test_the_lead_is_given_to_a_member() -> None:
    async with GroupCluster(seed=1) as cluster, AdminClient(namesrv=cluster.namesrv_addr) as admin:
        old = await cluster.led_by()
        for heir in [name for name in cluster.names if name != old]:
            await eventually(lambda: cluster.leader())
            await asyncio.sleep(2)
            elected = await admin.elect_master("group", number(heir), "DefaultCluster")
            assert elected.address == address(cluster, heir)
            assert set(elected.brokers.values()) == {address(cluster, name) for name in cluster.names}
            assert elected.term == cluster.driver(heir).leads
            assert (await admin.group_leader("group"))[:] == (heir, address(cluster, heir))
            await eventually(lambda heir=heir: cluster.leader() == heir, 2)


@in_virtual_time
async def test_slow_disks_are_waited_for() -> None:
    """The one that leads has let go of the lead, and has not noted that yet: that is no failure."""
    cluster = GroupCluster(seed=7)
    cluster.slow = 0.1
    async with cluster, AdminClient(namesrv=cluster.namesrv_addr) as admin:
        await cluster.led_by()
        await asyncio.sleep(5)
        for heir in cluster.names * 3:
            if cluster.leader() != heir:
                assert (await admin.elect_master("group", number(heir))).address == address(cluster, heir)
                await eventually(lambda heir=heir: cluster.leader() == heir, 5)
                await asyncio.sleep(1)


@in_virtual_time
async def test_no_send_fails_when_the_lead_is_given_away() -> None:
    async with GroupCluster(seed=2) as cluster, AdminClient(namesrv=cluster.namesrv_addr) as admin:
        old = await cluster.led_by()
        heir = next(name for name in cluster.names if name != old)
        sent = []
        async with Producer("p", namesrv=cluster.namesrv_addr) as producer:

            async def send() -> None:
                for one in range(300):
                    sent.append((await producer.send(Message("Topic", b"%d" % one))).send_status.name)
                    await asyncio.sleep(0.01)

            sending = asyncio.create_task(send())
            await asyncio.sleep(1)
            await admin.elect_master("group", number(heir))
            await sending
        assert sent == ["SEND_OK"] * 300
        assert cluster.leader() == heir


@in_virtual_time
async def test_who_cannot_lead() -> None:
    async with GroupCluster(seed=3) as cluster, AdminClient(namesrv=cluster.namesrv_addr) as admin:
        leader = await cluster.led_by()
        heir, other = (name for name in cluster.names if name != leader)
        await asyncio.sleep(2)
        code, text = await refused(admin, 9)
        assert code == ResponseCode.CONTROLLER_BROKER_ID_INVALID
        assert "no member of group has the id 9: 1 is n0, 2 is n1, 3 is n2" in text
        code, text = await refused(admin, number(leader))
        assert (code, f"{leader} leads group already" in text) == (ResponseCode.CONTROLLER_MASTER_STILL_EXIST, True)
        code, text = await refused(admin, number(heir), cluster="another")
        assert code == ResponseCode.CONTROLLER_BROKER_METADATA_NOT_EXIST
        assert "of the cluster DefaultCluster, not of another" in text
        with pytest.raises(NotFound, match="no broker has the name away"):
            await admin.elect_master("away", 1)

        cluster.simulation.net.cut(cluster.addresses[leader], cluster.addresses[heir])
        await asyncio.sleep(2.5)
        code, text = await refused(admin, number(heir))
        assert (code, f"{heir} was not heard for" in text) == (ResponseCode.CONTROLLER_BROKER_NOT_ALIVE, True)
        cluster.simulation.net.heal()

        # It hears nothing, and it is not known yet: the lead comes back within the time of an election.
        await cluster.alike()
        leader = await cluster.led_by()
        heir, other = (name for name in cluster.names if name != leader)
        await asyncio.sleep(2)
        cluster.simulation.net.cut(cluster.addresses[leader], cluster.addresses[heir])
        code, text = await refused(admin, number(heir))
        assert code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
        assert f"{heir} has not taken the lead: it does not answer; {leader} leads, try again" in text
        await eventually(lambda: cluster.leader() == leader, 2)
        cluster.simulation.net.heal()
        await cluster.alike()

        # Nobody leads.
        for name in (heir, other):
            await cluster.kill(name)
        await eventually(lambda: cluster.leader() is None)
        await asyncio.sleep(2)
        with pytest.raises(NotFound, match="group has no leader: a majority"):
            await admin.elect_master("group", number(heir), None, address(cluster, leader))


@in_virtual_time
async def test_a_slow_group_is_waited_for() -> None:
    """Its elections take longer than other requests may."""
    async with GroupCluster(seed=9, settings={"raftElectionTimeout": "4000"}) as cluster:
        leader = await cluster.led_by()
        heir = next(name for name in cluster.names if name != leader)
        await asyncio.sleep(10)
        async with AdminClient(namesrv=cluster.namesrv_addr, mq_client_api_timeout=2.5) as admin:
            await admin.group_leader("group")
            cluster.simulation.net.cut(cluster.addresses[leader], cluster.addresses[heir])
            code, text = await refused(admin, number(heir))
        assert (code, f"{heir} has not taken the lead: it does not answer" in text) == (2012, True)


@in_virtual_time
async def test_who_has_just_lost_the_lead_has_none_to_give() -> None:
    """Its disk has not taken that yet; it said that there was an internal error."""
    async with GroupCluster(seed=9) as cluster, AdminClient(namesrv=cluster.namesrv_addr) as admin:
        leader = await cluster.led_by()
        heir, other = (name for name in cluster.names if name != leader)
        await asyncio.sleep(2)
        node = cluster.driver(leader).node
        assert node is not None
        cluster.driver(leader)._effects.do = lambda effects: None  # type: ignore[method-assign]
        request = VoteRequest(node.term + 1, other, node.path.last, pre=False, told=True)
        node.step(request, cluster.simulation.nodes[leader].clock.monotonic())
        assert cluster.driver(leader).leads is not None
        code, text = await refused(admin, number(heir), address(cluster, leader))
        assert (code, f"{leader} has no lead to give" in text) == (ResponseCode.CONTROLLER_MASTER_NOT_AVAILABLE, True)


@in_virtual_time
async def test_who_lacks_much_of_the_log_does_not_lead() -> None:
    async with GroupCluster(seed=4) as cluster, AdminClient(namesrv=cluster.namesrv_addr) as admin:
        leader = await cluster.led_by()
        heir = next(name for name in cluster.names if name != leader)
        await asyncio.sleep(2)
        async with Producer("p", namesrv=cluster.namesrv_addr) as producer:
            await producer.send(Message("Topic", b"x"))
            cluster.simulation.net.cut(cluster.addresses[leader], cluster.addresses[heir])
            for _ in range(12):
                await producer.send(Message("Topic", Random(1).randbytes(100_000)))
            code, text = await refused(admin, number(heir))
        assert code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
        assert f"{heir} lacks 12" in text
        assert "no more than 1048576 (haStatus)" in text


@in_virtual_time
async def test_who_has_lost_its_disk_does_not_lead_before_it_has_everything() -> None:
    async with GroupCluster(seed=8) as cluster, AdminClient(namesrv=cluster.namesrv_addr) as admin:
        leader = await cluster.led_by()
        wiped = next(name for name in cluster.names if name != leader)
        async with Producer("p", namesrv=cluster.namesrv_addr) as producer:
            for _ in range(40):
                await producer.send(Message("Topic", Random(1).randbytes(100_000)))
        await cluster.kill(wiped, disk=True)
        cluster.slow = 0.2
        await cluster.begin(wiped)
        node = cluster.driver(leader).node
        assert node is not None
        await eventually(lambda: not node.followers(0)[wiped].counted, 30)
        code, text = await refused(admin, number(wiped))
        assert code == ResponseCode.CONTROLLER_ELECT_MASTER_FAILED
        assert f"{wiped} has lost its disk, and is not counted before it has everything again" in text
        seen = (await admin.broker_ha_status(address(cluster, leader))).group
        assert seen is not None
        assert {one.id: one.counted for one in seen.members if one.id == wiped} == {wiped: False}
        await eventually(lambda: node.followers(0)[wiped].counted, 60)


@in_virtual_time
async def test_a_plain_broker_has_nothing_to_give() -> None:
    cluster = GroupCluster(seed=5)
    cluster.waits = True
    async with cluster, AdminClient(namesrv=cluster.namesrv_addr) as admin:
        await cluster.begin("n0", enableDLegerCommitLog="false")
        cluster.members.clear()
        with pytest.raises(NotFound, match="group is no group that elects its master"):
            await admin.elect_master("group", 2)


@in_virtual_time
async def test_a_file_that_javas_member_has_written_starts_one(caplog: pytest.LogCaptureFixture) -> None:
    """Request 25 has Java's broker write what it is at that time; the group says who is what."""
    cluster = GroupCluster(seed=7)
    cluster.waits = True
    async with cluster, AdminClient(namesrv=cluster.namesrv_addr) as admin:
        await cluster.begin("n0", brokerRole="SYNC_MASTER", brokerId="0")
        await cluster.begin("n1", brokerRole="SLAVE", brokerId="2", haAckSlaves="2")
        await cluster.begin("n2", brokerRole="SLAVE", brokerId="3")
        leader = await cluster.led_by()
        told = [record.getMessage() for record in caplog.records if "the group says" in record.getMessage()]
        assert told == [
            "brokerRole=SYNC_MASTER: without effect, since the group says who is the master",
            "brokerRole=SLAVE, brokerId=2, haAckSlaves=2: without effect, since the group says who is the master",
            "brokerRole=SLAVE, brokerId=3: without effect, since the group says who is the master",
        ]
        await eventually(lambda: cluster.members[leader].roles.role.leads)
        for name in cluster.names:
            is_what = ("SYNC_MASTER", "0") if name == leader else ("SLAVE", str(int(name[1:]) + 1))
            lines = (await admin.broker_config(address(cluster, name))).splitlines()
            assert [line for line in lines if line.startswith(("brokerRole=", "brokerId="))] == [
                f"brokerId={is_what[1]}",
                f"brokerRole={is_what[0]}",
            ]


@in_virtual_time
async def test_how_a_group_is() -> None:
    async with GroupCluster(seed=6, settings={"preferredLeaderId": "n2"}) as cluster:
        await eventually(lambda: cluster.leader() == "n2", 30)
        async with AdminClient(namesrv=cluster.namesrv_addr) as admin:
            async with Producer("p", namesrv=cluster.namesrv_addr) as producer:
                await producer.send(Message("Topic", Random(1).randbytes(200_000)))
            await cluster.alike()
            end = cluster.members["n2"].store.log.end
            status = await admin.broker_ha_status(address(cluster, "n2"))
            seen = status.group
            assert seen is not None
            assert (status.master, status.in_sync_slave_nums, len(status.ha_connection_info)) == (True, 2, 2)
            assert all(1000 < one.transferred_byte_in_second <= 2 * end for one in status.ha_connection_info)
            assert (seen.group, seen.me, seen.role, seen.leader, seen.preferred) == (
                "group",
                "n2",
                "leader",
                "n2",
                "n2",
            )
            assert (seen.term, seen.committed, seen.end) == (cluster.driver("n2").leads, end, end)
            assert seen.trouble is None
            members = {one.id: one for one in seen.members}
            assert [members["n0"].addr, members["n0"].broker] == [
                f"{cluster.addresses['n0']}:40911",
                address(cluster, "n0"),
            ]
            assert [(one.connected, one.in_sync, one.end, one.behind) for one in members.values()] == [
                (True, True, end, 0)
            ] * 2

            status = await admin.broker_ha_status(address(cluster, "n0"))
            assert 1000 < status.ha_client_runtime_info.transferred_byte_in_second <= end
            seen = status.group
            assert seen is not None
            assert (seen.me, seen.role, seen.leader) == ("n0", "follower", "n2")
            assert [(one.connected, one.behind) for one in seen.members] == [(True, None)] * 2

            figures = await admin.broker_runtime_stats(address(cluster, "n2"))
            assert {key: value for key, value in figures.items() if key.startswith("raft")} == {
                "raftGroup": "group", "raftMember": "n2", "raftRole": "leader", "raftTerm": str(seen.term),
                "raftLeader": "n2", "raftCommitOffset": str(end), "raftMembersConnected": "2 of 2",
            }  # fmt: skip
            assert (figures["brokerRole"], figures["slaveBehindBytes"]) == ("master", "0")

            for name in ("n0", "n1"):
                await cluster.kill(name)
            await asyncio.sleep(5)
            seen = (await admin.broker_ha_status(address(cluster, "n2"))).group
            assert seen is not None
            assert (seen.leader, seen.trouble) == (None, "the group has no leader")
            assert seen.role in ("follower", "candidate")
            assert [one.connected for one in seen.members] == [False, False]
