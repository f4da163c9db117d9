"""docs/mqadmin: its commands print what the pages say, its options are those that there are, and no command lacks."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pytest

from rmq.aio import AdminClient
from rmq.cli.mqadmin.commands import COMMANDS
from tests.support.daemons import ROOT
from tests.support.manual.page import PAGES, commands_of, documented, run, shared

#: What no cluster in virtual time shows: a message's id of its own, a store that is stopped.
_NOT_SHOWN = {"queryMsgById", "queryMsgByUniqueKey", "recallMessage", "store"}


@pytest.mark.skipif(shutil.which("jq") is None, reason="the pages show jq, which is not installed")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_what_its_commands_print(page: Path, tmp_path: Path) -> None:
    """``python -m tests.support.manual`` writes it again."""
    assert run(page, tmp_path) == page.read_text()


def test_every_command_is_described_and_shown() -> None:
    described = [name for page in PAGES for name in documented(page)]
    assert sorted(described) == sorted(set(COMMANDS) - {"store"})
    assert set(COMMANDS) - set().union(*map(commands_of, PAGES)) == _NOT_SHOWN


def test_options_of_many_commands_are_listed_once() -> None:
    table = (ROOT / "docs" / "mqadmin" / "README.md").read_text()
    assert {name for name in shared() if f"`{name}`" not in table} == set()


def test_the_guide_names_every_operation() -> None:
    guide = (ROOT / "docs" / "sdk" / "admin.md").read_text()
    own = {
        name for part in AdminClient.__mro__ if part.__module__.startswith("rmq.client.admin.") for name in vars(part)
    }
    operations = {name for name in own if not name.startswith("_")}
    operations -= {"settings", "world", "start", "shutdown", "name_server_addresses"}
    assert {name for name in operations if f"`{name}`" not in guide} == set()
    named = set(re.findall(r"`(\w+)`", guide.partition("## What there is")[2]))
    assert {name for name in named if name.islower() and not hasattr(AdminClient, name)} == set()
