"""Files of accounts are followed while a daemon serves (A04, field case B107)."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rmq.auth.control import AccessControl
from rmq.auth.edit import put_account, put_white, take_account
from rmq.protocol.command import Command
from rmq.protocol.errors import ConfigError
from rmq.protocol.signature import signed_fields
from rmq.runtime.world import World
from tests.support.accounts import ACCOUNTS, home


def control(folder: Path, **settings: object) -> AccessControl:
    made: Any = SimpleNamespace(
        rocketmq_home=str(folder), acl_plain_file="conf/plain_acl.yml", acl_white_list_skips_checks=False,
        acl_trace_topic_open=False, acl_unchecked_codes=False,
    )  # fmt: skip
    made.__dict__.update(settings)
    return AccessControl(World.real(), made, {}, "RMQ_SYS_TRACE_TOPIC")


async def started(folder: Path, accounts: str = ACCOUNTS) -> AccessControl:
    home(folder, accounts)
    made = control(folder)
    await made.load()
    return made


async def looked(access: AccessControl) -> set[str]:
    """Who is known after a change was seen twice."""
    await access.look()
    await access.look()
    return set(access.guard.rules.accounts)


EVERYBODY = {"operator", "a-broker", "owner-of-T", "unprivileged", "disabled-one"}


async def test_a_change_is_taken_when_it_is_seen_twice(tmp_path: Path) -> None:
    access = await started(tmp_path)
    told: list[int] = []
    access.on_change.append(lambda: told.append(1))
    file = tmp_path / "conf" / "plain_acl.yml"
    file.write_text(ACCOUNTS.replace("unprivileged", "somebody-else"))
    await access.look()
    assert set(access.guard.rules.accounts) == EVERYBODY
    file.write_text(ACCOUNTS.replace("unprivileged", "another"))  # it is still being written
    await access.look()
    assert set(access.guard.rules.accounts) == EVERYBODY
    await access.look()
    assert set(access.guard.rules.accounts) == EVERYBODY - {"unprivileged"} | {"another"}
    assert told == [1]
    assert await looked(access) == EVERYBODY - {"unprivileged"} | {"another"}
    assert told == [1]


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        (lambda file: file.write_text(ACCOUNTS + "\tadmin: true\n"), "plain_acl.yml:23: this is no YAML"),
        (lambda file: file.write_text(ACCOUNTS + "  - accessKey: short\n"), "plain_acl.yml:23: accessKey has 5"),
        (lambda file: file.write_text(""), "it is empty"),
        (lambda file: file.write_text("accounts: []\n"), "there are no accounts"),
        (lambda file: file.unlink(), "it is gone"),
        (lambda file: (file.unlink(), file.mkdir()), "Is a directory"),
        (lambda file: (file.parent / "acl").mkdir() or (file.parent / "acl" / "b.yml").write_text(ACCOUNTS), "already"),
    ],
)
async def test_a_file_that_cannot_be_used_changes_nothing_and_is_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, spoil: Any, says: str
) -> None:
    """Field case B107 (b)."""
    access = await started(tmp_path)
    spoil(tmp_path / "conf" / "plain_acl.yml")
    for _ in range(3):
        assert await looked(access) == EVERYBODY
    assert access.fault is not None
    assert says in access.fault
    assert [record.levelno for record in caplog.records if says in record.getMessage()] == [logging.ERROR]
    if (tmp_path / "conf" / "plain_acl.yml").is_file():
        (tmp_path / "conf" / "acl" / "b.yml").unlink(missing_ok=True)
        home(tmp_path, ACCOUNTS.replace("unprivileged", "somebody-else"))
        assert await looked(access) == EVERYBODY - {"unprivileged"} | {"somebody-else"}
        assert access.fault is None


async def test_a_file_that_could_not_be_read_is_taken_once_it_may_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its content has not changed since: who may read it has."""
    access = await started(tmp_path)
    home(tmp_path, ACCOUNTS.replace("unprivileged", "somebody-else"))

    def refused() -> dict[str, bytes]:
        raise PermissionError(13, "Permission denied")

    with monkeypatch.context() as until:
        until.setattr(access._files, "read", refused)
        assert await looked(access) == EVERYBODY
        assert "Permission denied" in (access.fault or "")
    assert await looked(access) == EVERYBODY - {"unprivileged"} | {"somebody-else"}
    assert access.fault is None


