"""`--watch`: again and again, and what fails once is no end; which commands take it."""

from __future__ import annotations

import ast
import asyncio
import importlib
import inspect

import click
import pytest

from rmq.cli.command import invoke
from rmq.cli.mqadmin import changes, undo, watching
from rmq.cli.mqadmin.changes import CHANGING
from rmq.cli.mqadmin.commands import COMMANDS, root
from rmq.cli.mqadmin.failures import NOBODY
from rmq.cli.mqadmin.watching import Rounds
from rmq.client.admin import AdminClient
from rmq.protocol.errors import ConnectFailed
from tests.support.parsed import parsed
from tests.support.virtual import in_virtual_time, one_world


class Look:
    """Fails the second time."""

    def __init__(self) -> None:
        self.at: list[float] = []

    async def __call__(self) -> int:
        self.at.append(asyncio.get_running_loop().time())
        if len(self.at) == 2:
            raise ConnectFailed("127.0.0.1:9876 refuses")
        click.echo(f"look {len(self.at)}")
        return 4


@in_virtual_time
async def test_a_look_that_fails_is_told_of_and_the_next_one_comes(capsys: pytest.CaptureFixture[str]) -> None:
    look = Look()
    ctx = click.Context(click.Command("clusterList"))
    with one_world().entered():
        assert await Rounds(5.0, 3).run(look, ctx) == 4
        out, err = capsys.readouterr()
        assert out == "look 1\nlook 3\n"
        assert err.startswith("mqadmin: 127.0.0.1:9876 refuses; is it running")
        assert [at - look.at[0] for at in look.at] == [0, 5, 10]
        assert await Rounds(5.0, 2).run(Look(), ctx) == NOBODY


@in_virtual_time
async def test_on_a_terminal_what_does_not_fit_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr(watching.shutil, "get_terminal_size", lambda: (20, 8))
    monkeypatch.setattr(watching.click, "echo", lambda text, **more: said.append(text))

    async def look() -> int:
        print("\n".join(f"line {number} " + "x" * 50 for number in range(30)))
        return 0

    with one_world().entered():
        await Rounds(2.0, 1).run(look, click.Context(click.Command("c"), info_name="topicList"))
    (text,) = said
    assert text.startswith("\x1b[H\x1b[2J")
    lines = text[7:].splitlines()
    assert len(lines) == 7
    assert max(map(len, lines[:-1])) == 20
    assert lines[0].startswith("topicList, every 2 s")
    assert lines[-1].startswith("... 26 lines more")


def test_how_often_means_nothing_without_watching(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(root, "mqadmin", ["topicList", "-n", "a:1", "--every", "2"]) == 2
    assert "--every and --rounds are for --watch" in capsys.readouterr().err


#: Operations of the admin client that change something.
CHANGES = (
    "create_",
    "update_",
    "delete_",
    "reset_",
    "clone_",
    "put_",
    "wipe_",
    "add_",
    "clean_",
    "set_",
    "forget_",
    "elect_",
)


def test_what_changes_a_cluster_is_known_and_cannot_be_watched() -> None:
    """Read from the functions: a command whose function calls a change is one of CHANGING, and no other is."""
    found = set()
    for name, (place, _) in COMMANDS.items():
        module, _, function = place.partition(":")
        code = parsed(inspect.getsource(importlib.import_module(f"rmq.cli.mqadmin.{module}")))
        # The function itself, or one that it calls in its module.
        functions = {one.name: one for one in code.body if isinstance(one, ast.AsyncFunctionDef)}
        asked, seen = [function], set()
        while asked:
            one = functions.get(asked.pop())
            if one is None or one.name in seen:
                continue
            seen.add(one.name)
            for node in ast.walk(one):
                if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                    asked.append(node.func.id)
                    found |= {name} if node.func.id.startswith("forget_") else set()
                elif isinstance(node, ast.Attribute) and node.attr.startswith(CHANGES):
                    found |= {name} if isinstance(node.value, ast.Name) and "dmin" in node.value.id else set()
    assert found == CHANGING


@pytest.mark.parametrize("name", COMMANDS)
def test_no_option_of_a_command_takes_the_place_of_a_common_one(name: str) -> None:
    command = root.get_command(click.Context(root), name)
    assert command is not None
    places = [one.name for one in command.params]
    assert len(places) == len(set(places)), sorted(places)


def test_every_change_of_the_admin_client_is_known_for_what_it_does() -> None:
    """So that no dry run makes one: an operation with such a name is told, not done."""
    names = {name for name in dir(AdminClient) if name.startswith(CHANGES)}
    names -= {"update_name_server_address"}  # of the client itself
    names |= {"consume_message_directly"}
    assert names == set(changes.CHANGES)
    assert set(undo._UNDO) <= names
    assert names - set(undo._UNDO) == {
        "clean_expired_consume_queue", "clean_unused_topic", "delete_expired_commit_log",  # nothing brings files back
        "delete_topic_in_name_servers",  # brokers tell them again
        "consume_message_directly",
    }  # fmt: skip
