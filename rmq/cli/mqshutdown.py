"""``mqshutdown namesrv|broker``: stop the daemons of this machine, by their pid files.

A pid file is believed only when the process it names runs our daemon. Nothing is searched by name in the process list.
"""

from __future__ import annotations

import os
import select
import signal
import sys

import click

from rmq.cli.command import CONTEXT, FAILED, invoke, version_option
from rmq.cli.daemon import pid_of
from rmq.runtime.world import World

__all__ = ["main"]

#: Seconds that a daemon has for a clean stop.
STOP_SECONDS = 30.0


@click.command(context_settings=CONTEXT)
@version_option
@click.argument("what", type=click.Choice(["namesrv", "broker"]))
@click.option("-c", "--configFile", "config", metavar="FILE", help="The settings the daemon was started with.")
@click.option("-s", "--store", metavar="DIR", help="The broker's storePathRootDir, or the folder of kvConfig.json.")
def command(what: str, config: str | None, store: str | None) -> int:
    """Stop the nameservers or the broker that were started with these settings; the default ones without -c."""
    program = f"mq{what}"
    folder = store or _folder(what, config)
    files = [name for name in _names(folder) if name.startswith(what) and name.endswith(".pid")]
    running = [pid for name in files if (pid := pid_of(os.path.join(folder, name), program)) is not None]
    if not running:
        click.echo(f"No {program} running (no pid file of one in {folder}).", err=True)
        return FAILED
    failed = 0
    for pid in running:
        click.echo(f"The {program}({pid}) is running...")
        os.kill(pid, signal.SIGTERM)
        click.echo(f"Send shutdown request to {program}({pid}) OK")
        if not _ended(pid):
            click.echo(f"{program}({pid}) did not end within {STOP_SECONDS:g} s", err=True)
            failed = FAILED
    return failed


def _folder(what: str, config: str | None) -> str:
    if what == "broker":
        from rmq.broker.settings import BrokerSettings

        broker = BrokerSettings.from_sources(file=config, env=os.environ)
        broker.settle(World.real().identity)
        return broker.store_path_root_dir
    from rmq.namesrv.settings import NamesrvSettings, expand

    settings = NamesrvSettings.from_sources(file=config, env=os.environ)
    return os.path.dirname(expand(settings.kv_config_path)) or "."


def _names(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def _ended(pid: int) -> bool:
    try:
        process = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        return bool(select.select([process], [], [], STOP_SECONDS)[0])
    finally:
        os.close(process)


def main() -> None:
    sys.exit(invoke(command, "mqshutdown"))


if __name__ == "__main__":
    main()
