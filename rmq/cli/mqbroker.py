"""``mqbroker``: the broker daemon, with the flags of Java's."""

from __future__ import annotations

import logging
import os
import sys

import click

from rmq.broker.app import BrokerApp
from rmq.broker.settings import BrokerSettings
from rmq.cli.command import CONTEXT, invoke, version_option
from rmq.cli.daemon import Early, exposure, serve
from rmq.cli.progress import Bar
from rmq.runtime.world import World

__all__ = ["main", "pid_file", "read_settings", "ready_line"]

log = logging.getLogger(__name__)


def pid_file(settings: BrokerSettings) -> str:
    """Beside the store's lock."""
    return os.path.join(settings.store_path_root_dir, "broker.pid")


def ready_line(settings: BrokerSettings) -> str:
    """Java's line, word for word: scripts wait for it."""
    where = f" and name server is {settings.namesrv_addr}" if settings.namesrv_addr else ""
    address = f"{settings.broker_ip1}:{settings.listen_port}"
    return f"The broker[{settings.broker_name}, {address}] boot success. serializeType=JSON{where}"


@click.command(context_settings=CONTEXT)
@version_option
@click.option("-c", "--configFile", "config", metavar="FILE", help="Settings, .properties or YAML.")
@click.option("-n", "--namesrvAddr", "namesrv", metavar="LIST", help="Name servers: 10.0.0.1:9876;10.0.0.2:9876")
@click.option("-p", "--printConfigItem", "show", is_flag=True, help="Print every setting and its value, and end.")
@click.option("-m", "--printImportantConfig", "important", is_flag=True, help="The same with the important ones.")
def command(config: str | None, namesrv: str | None, show: bool, important: bool) -> int:
    """Run a broker until SIGTERM, SIGINT or SIGHUP."""
    with Early() as early:
        settings, hints = read_settings(config, namesrv)
    if show or important:
        early.replay()
        click.echo(settings.dump(important=important and not show), nl=False)
        return 0
    apps: list[BrokerApp] = []

    def make(world: World) -> BrokerApp:
        apps.append(app := BrokerApp(world, settings))
        app.show_progress = Bar()
        return app

    return serve(
        "broker",
        make,
        lambda: ready_line(settings),
        pid_file=lambda: pid_file(settings),
        warnings=[*hints, *exposure("the broker", settings)],
        early=early,
    )


def read_settings(config: str | None, namesrv: str | None) -> tuple[BrokerSettings, list[str]]:
    """The settings of every source, completed for this machine, and what to tell about the address (field case B096).

    :raises ConfigError: a source or a value that cannot be used.
    """
    overrides = {"namesrvAddr": namesrv} if namesrv else {}
    if config is not None:
        overrides["brokerConfigPath"] = os.path.abspath(config)
    settings = BrokerSettings.from_sources(file=config, env=os.environ, overrides=overrides)
    chosen = settings.settle(World.real().identity)
    if chosen is None:
        log.info("brokerIP1=%s, from %s", settings.broker_ip1, settings.origin("brokerIP1"))
        return settings, []
    log.info("brokerIP1=%s, the address of %s: no source sets it", chosen.address, chosen.interface)
    return settings, [chosen.hint] if chosen.hint else []


def main() -> None:
    sys.exit(invoke(command, "mqbroker"))


if __name__ == "__main__":
    main()
