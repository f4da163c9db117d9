"""Schemas of job files, judged by a JSON Schema validator: they take what a job takes, and mark what no job does."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
import yaml
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from rmq.cli.pipeline import pipeline
from rmq.protocol.errors import ConfigError
from rmq.spark.pipeline import catalog


class Plain(yaml.SafeLoader):
    """YAML as editors read it: a time is a text."""


Plain.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def marked(name: str, text: str) -> list[str]:
    """What an editor marks in a file: the paths of the keys."""
    found = Draft202012Validator(catalog.schema(name)).iter_errors(yaml.load(text, Plain))
    return sorted({".".join(map(str, error.absolute_path)) for error in found})


@pytest.mark.parametrize("name", catalog.JOBS)
def test_a_sample_meets_its_schema_with_all_its_keys(name: str) -> None:
    text = catalog.sample(name)
    assert marked(name, text) == []
    # With what is commented out, too.
    assert marked(name, re.sub(r"(?m)^( *)#(?=\w)", r"\1", text)) == []


@pytest.mark.parametrize("name", catalog.JOBS)
def test_a_schema_is_one(name: str) -> None:
    schema = catalog.schema(name)
    Draft202012Validator.check_schema(schema)

    def described(section: dict[str, Any]) -> None:
        for key, told in section["properties"].items():
            assert told["description"], key
            if "properties" in told:
                described(told)

    described(schema)


@pytest.mark.parametrize(
    ("line", "instead", "path"),
    [
        ("trigger: 10s", "trigger: 10 minuets", "trigger"),
        ("trigger: 10s", "trigger: once", None),
        ("trigger: 10s", "trigger: 10 minutes", None),
        ("trigger: 10s", "trigger: ${EVERY}", None),
        ("compression: zstd", "compresion: zstd", ""),
        ("targetSize: 128MB", "targetSize: 128 MiB", "compaction.targetSize"),
        ("targetSize: 128MB", "targetSize: 1000000", None),
        ("minFiles: 4", "minFiles: four", "compaction.minFiles"),
        ("enabled: true", "enabled: yes please", "compaction.enabled"),
        ("nameServer: 127.0.0.1:9876", "nameserver: 127.0.0.1:9876", "cluster"),
        ("topics: [OrderEvents]", "topics: OrderEvents", None),
        ("topics: [OrderEvents]", "topics: []", "source.topics"),
        ("path: archive/orders", "", ""),
        ("job: archive", "job: replay", "job"),
    ],
)
def test_wrong_values_are_marked(line: str, instead: str, path: str | None) -> None:
    text = re.sub(r"(?m)^( *)#(?=\w)", r"\1", catalog.sample("archive"))
    assert line in text
    found = marked("archive", text.replace(line, instead, 1))
    assert found == ([] if path is None else [path])


def test_a_wrong_sum_is_marked() -> None:
    text = catalog.sample("windows")
    assert marked("windows", text.replace("revenue: sum(amount)", "revenue: sum()")) == ["aggregates.revenue"]
    assert marked("windows", text.replace("amount: decimal(12,2)", "amount: decimal")) == ["fields.amount"]


def test_the_command_prints_it() -> None:
    told = CliRunner().invoke(pipeline, ["schema", "windows"])
    assert told.exit_code == 0
    assert json.loads(told.output) == catalog.schema("windows")


def test_another_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="archiv: one of archive, windows, dead-letters, replay is expected: did you"):
        catalog.schema("archiv")
