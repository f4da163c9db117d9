"""``mqnamesrv``: the nameserver daemon, with the flags of Java's."""

from __future__ import annotations

import os
import sys

import click

from rmq.cli.command import CONTEXT, invoke, version_option
from rmq.cli.daemon import Early, exposure, serve
from rmq.namesrv.app import NamesrvApp
from rmq.namesrv.settings import NamesrvSettings, expand
from rmq.runtime.world import World

__all__ = ["main", "pid_file"]


def pid_file(settings: NamesrvSettings, port: int) -> str:
    """Beside the key-value settings; the port is part of the name: one machine may run several nameservers."""
    return os.path.join(os.path.dirname(expand(settings.kv_config_path)) or ".", f"namesrv-{port}.pid")


@click.command(context_settings=CONTEXT)
@version_option
@click.option("-c", "--configFile", "config", metavar="FILE", help="Settings, .properties or YAML.")
@click.option("-n", "--namesrvAddr", "namesrv", metavar="LIST", help="Accepted as Java does; a nameserver needs none.")
@click.option("-p", "--printConfigItem", "show", is_flag=True, help="Print every setting and its value, and end.")
def command(config: str | None, namesrv: str | None, show: bool) -> int:
    """Run a nameserver until SIGTERM, SIGINT or SIGHUP."""
    with Early() as early:
        settings = NamesrvSettings.from_sources(file=config, env=os.environ)
    if show:
        early.replay()
        click.echo(settings.dump(), nl=False)
        return 0
    apps: list[NamesrvApp] = []

    def make(world: World) -> NamesrvApp:
        apps.append(NamesrvApp(world, settings, config=config))
        return apps[0]

    return serve(
        "namesrv",
        make,
        lambda: "The Name Server boot success. serializeType=JSON",
        pid_file=lambda: pid_file(settings, apps[0].address[1]),
        warnings=exposure("the nameserver", settings),
        early=early,
    )


def main() -> None:
    sys.exit(invoke(command, "mqnamesrv"))


if __name__ == "__main__":
    main()
