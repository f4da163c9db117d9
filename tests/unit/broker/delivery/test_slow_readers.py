"""Groups that read from far back are switched off, when that is asked for."""

import pytest

from rmq.broker.delivery.slow_readers import SlowReaders
from rmq.broker.groups.configs import GroupTable
from rmq.broker.settings import BrokerSettings
from rmq.testing.simloop import run
from rmq.testing.simworld import Simulation


@pytest.mark.parametrize("asked_for", [True, False])
def test_a_group_that_was_further_back_than_the_limit_is_switched_off(asked_for: bool) -> None:
    async def main() -> None:
        settings = BrokerSettings(disable_consume_if_consumer_read_slowly=asked_for, consumer_fallbehind_threshold=1000)
        groups = GroupTable(Simulation(1).node("a").world, settings, "/c/subscriptionGroup.json")
        readers = SlowReaders(settings, groups)
        for group in ("at the limit", "beyond", "caught up"):
            groups.find(group)
        readers.read("at the limit", "T", 0, 1000)
        readers.read("beyond", "T", 0, 10)
        readers.read("beyond", "T", 1, 1001)
        readers.read("caught up", "T", 0, 5000)
        readers.read("caught up", "T", 0, 0)
        readers.judge()
        off = [config.group_name for config in groups.all() if not config.consume_enable]
        assert off == (["beyond"] if asked_for else [])

        config = groups.get("beyond")
        assert config is not None
        config.consume_enable = True
        readers.judge()  # nothing was read since: what was judged once is forgotten
        assert config.consume_enable
        await groups.file.flush()

    run(main())
