"""Runs a job: session, progress, metrics, a clean stop, and one clear line when it fails."""

from __future__ import annotations

import importlib
import json
import logging
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, TextIO

from rmq.protocol.errors import RMQError
from rmq.remoting.health import Observer, ObserverSettings
from rmq.remoting.metrics import Family, Labels
from rmq.runtime.background import LoopThread
from rmq.runtime.dial import RealDial
from rmq.runtime.world import World
from rmq.spark import require_java, session
from rmq.spark.pipeline.job import ONCE, Job, StreamJob
from rmq.spark.pipeline.replay import Replay
from rmq.spark.pipeline.running.claim import claimed
from rmq.spark.pipeline.running.files import Files
from rmq.spark.pipeline.running.screen import Screen, totals
from rmq.spark.pipeline.running.stop import Stop
from rmq.spark.pipeline.running.watch import BatchFigures, Watch

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from rmq.spark.pipeline.running.streams import Running

__all__ = ["reason", "run", "run_in"]

log = logging.getLogger(__name__)

#: Seconds between two looks at a query.
_LOOK = 0.5
#: A line of an error of ours or of Spark's within a text of many lines.
_SAID = re.compile(r"(?:rmq\.[\w.]+|pyspark\.errors[\w.]*|[\w.]*(?:Exception|Error)): *(.+)")
_OURS = re.compile(r"(?m)^.*?rmq\.[\w.]+: *(.+)$")
#: What fails is said in one line at the end; Spark would say it in hundreds before.
_CONFIG = {"spark.ui.showConsoleProgress": "false", "spark.log.level": "FATAL"}
#: On one machine: each of Spark's 200 costs a task and the files of a state with every batch.
_SHUFFLE = ("spark.sql.shuffle.partitions", "8")
#: Loggers that print pages.
_TALKATIVE = ("SQLQueryContextLogger", "py4j")
_HOMES = "rmq.spark.pipeline.running."


def run(job: Job, out: TextIO | None = None) -> int:
    """Run a job to its end; the exit code.

    :param out: for progress; default: standard output.
    :raises RMQError: it cannot start, or it failed: one line.
    """
    with _quiet(), Stop() as stop:
        try:
            master, config = _settings(job)
            spark = session(job.title(), master=master, config=config)
        except RMQError:
            raise
        except Exception as error:
            log.debug("Spark cannot be started", exc_info=True)
            raise RMQError(
                f"Spark cannot be started for the job {job.title()} (keys spark.master, spark.config): {reason(error)}"
            ) from error
        stop.listen()
        try:
            if stop.asked:
                print(f"{job.title()}: stopped before it began", file=out, flush=True)
            else:
                run_in(spark, job, out, stop)
        finally:
            if not _gone(spark):
                spark.stop()
    return 0


@contextmanager
def _quiet() -> Iterator[None]:
    """Without pages of pyspark's and py4j's about what is said in one line at the end."""
    loggers = [logging.getLogger(name) for name in _TALKATIVE]
    before = [logger.level for logger in loggers]

    def said(record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith("KeyboardInterrupt while")

    logging.getLogger().addFilter(said)  # py4j logs a second Ctrl-C there
    for logger in loggers:
        logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logging.getLogger().removeFilter(said)
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)


def _settings(job: Job) -> tuple[str | None, dict[str, str]]:
    """Master and settings: what spark-submit says goes before what the file says, and that before what is ours."""
    submitted: dict[str, str] = {}
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        require_java()
        from pyspark import SparkConf, SparkContext

        SparkContext._ensure_initialized()
        submitted = dict(SparkConf().getAll())
    master = None if "spark.master" in submitted else job.spark.master
    config = _CONFIG | (job.spark.config or {})
    if (submitted.get("spark.master") or master or "local").startswith("local"):
        config.setdefault(*_SHUFFLE)
    return master, {name: value for name, value in config.items() if name not in submitted}


def run_in(spark: SparkSession, job: Job, out: TextIO | None = None, stop: Stop | None = None) -> Watch:
    """Run a job in a session; what it told in the end.

    :param stop: ends it when asked; default: signals do.
    :raises RMQError: it failed.
    """
    watch = Watch(job.title(), job.job, Screen(out or sys.stdout))
    module = importlib.import_module(_HOMES + job.job.replace("-", "_"))
    with stop or Stop() as stop, _metrics(job, watch):
        try:
            with _alone(spark, job, watch, stop):
                if isinstance(job, StreamJob):
                    watch.say(_plan(job))
                    _follow(module.start(spark, job, watch), watch, stop)
                else:
                    module.work(spark, job, watch, stop)
        except RMQError:
            raise
        except Exception as error:
            if stop.asked and _gone(spark):  # service managers and terminals end all processes of a group
                watch.say("stopped, and Spark with it: the next run begins with what was under way")
                return watch
            log.debug("the job %s failed", job.title(), exc_info=True)
            raise RMQError(f"the job {job.title()} failed: {reason(error)}") from error
    watch.say(f"{'stopped' if stop.asked else 'done'}: {totals(watch)}")
    return watch


