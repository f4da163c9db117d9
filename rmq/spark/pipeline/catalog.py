"""The ready jobs by name: reading a job file, samples and schemas of one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from rmq.protocol.errors import ConfigError
from rmq.spark.pipeline import document
from rmq.spark.pipeline.archive import Archive
from rmq.spark.pipeline.dead_letters import DeadLetters
from rmq.spark.pipeline.document import Problem, Problems, Scalar, Table
from rmq.spark.pipeline.job import Job
from rmq.spark.pipeline.kinds import nearest
from rmq.spark.pipeline.replay import Replay
from rmq.spark.pipeline.windows import Windows

__all__ = ["JOBS", "load", "sample", "schema"]

JOBS: Mapping[str, type[Job]] = {
    "archive": Archive,
    "windows": Windows,
    "dead-letters": DeadLetters,
    "replay": Replay,
}


def load(path: str, env: Mapping[str, str]) -> Job:
    """The job of a file.

    :param env: where ``${NAME}`` is looked up.
    :raises Problems: everything that is wrong with it, by line.
    :raises ConfigError: the file cannot be read.
    """
    return of(path, document.read(path, env))


def of(path: str, table: Table) -> Job:
    """:func:`load` of what was read already."""
    entry = table.get("job")
    names = ", ".join(JOBS)
    if entry is None:
        raise Problems(path, [Problem(table.line, f"job: missing: one of {names} is expected")])
    name = entry.value.text if isinstance(entry.value, Scalar) else None
    spec = JOBS.get(name or "")
    if spec is None:
        near = nearest(name or "", list(JOBS))
        raise Problems(path, [Problem(entry.line, f"job: {name!r}: one of {names} is expected{near}")])
    problems: list[Problem] = []
    job = spec.read(table, "", problems)
    if problems:
        raise Problems(path, problems)
    if job.name is None:
        job.name = os.path.splitext(os.path.basename(path))[0].replace(".", "-")
    return job


def sample(name: str, given: dict[str, Any] | None = None) -> str:
    """A commented job file.

    :param given: keys with values of their own; see :meth:`Spec.sample`.
    :raises ConfigError: there is no such job.
    """
    spec = _known(name)
    about = "".join(f"# {line.strip()}".rstrip() + "\n" for line in (spec.__doc__ or "").strip().splitlines())
    intro = "# Lines that begin with # and a blank explain; those without the blank are defaults and suggestions.\n"
    return f"{about}#\n{intro}\n{spec.sample(given={'job': name} | (given or {}))}"


def schema(name: str) -> dict[str, Any]:
    """The keys of a job file as JSON Schema (draft 2020-12), for editors; rules over several keys are not in it.

    :raises ConfigError: there is no such job.
    """
    spec = _known(name)
    found: dict[str, Any] = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"rmq pipeline: {name}",
    }
    found |= {"description": (spec.__doc__ or "").splitlines()[0]} | spec.schema()
    found["properties"]["job"] = {"description": "Which of the ready jobs this is.", "const": name}
    return found


def _known(name: str) -> type[Job]:
    spec = JOBS.get(name)
    if spec is None:
        raise ConfigError(f"{name}: one of {', '.join(JOBS)} is expected{nearest(name, list(JOBS))}")
    return spec
