"""Appends with which more comes along than the entries in the messages' own queues: their units in
``consumequeue_ext``, and entries in the queues of others (multi-dispatch)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from rmq.broker.store.log.append import Packed, PartlyAppended, pack
from rmq.broker.store.log.commit_log import CommitLog
from rmq.broker.store.log.stamps import stamped
from rmq.broker.store.queues.ext_queues import ExtUnits
from rmq.broker.store.queues.multi_dispatch import Copies, MultiDispatch
from rmq.broker.store.settings import StoreSettings
from rmq.broker.store.state import Put, Span
from rmq.protocol.errors import StoreError

__all__ = ["AppendBeside"]


class _Commit(Protocol):
    def __call__(self, packed: Packed, *, keys_later: bool) -> Span: ...


class AppendBeside:
    """What ``Store.append`` does where one or both of these are switched on.

    :param commit: ``Store.commit``.
    """

    def __init__(
        self,
        log: CommitLog,
        settings: StoreSettings,
        units: ExtUnits | None,
        multi_dispatch: MultiDispatch | None,
        commit: _Commit,
    ) -> None:
        self._log = log
        self._settings = settings
        self._units = units
        self._multi_dispatch = multi_dispatch
        self._commit = commit

    def append(self, puts: Sequence[Put], now_ms: int, *, together: bool, keys_later: bool) -> Span:
        """``Store.append``; messages behind one that names queues of others are another append.

        :raises PartlyAppended: some are stored already.
        """
        if self._multi_dispatch is None:
            return self._append(puts, now_ms, together, [], keys_later)
        spans: list[Span] = []
        for group, copies in self._multi_dispatch.address(puts):
            try:
                spans.append(self._append(group, now_ms, together, copies, keys_later))
            except Exception as error:
                if not spans:
                    raise
                raise PartlyAppended(_joined(spans), error) from error
        return _joined(spans)

    def _append(self, puts: Sequence[Put], now_ms: int, together: bool, copies: Copies, keys_later: bool) -> Span:
        log, units = self._log, self._units
        stamp = stamped(now_ms, log.stamp)
        ready = puts if units is None else units.puts(puts, stamp)
        try:
            if log.gate:
                raise StoreError(f"the store takes no messages: {log.gate_reason()}")
            sums = self._settings.checksums_on_append and self._settings.checksums
            packed = pack(ready, log.place, stamp, together=together, sums=sums)
            if copies and self._multi_dispatch is not None:
                packed.deltas.extend(self._multi_dispatch.deltas(puts, packed.offsets, copies))
            return self._commit(packed, keys_later=keys_later)
        except BaseException:
            if units is not None:
                units.take_back()
            raise


def _joined(spans: list[Span]) -> Span:
    """Several appends in a row as one."""
    if len(spans) == 1:
        return spans[0]
    offsets = [offset for span in spans for offset in span.offsets]
    touched = dict.fromkeys(queue for span in spans for queue in span.touched)
    return Span(spans[0].start, spans[-1].end, offsets, list(touched))
