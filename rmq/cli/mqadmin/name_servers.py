"""updateKvConfig, deleteKvConfig, wipeWritePerm, addWritePerm, getNamesrvConfig, updateNamesrvConfig."""

from __future__ import annotations

from collections.abc import Iterator

import click

from rmq.cli.mqadmin.failures import NotFound, undone
from rmq.cli.mqadmin.session import AdminClient, Output, admin_command
from rmq.client.admin import Answers

__all__ = [
    "add_write_perm",
    "delete_kv_config",
    "get_namesrv_config",
    "update_kv_config",
    "update_namesrv_config",
    "wipe_write_perm",
]

_namespace = click.option("-s", "--namespace", "namespace", required=True, metavar="NAME", help="The namespace.")
_key = click.option("-k", "--key", "key", required=True, metavar="KEY", help="The key.")
_value = click.option("-v", "--value", "value", required=True, metavar="TEXT", help="Its value.")
_broker = click.option("-b", "--brokerName", "broker", required=True, metavar="NAME", help="The broker's name.")


def whole(answers: Answers[None], what: str) -> None:
    """:raises RMQError: what servers said, when none has done it. :raises Partial: some have."""
    if answers.failed:
        raise undone(what, answers.found, answers.failed)


@admin_command("updateKvConfig", _namespace, _key, _value)
async def update_kv_config(admin: AdminClient, out: Output, namespace: str, key: str, value: str) -> int:
    """Set a key-value entry on every name server."""
    whole(await admin.put_kv_config(namespace, key, value), f"set {key}")
    return out.done(
        {"namespace": namespace, "key": key, "value": value}, ["create or update kv config to namespace success."]
    )


@admin_command("deleteKvConfig", _namespace, _key)
async def delete_kv_config(admin: AdminClient, out: Output, namespace: str, key: str) -> int:
    """Delete a key-value entry on every name server."""
    if await admin.kv_config(namespace, key) is None:
        raise NotFound(f"the name servers have no entry {key} in {namespace}: nothing was deleted")
    whole(await admin.delete_kv_config(namespace, key), f"delete {key}")
    return out.done({"namespace": namespace, "key": key}, ["delete kv config from namespace success."])


@admin_command("wipeWritePerm", _broker)
async def wipe_write_perm(admin: AdminClient, out: Output, broker: str) -> int:
    """Take the right to write from every topic of a broker, at the name servers: producers leave it."""
    await _known(admin, broker)
    return await _permission(out, broker, "wipe", await admin.wipe_write_perm_of_broker(broker))


@admin_command("addWritePerm", _broker)
async def add_write_perm(admin: AdminClient, out: Output, broker: str) -> int:
    """Give the right to write back to every topic of a broker."""
    await _known(admin, broker)
    return await _permission(out, broker, "add", await admin.add_write_perm_of_broker(broker))


async def _known(admin: AdminClient, broker: str) -> None:
    names = (await admin.cluster_info()).broker_addr_table
    if broker not in names:
        raise NotFound(
            f"no broker has the name {broker} (known: {', '.join(sorted(names)) or 'none'}): nothing changed"
        )


async def _permission(out: Output, broker: str, verb: str, answers: Answers[int]) -> int:
    out.lacks(answers)
    if not answers.found:
        answers.whole()
    return out.done(
        {"brokerName": broker, "topics": answers.found},
        [
            f"{verb} write perm of broker[{broker}] in name server[{address}] OK, {count}"
            for address, count in answers.found.items()
        ],
    )


@admin_command("getNamesrvConfig")
async def get_namesrv_config(admin: AdminClient, out: Output) -> int:
    """The settings of every name server."""
    answers = await admin.name_server_config()
    if not answers.found:
        answers.whole()
    out.lacks(answers)

    def classic() -> Iterator[str]:
        for address, settings in answers.found.items():
            yield f"============{address}============"
            for key, value in settings.items():
                yield f"{key:<50}=  {value}"

    return out.value(answers.found, classic) if out.form != "table" else out.rows(
        [{"nameServer": address, "key": key, "value": value}
         for address, settings in answers.found.items() for key, value in sorted(settings.items())],
        classic,
    )  # fmt: skip


@admin_command("updateNamesrvConfig", _key, _value)
async def update_namesrv_config(admin: AdminClient, out: Output, key: str, value: str) -> int:
    """Change a setting of every name server while it runs."""
    known = await admin.name_server_config()
    if known.found and not any(key in settings for settings in known.found.values()):
        raise NotFound(f"no name server has a setting {key}: nothing changed")
    whole(await admin.update_name_server_config({key: value}), f"change {key}")
    return out.done({"key": key, "value": value}, ["update name server config success!", f"{key} : {value}"])
