"""docs/sdk.md says what the SDK takes: every setting with its default, and Java's names of them."""

from __future__ import annotations

import re
from dataclasses import fields
from enum import Enum

import pytest

from rmq.client.settings import (
    ClientSettings,
    ConsumerSettings,
    LitePullConsumerSettings,
    ProducerSettings,
    PullConsumerSettings,
    PushConsumerSettings,
    ScheduledPullConsumerSettings,
    TransactionProducerSettings,
)
from tests.support.daemons import ROOT

PAGE = (ROOT / "docs/sdk.md").read_text()
TABLES = {
    "Every client": ClientSettings,
    "Producers": ProducerSettings,
    "Transaction producers": TransactionProducerSettings,
    "All consumers": ConsumerSettings,
    "Push consumers": PushConsumerSettings,
    "Lite pull consumers": LitePullConsumerSettings,
    "Pull consumers": PullConsumerSettings,
    "Scheduled pull consumers": ScheduledPullConsumerSettings,
}


def defaults(kind: type[ClientSettings]) -> dict[str, str]:
    return {field.name: shown(field.default) for field in fields(kind)}


def shown(value: object) -> str:
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, frozenset):
        return ", ".join(map(str, sorted(value)))
    if isinstance(value, float):
        return f"{value:g} s"
    return "" if value in (None, ()) else str(value)


def rows(title: str) -> dict[str, str]:
    table = PAGE.partition(f"\n| {title} | Default | |\n")[2].partition("\n\n")[0]
    return dict(re.findall(r"^\| `(\w+)` \| (.*?) ?\| .+ \|$", table, re.MULTILINE))


def test_every_setting_is_there_with_its_default() -> None:
    for title, kind in TABLES.items():
        assert (found := rows(title)), title
        assert found.items() <= defaults(kind).items(), title
    for kind, titles in (
        (TransactionProducerSettings, ["Every client", "Producers", "Transaction producers"]),
        (PushConsumerSettings, ["Every client", "All consumers", "Push consumers"]),
        (PullConsumerSettings, ["Every client", "All consumers", "Push consumers", "Pull consumers"]),
        (LitePullConsumerSettings, ["Every client", "All consumers", "Lite pull consumers"]),
    ):
        known = {name for title in titles for name in rows(title)}
        assert defaults(kind).keys() <= known


#: Java's clients as Settings.java beside the recorded files calls them.
JAVA = {
    "producer": ProducerSettings,
    "transaction": TransactionProducerSettings,
    "push": PushConsumerSettings,
    "pull": PullConsumerSettings,
    "lite": LitePullConsumerSettings,
}
#: All pulls of a lite pull consumer wait at the broker: what limits the others limits none.
WITHOUT_USE = {("lite", "consumerPullTimeoutMillis")}


def javas(text: str) -> str:
    """A default of ours as Java would say it: times in milliseconds."""
    return text if not text.endswith(" s") else f"{float(text[:-2]) * 1000:g}"


@pytest.mark.parametrize("release", ["4.9.4", "5.3.3"])
def test_every_setting_of_javas_is_there_with_its_default_or_said_to_differ(release: str) -> None:
    table = PAGE.partition("\n### Java's names\n")[2]
    cells = re.findall(r"^\| (\w+) \| (\S+) \| ?(.*?) ?\|$", table, re.MULTILINE)
    apart = {java: (here, why) for java, here, why in cells}
    recorded = (ROOT / f"tests/golden/client/settings-{release}.txt").read_text().splitlines()
    assert len(recorded) > 150
    for line in recorded:
        client, java, default = line.split(" ", 2)
        if (kind := JAVA.get(client)) is None or (client, java) in WITHOUT_USE:
            continue
        known = defaults(kind)
        here, why = apart.get(java, (None, ""))
        if here == "–":
            assert why, f"no reason: {line}"
            continue
        name = here.strip("`") if here else next((one for one in known if one.replace("_", "") == java.lower()), "")
        assert name in known, line
        ours = known[name].lower()
        said = {"allocatemessagequeueaveragely": "avg", "null": "", "hashset": ""}.get(default.lower(), default.lower())
        assert ours in (said, javas(said)) or javas(ours) == said or why, f"{line}: {ours} here"
