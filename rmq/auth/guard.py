"""Decides about each request: who sent it, and whether that account may do what it asks (Java: PlainAccessValidator).

Every request is looked at by itself: what a connection was allowed before, or who spoke on it, changes nothing. The
rules are replaced as a whole (:attr:`Guard.rules`), and hold for the next request of every connection.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from rmq.auth.access import ADMIN, CHECKED_BY_JAVA, NEVER_LENIENT, Access, AccessTable, Role
from rmq.auth.plain_acl import Account
from rmq.auth.quota import Quotas
from rmq.auth.rules import Rules, missing
from rmq.protocol.codes import RequestCode
from rmq.protocol.command import Command
from rmq.protocol.errors import AuthError, ResponseError
from rmq.protocol.header import Header
from rmq.protocol.names import RETRY_PREFIX, TRACE_TOPIC
from rmq.protocol.permissions import PUB, Need
from rmq.protocol.signature import ACCESS_KEY, verify
from rmq.remoting.limits import Rationed
from rmq.remoting.router import SHORT
from rmq.runtime.aside import logger
from rmq.runtime.world import Clock

if TYPE_CHECKING:
    from rmq.remoting.conn import Conn

__all__ = ["Guard", "Leniency"]

log = logger(__name__)

#: Verdicts that are remembered; beyond it all are forgotten.
_MOST_VERDICTS = 50_000
_LONGEST_KEY = 64
#: Characters of the longest name of a topic or a group, its prefix included.
_LONGEST_NAME = 300


@dataclass(frozen=True, slots=True)
class Leniency:
    """Where Java lets more through; each is a setting, and off unless set (docs/differences.md)."""

    #: White-listed addresses need no signature and no permission.
    white_lists: bool = False
    #: Every account may send to the trace topic.
    trace_topic: bool = False
    #: A signature is enough for every code that Java does not look at.
    unchecked_codes: bool = False


class _Grant:
    """What the sender of one request may do; asks the rules as they are when it is asked."""

    __slots__ = ("_guard", "_key", "_lenient", "free")

    def __init__(self, guard: Guard, key: str, *, lenient: bool, free: bool) -> None:
        #: Its account has no quotas.
        self.free = free
        self._guard = guard
        self._key = key
        self._lenient = lenient

    @property
    def account(self) -> str:
        return self._key

    def demand(self, *needs: Need) -> None:
        """:raises AuthError: one of them is not given."""
        if not self._lenient:
            self._guard.demand(self._key, needs)

    def charge(self, size: int) -> None:
        quotas = self._guard.quotas
        if quotas is not None and not self.free:
            account = self._guard.rules.accounts.get(self._key)
            if account is not None:  # it is not gone meanwhile
                quotas.charge(account, size)

    def allows(self, need: Need) -> bool:
        return self._lenient or self._guard.verdict(self._key, need) is None


class _Known(NamedTuple):
    """What is ready for the requests of one account under the rules of the moment."""

    account: Account
    grant: _Grant
    #: It may come from any address.
    anywhere: bool


class _Everything:
    """The grant of a white-listed address, as Java has it."""

    __slots__ = ()
    account = ""

    def demand(self, *needs: Need) -> None:
        return

    def charge(self, size: int) -> None:
        return

    def allows(self, need: Need) -> bool:
        return True


_EVERYTHING = _Everything()


class Guard:
    """Checks requests against the rules.

    :param table: what each code needs.
    :param trace_topic: the broker's name for it.
    :param bodies: bytes of the longest body by request code, where it is more than a few KiB and no handler says it.
    """

    def __init__(
        self,
        clock: Clock,
        table: AccessTable,
        leniency: Leniency | None = None,
        trace_topic: str = TRACE_TOPIC,
        bodies: Mapping[int, Callable[[], int]] | None = None,
    ) -> None:
        self._table = table
        self._bodies = bodies or {}
        self._lenient = leniency or Leniency()
        self._trace_topics = frozenset({TRACE_TOPIC, trace_topic})
        self._trace_topic = trace_topic
        self._rules = Rules()
        self._known: dict[str, _Known] = {}
        self._verdicts: dict[tuple[str, Need], str | None] = {}
        self._refusals = Rationed(clock)
        #: How much each account may ask for; None = as much as it likes.
        self.quotas: Quotas | None = None
        #: Requests that were refused since start, by the kind of reason.
        self.refused: Counter[str] = Counter()

    @property
    def rules(self) -> Rules:
        """What is allowed; nothing until it is set."""
        return self._rules

    @rules.setter
    def rules(self, rules: Rules) -> None:
        self._rules = rules
        self._verdicts = {}
        self._known = {
            key: _Known(
                account,
                _Grant(self, key, lenient=False, free=account.admin or account.broker),
                anywhere=self._lenient.white_lists or (account.white.empty and not rules.white),
            )
            for key, account in rules.accounts.items()
        }

    def longest(self, code: int) -> int:
        """Bytes of a body that is taken for a code whose handler sets no limit: before its signature is looked at."""
        most = self._bodies.get(code)
        return SHORT if most is None else most()

    def admit(self, conn: Conn, request: Command) -> None:
        """Find out who sent a request, before anything of it is read; gives it its grant.

        :raises AuthError: nobody that is known, or somebody who may not ask this.
        :raises ResponseError: SYSTEM_BUSY: somebody who has asked too much.
        """
        host = conn.host
        white_lists = self._lenient.white_lists
        request.grant = None
        if white_lists and self._rules.lists(host):
            request.grant = _EVERYTHING
            return
        ext = request.ext or {}
        key = ext.get(ACCESS_KEY)
        if not key:
            raise self._refusal(conn, request, "unsigned", "No accessKey is configured")
        known = self._known.get(key)
        if known is None:
            raise self._refusal(conn, request, "unknown", f"No acl config for {key[:_LONGEST_KEY]}")
        account, grant, anywhere = known
        if white_lists and account.white.matches(host):
            request.grant = _EVERYTHING
            return
        if not verify(ext, request.body, account.secret_key):
            raise self._refusal(conn, request, "signature", f"Check signature failed for accessKey={key}")
        if account.disabled:
            raise self._refusal(conn, request, "disabled", f"accessKey={key} is disabled")
        if not anywhere and not self._comes_from_where_it_may(account, host):
            raise self._refusal(
                conn,
                request,
                "address",
                f"accessKey={key} is not for the address {host}: see the white lists",
            )
        access = self._table.get(request.code, ADMIN)
        lenient = self._lenient.unchecked_codes and self._asks_nothing_in_java(request)
        fits = access.role is Role.ACCOUNT or account.admin or (access.role is Role.BROKER and account.broker)
        if not (fits or lenient):
            why = f"Need admin permission for request code={request.code}, but accessKey={key} is not"
            raise self._refusal(conn, request, "role", why)
        if self.quotas is not None and not grant.free:
            self._count(conn, request, account, self.quotas)
        request.grant = _Grant(self, key, lenient=True, free=grant.free) if lenient else grant

    def _count(self, conn: Conn, request: Command, account: Account, quotas: Quotas) -> None:
        """:raises ResponseError: SYSTEM_BUSY: the account has asked too much."""
        try:
            quotas.admit(conn, account, request)
        except ResponseError as error:
            self.refused["quota"] += 1
            self._refusals.say(log.warning, "%s: request %d refused: %s", conn.peer, request.code, error.remark)
            raise

    def check(self, conn: Conn, request: Command, header: Header | None) -> None:
        """Whether who was admitted may do what the header names.

        :param header: the one that the handler gets.
        :raises AuthError: no.
        """
        access: Access = self._table.get(request.code, ADMIN)
        grant = request.grant
        if access.inside or grant is None or (access.passed_on and self._is_brokers(grant.account)):
            return
        grant.demand(*access.needs(header))

    def _is_brokers(self, key: str) -> bool:
        account = self._rules.accounts.get(key)
        return account is not None and account.broker

    def demand(self, key: str, needs: tuple[Need, ...]) -> None:
        """:raises AuthError: the account has not got one of them, or is no more."""
        for need in needs:
            verdict = self.verdict(key, need)
            if verdict is not None:
                self.refused["permission"] += 1
                self._refusals.say(log.warning, "a request of accessKey=%s refused: %s", key, verdict)
                raise AuthError(verdict)

    def verdict(self, key: str, need: Need) -> str | None:
        """Why an account may not do something; None when it may."""
        try:
            return self._verdicts[key, need]
        except KeyError:
            verdict = self._judge(key, need)
            if len(need.name) > _LONGEST_NAME:  # of no topic and no group: an account may ask for very many
                return verdict
            if len(self._verdicts) >= _MOST_VERDICTS:
                self._verdicts.clear()
            self._verdicts[key, need] = verdict
            return verdict

    def _judge(self, key: str, need: Need) -> str | None:
        account = self._rules.accounts.get(key)
        if account is None:
            return f"No acl config for {key}"
        if self._lenient.trace_topic and need.permission == PUB and need.name in self._trace_topics:
            return None
        return missing(account, need, self._trace_topic)

    def _comes_from_where_it_may(self, account: Account, host: str) -> bool:
        """White lists only ever narrow: an account's own one, else the global one, says where it may come from."""
        if not account.white.empty:
            return account.white.matches(host)
        return not self._rules.white or self._rules.lists(host)

    def _asks_nothing_in_java(self, request: Command) -> bool:
        if request.code in NEVER_LENIENT:
            return False
        if request.code == RequestCode.SEND_MESSAGE:
            return ((request.ext or {}).get("topic") or "").startswith(RETRY_PREFIX)
        return request.code not in CHECKED_BY_JAVA

    def _refusal(self, conn: Conn, request: Command, kind: str, why: str) -> AuthError:
        self.refused[kind] += 1
        self._refusals.say(log.warning, "%s: request %d refused: %s", conn.peer, request.code, why)
        return AuthError(why)
