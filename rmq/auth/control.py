"""Access control of one daemon: its guard, the files it follows, and changes to them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from rmq.auth.access import AccessTable
from rmq.auth.addresses import parse_pattern
from rmq.auth.edit import put_version
from rmq.auth.files import AclFiles, Known
from rmq.auth.guard import Guard, Leniency
from rmq.auth.quota import Quotas
from rmq.protocol.bodies.topic import DataVersion
from rmq.protocol.command import Command
from rmq.protocol.errors import ConfigError
from rmq.protocol.signature import ACCESS_KEY
from rmq.runtime.aside import logger
from rmq.runtime.tasks import TaskOwner
from rmq.runtime.world import World

if TYPE_CHECKING:
    from rmq.auth.settings import AclSettings

__all__ = ["AccessControl"]

log = logger(__name__)

#: How often the files are looked at. A change is taken when it was seen twice, so that a file is not read while it is
#: being written: within three times this.
_LOOK_SECONDS = 1.0


class AccessControl:
    """Knows the accounts, and keeps up with their files.

    What was allowed stays so while a file cannot be used: a broken or vanished file neither opens the daemon nor locks
    everybody out, and is told of once, and by :attr:`fault`.

    :param table: what each request code needs.
    :param trace_topic: the name of the topic of message traces.
    :param bodies: see :class:`~rmq.auth.guard.Guard`.
    """

    def __init__(
        self,
        world: World,
        settings: AclSettings,
        table: AccessTable,
        trace_topic: str,
        bodies: Mapping[int, Callable[[], int]] | None = None,
    ) -> None:
        self._world = world
        self._files = AclFiles(world.files, settings.rocketmq_home, settings.acl_plain_file)
        self._white_lists_skip = settings.acl_white_list_skips_checks
        leniency = Leniency(
            white_lists=settings.acl_white_list_skips_checks,
            trace_topic=settings.acl_trace_topic_open,
            unchecked_codes=settings.acl_unchecked_codes,
        )
        self.guard = Guard(world.clock, table, leniency, trace_topic, bodies)
        self.guard.quotas = self.quotas = Quotas(world.clock, settings)
        self.tasks = TaskOwner("access control")
        #: Told after the rules have changed.
        self.on_change: list[Callable[[], None]] = []
        #: Why the files as they are now are not in force; None when they are.
        self.fault: str | None = None
        self._known: Known | None = None
        self._versions: dict[str, DataVersion] = {}
        self._loaded: dict[str, object] = {}
        self._seen: dict[str, object] = {}
        #: The state of the files that could not be used.
        self._useless: dict[str, object] | None = None
        self._turn = asyncio.Lock()

    @property
    def known(self) -> Known:
        """What the files in force say."""
        assert self._known is not None
        return self._known

    @property
    def plain_file(self) -> str:
        """The file that accounts are added to."""
        return self._files.plain

    @property
    def versions(self) -> dict[str, DataVersion]:
        """How often each file has changed, by path."""
        return dict(self._versions)

    async def load(self) -> None:
        """Read the files for the first time.

        :raises ConfigError: they cannot be used: says which, where, and what to do.
        """
        try:
            stamps = await self._world.offload(self._files.stamps)
            known = self._files.understand(await self._world.offload(self._files.read))
        except OSError as error:
            raise ConfigError(f"{self._files.plain}: accounts cannot be read: {error.strerror or error}") from None
        self._loaded = self._seen = stamps
        self._take(known)

    def start(self) -> None:
        """Follow the files from now on."""
        self.tasks.every(_LOOK_SECONDS, self.look, "accounts")

    async def look(self) -> None:
        """Take what has changed in the files, once nobody writes to them any more."""
        async with self._turn:
            try:
                stamps = await self._world.offload(self._files.stamps)
                if stamps == self._loaded:
                    self._sound()
                    return
                if stamps != self._seen or stamps == self._useless:
                    self._seen = stamps
                    return
                self._useless = stamps
                contents = await self._world.offload(self._files.read)
                self._compare(contents)
                known = self._files.understand(contents)
            except ConfigError as error:
                self._broken(str(error))
                return
            except OSError as error:
                # That it may be read again does not show in a file's stamp: it is tried at each look.
                self._useless = None
                self._broken(str(error))
                return
            self._loaded = stamps
            if contents == self.known.contents:
                self._sound()
                return
            self._take(known)

    def _compare(self, contents: dict[str, bytes]) -> None:
        """:raises ConfigError: accounts are gone with their file, or with all that was in it."""
        for file in self.known.files:
            if file.path not in contents:
                raise ConfigError(
                    f"{file.path}: it is gone: what it said stays in force; put it back, or restart to forget it"
                )
            if file.accounts and not contents[file.path].strip():
                raise ConfigError(f"{file.path}: it is empty: what it said stays in force")

    def _broken(self, why: str) -> None:
        if why != self.fault:
            log.error("access control goes on with the accounts it had: %s", why)
        self.fault = why

    def _sound(self) -> None:
        if self.fault is not None:
            log.info("the files of accounts are as they should be again")
        self.fault = None

    def _take(self, known: Known) -> None:
        """Put what the files say in force."""
        before = self._known
        now = self._world.clock.now_ms()
        for file in known.files:
            version = self._versions.get(file.path)
            if version is None:
                self._versions[file.path] = file.version or DataVersion(counter=0, timestamp=now)
            elif before is not None and before.contents.get(file.path) != known.contents[file.path]:
                given = file.version
                if given is None or given.counter <= version.counter:
                    given = DataVersion(counter=version.counter + 1, timestamp=now)
                self._versions[file.path] = given
            for note in file.notes:
                log.warning("%s", note)
        self._known = known
        self.guard.rules = known.rules
        self._sound()
        log.info("access control: %d accounts of %d files", len(known.rules.accounts), len(known.files))
        self._tell_of_white_lists()
        for told in self.on_change:
            told()

    def _tell_of_white_lists(self) -> None:
        rules = self.known.rules
        listed = len(rules.white) + sum(not account.white.empty for account in rules.accounts.values())
        if listed and self._white_lists_skip:
            log.warning(
                "aclWhiteListSkipsChecks: requests from addresses of %d white lists are not checked at all",
                listed,
            )
        elif rules.white:
            log.warning(
                "globalWhiteRemoteAddresses: accounts without a whiteRemoteAddress of their own are refused from "
                "elsewhere than %s", ", ".join(pattern.text for pattern in rules.white)[:200],
            )  # fmt: skip

    def keeps_in(self, host: str, request: Command, addresses: Sequence[str]) -> bool:
        """Whether who asks from an address would still be let in with a global white list (it only narrows)."""
        if self._white_lists_skip:
            return True
        account = self.known.rules.accounts.get((request.ext or {}).get(ACCESS_KEY) or "")
        if account is not None and not account.white.empty:
            return True
        return any(parse_pattern(address).matches(host) for address in addresses)

    async def change(self, path: str, edit: Callable[[str, bytes], bytes]) -> None:
        """Change a file and put it in force; one change at a time.

        :param edit: makes the file's new content of its path and its old content.
        :raises ConfigError: the file cannot be changed so, or the accounts would be none any more: nothing is changed.
        :raises OSError: it cannot be written; what was allowed stays so.
        """
        async with self._turn:
            contents = await self._world.offload(self._files.read)
            self._compare(contents)
            if path not in contents and path != self._files.plain:
                raise ConfigError(f"{path}: this is no file of accounts: {', '.join(contents)[:500]}")
            old = contents.get(path, b"")
            edited = edit(path, old)
            version = self._versions.get(path)
            now = self._world.clock.now_ms()
            counter = 1 if version is None else version.counter + 1
            contents[path] = put_version(path, edited, DataVersion(counter=counter, timestamp=now))
            known = self._files.understand(contents)
            await self._world.offload(self._files.replace, path, contents[path])
            self._loaded = self._seen = await self._world.offload(self._files.stamps)
            self._take(known)

    async def stop(self) -> None:
        """Follow the files no more."""
        await self.tasks.close()
