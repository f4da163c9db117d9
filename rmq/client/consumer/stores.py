"""Which store a consumer's offsets have: its application's own, a file, or the brokers."""

from __future__ import annotations

from rmq.client.consumer.offsets import LocalFileOffsetStore, OffsetStore, RemoteBrokerOffsetStore
from rmq.client.consumer.own_offsets import OwnOffsetStore
from rmq.client.instance import ClientInstance
from rmq.client.settings import ConsumerSettings

__all__ = ["offset_store"]


def offset_store(instance: ClientInstance, group: str, settings: ConsumerSettings) -> OffsetStore:
    """The store of one member, not open yet."""
    if settings.offset_store is not None:
        return OwnOffsetStore(instance, group, settings.offset_store)
    if settings.broadcasting:
        return LocalFileOffsetStore(
            instance.world,
            settings.offset_store_dir,
            instance.client_id,
            group,
            ignore_damage=settings.ignore_damaged_offset_file,
        )
    return RemoteBrokerOffsetStore(instance, group)
