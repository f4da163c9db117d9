"""Whom to ask among servers that should all know the same (protocol.md 6.5). Pure: answers and errors come in.

::

    question = turns.ask(doubted)
    while (server := question.server) is not None:
        try:
            reply = ...                      # ask it
        except TransportError as error:
            question.failed(error)
        else:
            question.answered(reply)
    reply = question.reply                   # None: nobody answered
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from rmq.protocol.codes import ResponseCode
from rmq.protocol.command import Command
from rmq.protocol.errors import TransportError

__all__ = ["Doubt", "Question", "Turns", "knows_no_topic"]

#: Whether an answer may be that of a server which does not know yet.
Doubt = Callable[[Command], bool]

#: Seconds for which a server that left a question without an answer is not asked to confirm what another one says.
SILENT_SECONDS = 5.0
#: Seconds within which a question that fails has cost nothing.
_AT_ONCE = 0.1


def knows_no_topic(reply: Command) -> bool:
    """The doubt about a topic that does not exist."""
    return reply.code == ResponseCode.TOPIC_NOT_EXIST


class Turns:
    """The servers: one is asked while it works, the next one when it does not.

    :param clock: seconds, only going forward.
    """

    def __init__(self, servers: Iterable[str], clock: Callable[[], float]) -> None:
        self.clock = clock
        self.servers = list(servers)
        #: Servers that left their last question without an answer, and when.
        self._silent: dict[str, float] = {}
        #: Whose turn it is, by position.
        self.at = 0

    @property
    def turn(self) -> str:
        """Who is asked first."""
        return self.servers[self.at]

    def replace(self, servers: Iterable[str]) -> None:
        """Take a new list; who had the turn keeps it when it is still there."""
        old = self.servers[self.at] if self.servers else None
        self.servers = list(servers)
        self.at = self.servers.index(old) if old in self.servers else 0
        self._silent = {server: since for server, since in self._silent.items() if server in self.servers}

    def heard(self, server: str, since: float, *, answered: bool) -> None:
        """A server was asked at ``since``. One that refuses at once costs nothing, and may be asked again."""
        if answered:
            self._silent.pop(server, None)
        elif (now := self.clock()) - since > _AT_ONCE:
            self._silent[server] = now

    def silent(self, server: str) -> bool:
        """Whether a server has just left a question without an answer."""
        since = self._silent.get(server)
        return since is not None and self.clock() - since < SILENT_SECONDS

    def ask(self, doubted: Doubt | None = None, empty: Doubt | None = None) -> Question:
        """A question to them.

        :param doubted: whether an answer is believed only when every server that answers gives one like it: one that
            has just been started knows nothing.
        :param empty: whether an answer says nothing, though its code is that of success.
        """
        return Question(self, doubted, empty)


class Question:
    """One question, asked until an answer can be believed or everybody was asked who may answer."""

    def __init__(self, turns: Turns, doubted: Doubt | None, empty: Doubt | None = None) -> None:
        self._turns = turns
        self._doubted = doubted
        self._empty = empty
        self._servers = turns.servers
        self._at = turns.at
        #: When it was put to the server whose turn it is.
        self._since = turns.clock()
        #: Servers that may still be asked, the one whose turn it is among them.
        self.left = len(self._servers)
        #: The answer, once there is one.
        self.reply: Command | None = None
        #: What kept the last server that did not answer from it.
        self.error: TransportError | None = None

    @property
    def server(self) -> str | None:
        """Who is to be asked now; None: nobody any more."""
        return self._servers[self._at] if self.left else None

    @property
    def shares(self) -> int:
        """Among how many the time left is shared: with an answer in hand a part of it is for what comes after."""
        return self.left + (self.reply is not None)

    def failed(self, error: TransportError) -> None:
        """The server did not answer."""
        self.error = error
        at = self._at
        self._turns.heard(self._servers[at], self._since, answered=False)
        self._next()
        # Questions side by side fail together: the first of them moves on, the others find that done.
        if self._turns.servers is self._servers and self._turns.at == at:
            self._turns.at = self._at

    def answered(self, reply: Command) -> None:
        """The server answered."""
        self._turns.heard(self._servers[self._at], self._since, answered=True)
        doubtful = self.reply
        if self._doubted is not None and self._doubted(reply):
            # Of answers that are all doubtful one that says something is better than one that knows nothing.
            if doubtful is None or doubtful.code != ResponseCode.SUCCESS or (self._empty and self._empty(doubtful)):
                self.reply = reply
            self._next()
            return
        self.reply = reply
        self.left = 0
        if doubtful is not None and self._turns.servers is self._servers:
            self._turns.at = self._at  # it knows more than those before it

    def _next(self) -> None:
        self._at = (self._at + 1) % len(self._servers)
        self.left -= 1
        # Who is away would take all questions about new topics the time that they have.
        while self.left and self.reply is not None and self._turns.silent(self._servers[self._at]):
            self._at = (self._at + 1) % len(self._servers)
            self.left -= 1
        self._since = self._turns.clock()
