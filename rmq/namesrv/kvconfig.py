"""Key-value settings kept for clients and brokers, by namespace (Java: KVConfigManager).

Kept in ``kvConfig.json`` as ``{"configTable":{namespace:{key:value}}}``. A change is on the disk before it is answered
and before it is seen: a file that cannot be written changes nothing.
"""

from __future__ import annotations

import asyncio

import orjson

from rmq.protocol.codes import ResponseCode
from rmq.protocol.errors import ResponseError, StoreError
from rmq.runtime.backed_file import BackedFile
from rmq.runtime.world import World

__all__ = ["ORDER_TOPIC_CONFIG", "KVConfig"]

#: Namespace of ordered topics' queue maps; brokers get it whole with every registration.
ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"


class KVConfig:
    """The tables and their file.

    :param path: where ``kvConfig.json`` is; its folder is made when the first entry is put.
    """

    def __init__(self, world: World, path: str) -> None:
        self._world = world
        self._file = BackedFile(world, path)
        self._tables: dict[str, dict[str, str]] = {}
        self._writing = asyncio.Lock()

    async def load(self) -> None:
        """Read the file, or the copy beside it when the file is empty or damaged.

        :raises StoreError: the file is there and neither it nor its copy can be read.
        """
        try:
            await self._world.offload(self._file.load, self._parse)
        except OSError as error:
            raise StoreError(f"{self._file.path} cannot be read: {error.strerror or error}") from error

    def _parse(self, data: bytes) -> None:
        self._tables = _decode(data)

    def get(self, namespace: str, key: str) -> str | None:
        return self._tables.get(namespace, {}).get(key)

    def table(self, namespace: str) -> dict[str, str] | None:
        """A copy of one namespace, or None when there is none."""
        table = self._tables.get(namespace)
        return None if table is None else dict(table)

    async def put(self, namespace: str, key: str, value: str, most: int | None = None) -> None:
        """Make or change an entry.

        :param most: bytes that all of them may have in their file; None = any number.
        :raises ResponseError: SYSTEM_ERROR: they would have more.
        :raises StoreError: the file cannot be written; nothing changed.
        """
        async with self._writing:
            await self._replace(namespace, {**self._tables.get(namespace, {}), key: value}, most)

    async def delete(self, namespace: str, key: str) -> None:
        """Absent entries are fine. :raises StoreError: as :meth:`put`."""
        async with self._writing:
            if self.get(namespace, key) is not None:
                await self._replace(namespace, {k: v for k, v in self._tables[namespace].items() if k != key})

    async def _replace(self, namespace: str, table: dict[str, str], most: int | None = None) -> None:
        tables = {**self._tables, namespace: table}
        data = orjson.dumps({"configTable": tables}, option=orjson.OPT_INDENT_2)
        if most is not None and len(data) > most:
            raise ResponseError(
                ResponseCode.SYSTEM_ERROR,
                f"the key-value settings would have {len(data)} bytes, and may have {most} (maxKvBytes): delete some",
            )
        try:
            await self._file.replace(data)
        except OSError as error:
            raise StoreError(
                f"{self._file.path} cannot be written ({error.strerror or error}): nothing changed"
            ) from error
        self._tables = tables


def _decode(data: bytes) -> dict[str, dict[str, str]]:
    whole = orjson.loads(data)
    tables = whole.get("configTable") if isinstance(whole, dict) else None
    if tables is None:
        return {}
    if not isinstance(tables, dict) or not all(isinstance(t, dict) for t in tables.values()):
        raise ValueError("configTable is not a table of tables")
    return {ns: {k: v for k, v in table.items() if isinstance(v, str)} for ns, table in tables.items()}
