"""What waits in our store while a Java broker has it: kept, delivered by nobody, and delivered when ours goes on."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.support.interop import Scene, fresh, until
from tests.support.peers import Client, start_cluster

TIMED = sorted(f"timed-{number}" for number in range(5))
#: Due after the timed ones, which wait for ten seconds.
LEVEL = 4
LEVELS = {"messageDelayLevel": "1s 5s 10s 15s"}


def test_java_keeps_what_waits_for_a_time_of_its_own(clients: Callable[[str, str], Client], tmp_path: Path) -> None:
    paths = {
        "storePathRootDir": str(tmp_path / "store"),
        "storePathCommitLog": str(tmp_path / "store/commitlog"),
        **LEVELS,
    }
    client, reader = clients("java-4.9.8", "tested"), clients("java-4.9.8", "reader")
    topic = fresh("exchanged-delay")
    with start_cluster("ours", properties=paths) as ours:
        reader.call("topic", namesrv=ours.namesrv, topic=topic, queues=4)
        for key, how in [
            *((key, {"properties": {"TIMER_DELAY_MS": "10000"}}) for key in TIMED),
            ("level", {"level": LEVEL}),
        ]:
            client.call("delayed", namesrv=ours.namesrv, topic=topic, key=key, **how)
        ours.brokers[0].daemon.stop()
    with start_cluster("java-4.9.4", properties=paths, our_namesrv=True) as java:
        scene = Scene(java, client, reader)
        # Java delivers what waits for a level, and by then the times of the others are over.
        assert [row.key for row in scene.read(topic, 1)] == ["level"]
        assert sorted(row.key for row in scene.read("rmq_sys_wheel_timer", 5)) == TIMED
        java.brokers[0].daemon.stop()
    with start_cluster("ours", properties=paths) as ours:
        scene = Scene(ours, client, reader)
        reader.call("route", namesrv=ours.namesrv, topic=topic)
        wanted = {"level", *TIMED}
        # A Java broker that had to be killed may not have noted that it has delivered the level.
        assert until(lambda: {row.key for row in scene.read(topic, 6)}, lambda keys: keys == wanted) == wanted
