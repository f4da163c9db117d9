"""``rmq pipeline``: the ready jobs of Spark over RocketMQ (docs/spark/pipeline.md).

Spark is loaded by ``run`` alone: looking at a job file needs neither pyspark nor Java.
"""

from __future__ import annotations

import json
import os
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import click

from rmq.cli.command import CONTEXT, USAGE, Commands
from rmq.protocol.errors import ConfigError

if TYPE_CHECKING:
    from rmq.spark.pipeline.job import Job

__all__ = ["pipeline"]

_FILE = click.argument("file", metavar="JOB.yaml", type=click.Path(exists=True, dir_okay=False))


@click.group(cls=Commands, context_settings=CONTEXT)
def pipeline() -> None:
    """Ready jobs of Spark over RocketMQ."""


@pipeline.command(context_settings=CONTEXT)
@_FILE
def check(file: str) -> int:
    """Say what is wrong with a job file, by line."""
    job = _load(file)
    if job is None:
        return USAGE
    click.echo(f"{file}: a job {job.job} called {job.title()}, nothing wrong with it")
    return 0


@pipeline.command(context_settings=CONTEXT)
@click.argument("name", required=False)
def example(name: str | None) -> None:
    """Print a commented job file of the kind NAME; without NAME, the kinds."""
    from rmq.spark.pipeline.catalog import JOBS, sample

    if name is None:
        for one, spec in JOBS.items():
            click.echo(f"{one:<14}{(spec.__doc__ or '').splitlines()[0]}")
    else:
        click.echo(sample(name), nl=False)


@pipeline.command(context_settings=CONTEXT)
@click.argument("name")
def schema(name: str) -> None:
    """Print the JSON Schema of job files of the kind NAME, for editors."""
    from rmq.spark.pipeline.catalog import schema as schema_of

    click.echo(json.dumps(schema_of(name), indent=2))


@pipeline.command(context_settings=CONTEXT)
@_FILE
def run(file: str) -> int:
    """Run a job until it ends, or until Ctrl-C or SIGTERM."""
    job = _load(file)
    if job is None:
        return USAGE
    from rmq.spark.pipeline.running.runner import run as run_job

    try:
        return run_job(job)
    except ConfigError as error:  # what lacks here: the job itself was looked at
        raise click.ClickException(str(error)) from None


@pipeline.command(context_settings=CONTEXT)
@click.option("--orders", type=click.IntRange(1_000, 10_000_000), default=50_000, show_default=True)
@click.option("--folder", metavar="DIR", help="For everything that is made.  [default: run/pipeline/<time>]")
@click.option("--master", default="local[2]", show_default=True, help="Where Spark runs.")
def demo(orders: int, folder: str | None, master: str) -> None:
    """The example: generated orders, a broker, Spark, a topic and an archive of results, a chart."""
    from rmq.cli.daemon import logging_rules
    from rmq.cli.pipeline_demo import demo as run_demo
    from rmq.runtime import logs

    where = os.path.abspath(folder or os.path.join("run", "pipeline", f"{datetime.now(UTC):%Y%m%d-%H%M%S}"))
    logging_ = logs.configure(logging_rules(), folder=os.path.join(where, "logs"), daemon="pipeline")
    try:
        run_demo(where, orders, master)
    finally:
        logging_.stop()


def _load(file: str) -> Job | None:
    """The job of a file; None when it is wrong, which is then said, a line each."""
    from rmq.spark.pipeline.catalog import load
    from rmq.spark.pipeline.document import Problems

    try:
        return load(file, os.environ)
    except Problems as problems:
        for line in problems.lines:
            click.echo(line, err=True)
        return None
