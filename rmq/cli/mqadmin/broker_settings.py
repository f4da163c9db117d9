"""getBrokerConfig, updateBrokerConfig (mqadmin.md B.1)."""

from __future__ import annotations

import difflib
from collections.abc import Iterator

import click

from rmq.cli.mqadmin.absent import miss_absent
from rmq.cli.mqadmin.failures import NotFound, undone
from rmq.cli.mqadmin.output import complain
from rmq.cli.mqadmin.session import AdminClient, Output, admin_command, broker_or_cluster, masters_of, one_of

__all__ = ["get_broker_config", "update_broker_config"]


@admin_command("getBrokerConfig", broker_or_cluster)
async def get_broker_config(admin: AdminClient, out: Output, broker: str | None, cluster: str | None) -> int:
    """The settings of a broker, or of every broker of a cluster: each master, then its slaves."""
    one_of(broker, cluster)
    if cluster is not None:
        await miss_absent(admin, out)
    titles = {broker: broker} if broker is not None else await _titles(admin, cluster or "")
    answers = await admin.broker_settings(list(titles))
    if not answers.found:
        answers.whole()
    out.lacks(answers)

    def classic() -> Iterator[str]:
        for address, settings in answers.found.items():
            yield f"============{titles[address]}============"
            for key, value in settings.items():
                yield f"{key:<50}=  {value}"
            yield ""

    if out.form == "table":
        rows = [{"broker": address, "key": key, "value": value}
                for address, settings in answers.found.items() for key, value in sorted(settings.items())]  # fmt: skip
        return out.rows(rows, classic)
    return out.value(answers.found, classic)


async def _titles(admin: AdminClient, cluster: str) -> dict[str, str]:
    """By address, how Java's tool heads each broker."""
    masters = set((await admin.masters(cluster)).values())
    brokers = await admin.brokers(cluster)
    titles: dict[str, str] = {}
    master = ""
    for address in brokers:
        if address in masters:
            master = address
            titles[address] = f"Master: {address}"
        else:
            titles[address] = f"My Master: {master}=====Slave: {address}"
    return titles


@admin_command(
    "updateBrokerConfig",
    broker_or_cluster,
    click.option("-k", "--key", "key", required=True, metavar="KEY", help="The setting."),
    click.option("-v", "--value", "value", required=True, metavar="TEXT", help="Its value."),
    click.option("-a", "--updateAllBroker", "every", type=bool, metavar="BOOL", default="false",
                 help="With -c: slaves as well (true|false)."),
)  # fmt: skip
async def update_broker_config(
    admin: AdminClient, out: Output, broker: str | None, cluster: str | None, key: str, value: str, every: bool
) -> int:
    """Change a setting of a broker, or of every master of a cluster, while it runs."""
    targets = await masters_of(admin, out, broker, cluster)
    if every and cluster is not None:
        targets = await admin.brokers(cluster)
    told = await admin.broker_settings(targets)
    if not told.found:
        told.whole()
    before = told.found
    names = {name for settings in before.values() for name in settings}
    if key not in names:
        near = difflib.get_close_matches(key, names, 1)
        meant = f": did you mean {near[0]}?" if near else ""
        raise NotFound(f"{', '.join(before)} has no setting {key}{meant} Nothing was changed.")
    changed = await admin.update_broker_config([*before], {key: value})
    if failed := told.failed | changed.failed:
        raise undone(f"change {key}", changed.found, failed)
    after = await admin.broker_settings(targets)
    if cluster is not None and not every:
        for address, settings in after.found.items():
            if settings.get("enableDLegerCommitLog") == "true":
                of = settings.get("brokerClusterName", "CLUSTER")
                complain(
                    f"{address} is of a group that elects its master, and the other members keep what they have: "
                    f"-c {of} -a true changes all"
                )
    for address, settings in after.found.items():
        if (now := settings.get(key)) not in (value, None):
            complain(f"{address} took it without a word, and {key} is {now} there: the value means nothing to it")
    return out.done(
        {"key": key, "value": value, "brokers": targets,
         "was": {address: settings.get(key) for address, settings in before.items()}},
        [f"update broker config success, {address}" for address in targets],
    )  # fmt: skip
