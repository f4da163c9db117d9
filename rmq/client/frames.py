"""The frames of one producer's sends, signed where it has an account. Pure; runs on the caller's thread.

The header of a send (protocol.md 2.2) differs from one message to the next in seven of its fields. The rest is encoded
once per producer, topic and queue::

    {"code":310,"extFields":{"a":group,"b":topic,"c":"TBW102","d":"4","e":queue,"j":"0","k":"false","m":"false",
    "n":broker,"f":sysFlag,"g":born,"h":flag,"i":properties},"flag":0,"language":"PYTHON","opaque":...,
    "serializeTypeCurrentRPC":"JSON","version":409}

A signature (protocol.md 6.2) is over the values of all fields, by the order of their names, and over the body: account
(and token), ``a`` to ``e``, the four that differ, ``j`` to ``n``. Account and signature stand behind the other fields.
"""

from __future__ import annotations

from struct import Struct
from typing import TypeVar

import orjson

from rmq.auth.credentials import Credentials
from rmq.client.message import MessageQueue
from rmq.client.sending import PreparedSend
from rmq.client.settings import ProducerSettings
from rmq.protocol.command import VERSION
from rmq.protocol.signature import ACCESS_KEY, SECURITY_TOKEN, SIGNATURE, sign

__all__ = ["SendFrames"]

T = TypeVar("T")

_LENGTHS = Struct(">II")
_ONEWAY = 2
#: Queues whose constant parts are kept: no producer has so many.
_MOST_KEPT = 65_536

#: A queue, and the request code.
_Kind = tuple[MessageQueue, int]


class SendFrames:
    """Makes the frames of one producer; any thread may use it."""

    def __init__(self, group: str, settings: ProducerSettings) -> None:
        self._group = group
        self._settings = settings
        self._heads: dict[_Kind, bytes] = {}
        self._signing: _Signing | None = None

    def frame(
        self, send: PreparedSend, queue: MessageQueue, opaque: int, account: Credentials | None, *, oneway: bool = False
    ) -> bytes:
        """The whole frame of one attempt.

        :param account: signs it; None: it goes unsigned.
        """
        kind = queue, send.code
        head = self._heads.get(kind)
        if head is None:
            head = _keep(self._heads, kind, self._head(queue, send.code))
        header = (
            b'%b"f":"%d","g":"%d","h":"%d","i":%b%b},"flag":%d,"language":"PYTHON","opaque":%d,'
            b'"serializeTypeCurrentRPC":"JSON","version":%d}'
            % (
                head,
                send.sys_flag,
                send.born,
                send.flag,
                send.properties,
                b"" if account is None else self._signature(account, send, kind),
                _ONEWAY if oneway else 0,
                opaque,
                VERSION,
            )
        )
        size = len(header)
        body = send.body
        return b"".join((_LENGTHS.pack(4 + size + len(body), size), header, body))

    def _head(self, queue: MessageQueue, code: int) -> bytes:
        return b'{"code":%d,"extFields":%b,' % (code, orjson.dumps(self._fields(queue, code))[:-1])

    def _fields(self, queue: MessageQueue, code: int) -> dict[str, str]:
        """What all sends of a kind to a queue have in common."""
        return {
            "a": self._group,
            "b": queue.topic,
            "c": self._settings.create_topic_key,
            "d": str(self._settings.default_topic_queue_nums),
            "e": str(queue.queue_id),
            "j": "0",
            "k": "true" if self._settings.unit_mode else "false",
            "m": "true" if code == 320 else "false",
            "n": queue.broker_name,
        }

    def _signature(self, account: Credentials, send: PreparedSend, kind: _Kind) -> bytes:
        signing = self._signing
        if signing is None or signing.account is not account:  # of a client that was started anew
            signing = self._signing = _Signing(account)
        around = signing.around.get(kind)
        if around is None:
            around = _keep(signing.around, kind, signing.values_around(self._fields(*kind)))
        return signing.fields(send, around)


class _Signing:
    """Signs sends as one account.

    :ivar around: of each kind of send, the signed values before those that differ, and behind them.
    """

    def __init__(self, account: Credentials) -> None:
        self.account = account
        self.around: dict[_Kind, tuple[str, str]] = {}
        own = {ACCESS_KEY: account.access_key}
        if account.security_token is not None:
            own[SECURITY_TOKEN] = account.security_token
        self._own = "".join(own[name] for name in sorted(own))
        self._begin = b',%b,"%b":"' % (orjson.dumps(own)[1:-1], SIGNATURE.encode())

    def values_around(self, fields: dict[str, str]) -> tuple[str, str]:
        before, behind = "abcde", "jkmn"
        return self._own + "".join(map(fields.__getitem__, before)), "".join(map(fields.__getitem__, behind))

    def fields(self, send: PreparedSend, around: tuple[str, str]) -> bytes:
        """The fields to add to those of a send."""
        before, behind = around
        differ = f"{send.sys_flag}{send.born}{send.flag}{orjson.loads(send.properties)}"
        signed = f"{before}{differ}{behind}".encode("utf-8", "replace") + send.body
        return b'%b%b"' % (self._begin, sign(signed, self.account.secret_key).encode())


def _keep(kept: dict[_Kind, T], key: _Kind, value: T) -> T:
    if len(kept) > _MOST_KEPT:
        kept.clear()
    kept[key] = value
    return value