def _alone(spark: SparkSession, job: Job, watch: Watch, stop: Stop) -> AbstractContextManager[object]:
    """While it lasts no other run works with the job's checkpoint. :raises RMQError: one does."""
    if not isinstance(job, (StreamJob, Replay)):
        return nullcontext()

    def end() -> None:
        stop.asked = True

    return claimed(Files(spark, job.checkpoint), RealDial(), watch.say, end)


def _gone(spark: SparkSession) -> bool:
    """Whether Spark was ended by somebody else."""
    try:
        return bool(spark.sparkContext._jsc.sc().isStopped())
    except Exception:
        return True


def _plan(job: StreamJob) -> str:
    """What a streaming job is about to do."""
    topics = ", ".join(job.source.topics or ()) or f"topics that match {job.source.topic_pattern}"
    often = "what there is now" if job.trigger == ONCE else f"every {job.trigger:g} s"
    return f"reading {topics}, {often}; the checkpoint is {job.checkpoint}"


def _follow(running: Running, watch: Watch, stop: Stop) -> None:
    """Watch a query until it ends by itself or is to stop; a batch under way then may come to its end."""
    query = running.query
    told = -1
    last: int | None = None
    try:
        while True:
            ended = query.awaitTermination(_LOOK)  # type: ignore[arg-type]
            for progress in _news(query, told):
                batch = BatchFigures.of(progress)
                told = batch.number
                watch.batch(batch)
            watch.begun = watch.begun or query.lastProgress is not None
            if ended:
                running.finish()
                return
            if stop.asked:
                if last is None:
                    last = told
                    if query.status["isTriggerActive"]:
                        watch.say("stopping when the batch under way has ended; a second signal stops at once")
                if told != last or not query.status["isTriggerActive"]:
                    return
    finally:
        with suppress(Exception):  # it has failed, which is said, or Spark is gone
            query.stop()


def _news(query: Any, told: int) -> Iterator[Mapping[str, object]]:
    """The progress of batches after ``told``; triggers that found nothing have none."""
    last = query.lastProgress
    if last is None or last.batchId <= told:
        return
    recent = [last] if last.batchId == told + 1 else query.recentProgress
    for each in recent:
        if each.batchId > told:
            progress = json.loads(each.json)
            if "addBatch" in progress.get("durationMs", {}):
                told = each.batchId
                yield progress


def reason(error: BaseException) -> str:
    """What Spark's exception, a text of many lines, is about: our own line in it where there is one."""
    said = [found[1].strip() for found in _SAID.finditer(str(error))]
    ours = [found[1].strip() for found in _OURS.finditer(str(error))]
    if ours:
        return str(ours[-1])
    first = next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)
    return str(said[-1]) if said else first


@contextmanager
def _metrics(job: Job, watch: Watch) -> Iterator[None]:
    """Serve the job's metrics while it runs, where that is asked for."""
    port = job.metrics.port
    if port is None:
        yield
        return

    async def told(query: Mapping[str, str]) -> tuple[Labels, Iterable[Family]]:
        return (), list(watch.families())

    settings = ObserverSettings(
        metrics_exporter_type="PROM", metrics_prom_exporter_port=port, metrics_prom_exporter_host=job.metrics.host
    )
    missing = lambda: None if watch.begun or watch.batches or watch.counts else "nothing was looked for yet"  # noqa: E731
    thread = LoopThread("rmq-pipeline-metrics")
    try:
        observer = Observer(World.real(), settings, "pipeline", missing=missing, metrics=told)
        try:
            thread.call(observer.start())
        except RMQError as error:  # which is worded for daemons
            raise RMQError(
                str(error).replace("another metricsPromExporterPort", "another port under metrics")
            ) from error
        thread.call(_serving(observer))
        watch.say("metrics on http://{}:{}/metrics".format(*(observer.address or ("", 0))))
        try:
            yield
        finally:
            thread.call(observer.stop())
    finally:
        thread.stop()


async def _serving(observer: Observer) -> None:
    observer.serving()