async def test_every_file_below_conf_acl_counts(tmp_path: Path) -> None:
    team = tmp_path / "conf" / "acl" / "teams"
    team.mkdir(parents=True)
    (team / "one.yaml").write_text("accounts:\n- accessKey: team-one\n  secretKey: 12345678\n")
    (team / "notes.txt").write_text("accounts: [")
    access = await started(tmp_path)
    assert set(access.guard.rules.accounts) == EVERYBODY | {"team-one"}
    assert [Path(path).name for path in access.versions] == ["plain_acl.yml", "one.yaml"]


async def test_a_mounted_secret_is_read_once_and_followed(tmp_path: Path) -> None:
    """Kubernetes keeps the files in a folder of each version, and links to them."""
    mount = tmp_path / "conf" / "acl"
    mount.mkdir(parents=True)

    def put(version: str, text: str) -> None:
        (mount / version).mkdir()
        (mount / version / "shop.yml").write_text(text)
        (mount / "..new").symlink_to(version)
        (mount / "..new").replace(mount / "..data")

    put("..one", ACCOUNTS)
    (mount / "shop.yml").symlink_to("..data/shop.yml")
    access = control(tmp_path)
    await access.load()
    assert set(access.guard.rules.accounts) == EVERYBODY
    put("..two", ACCOUNTS.replace("unprivileged", "somebody-else"))
    assert await looked(access) == EVERYBODY - {"unprivileged"} | {"somebody-else"}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "there is no such file"),
        ("accounts:\n", "there are no accounts"),
        (ACCOUNTS + "bad\n", "plain_acl.yml:2"),
        ("accounts:\n- accessKey: disabled\n  secretKey: 12345678\n  disabled: true\n", "there are no accounts"),
    ],
)
async def test_a_daemon_does_not_start_without_accounts(tmp_path: Path, text: str | None, says: str) -> None:
    if text is not None:
        home(tmp_path, text)
    with pytest.raises(ConfigError) as error:
        await control(tmp_path).load()
    assert says in str(error.value)
    assert str(tmp_path / "conf" / "plain_acl.yml") in str(error.value)


async def test_a_file_of_accounts_that_is_made_is_its_owners_to_read(tmp_path: Path) -> None:
    path = tmp_path / "conf" / "plain_acl.yml"
    access = control(tmp_path)
    (tmp_path / "conf" / "acl").mkdir(parents=True)
    (tmp_path / "conf" / "acl" / "one.yml").write_text(ACCOUNTS)
    await access.load()
    await access.change(str(path), lambda path, data: put_account(path, data, "newcomer", {"secretKey": "12345678"}))
    assert path.stat().st_mode & 0o777 == 0o600


async def test_changes_are_written_in_their_place_and_count_at_once(tmp_path: Path) -> None:
    access = await started(tmp_path)
    path = tmp_path / "conf" / "plain_acl.yml"
    path.chmod(0o600)

    def add(path: str, data: bytes) -> bytes:
        return put_account(path, data, "newcomer", {"secretKey": "12345678"})

    await access.change(str(path), add)
    assert set(access.guard.rules.accounts) == EVERYBODY | {"newcomer"}
    assert path.read_text().startswith(ACCOUNTS + "  - accessKey: newcomer\n    secretKey: 12345678\n")
    assert path.stat().st_mode & 0o777 == 0o600
    assert access.versions[str(path)].counter == 1
    await access.change(str(path), lambda path, data: take_account(path, data, "unprivileged"))
    assert set(access.guard.rules.accounts) == EVERYBODY - {"unprivileged"} | {"newcomer"}
    assert access.versions[str(path)].counter == 2
    assert "# owns the topic T" in path.read_text()
    assert await looked(access) == EVERYBODY - {"unprivileged"} | {"newcomer"}
    assert access.versions[str(path)].counter == 2


async def test_a_change_that_would_lock_everybody_out_is_not_made(tmp_path: Path) -> None:
    text = "accounts:\n- accessKey: operator\n  secretKey: 12345678\n"
    access = await started(tmp_path, text)
    path = tmp_path / "conf" / "plain_acl.yml"
    with pytest.raises(ConfigError, match="no accounts"):
        await access.change(str(path), lambda path, data: take_account(path, data, "operator"))
    with pytest.raises(ConfigError, match="no file of accounts"):
        await access.change("/etc/passwd", lambda path, data: put_white(path, data, []))
    assert path.read_text() == text
    request = Command(53, ext=signed_fields({}, b"", "operator", "12345678"))
    assert access.keeps_in("10.0.0.1", request, ["10.0.0.*"])
    assert not access.keeps_in("10.0.1.1", request, ["10.0.0.*"])
