"""Names and units that users bring along from other clients: what of ours an unknown keyword may mean, and durations
that look like Java's milliseconds.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from rmq.protocol.errors import UnknownOption
from rmq.protocol.keywords import nearest

__all__ = ["looks_like_milliseconds", "meant", "no_setting"]

#: Of clients for Kafka, of rocketmq-client-python, of Spring and of Java where ours are called otherwise.
_WORDS_OF_OTHERS = {
    "compress_msg_body_over_howmuch": "compress_msg_body_over", "vip_channel_enabled": "vip_channel",
    "auto_offset_reset": "consume_from_where", "bootstrap_servers": "namesrv", "name_server": "namesrv",
    "name_server_address": "namesrv", "nameserver": "namesrv", "enable_auto_commit": "auto_commit",
    "max_poll_records": "pull_batch_size", "use_tls": "tls",
    "thread_count": "consume_thread_max", "consume_thread_number": "consume_thread_max",
    "message_batch_max_size": "consume_message_batch_max_size", "retries": "retry_times_when_send_failed",
    "request_timeout": "send_msg_timeout", "linger_ms": "batch_max_delay", "batch_size": "batch_max_bytes",
    "compression_type": "compress_type", "client_id": "instance_name",
}  # fmt: skip
_WORDS = {name.replace("_", ""): here for name, here in _WORDS_OF_OTHERS.items()}
#: A setting that is a minute at most by default and is given as so many seconds was meant in milliseconds.
_SHORT, _LONG = 60.0, 1_000.0


def meant(name: str, known: Collection[str]) -> str | None:
    """The setting of ours that somebody may mean: as Java spells it, as other clients call it, or the nearest one."""
    word = _WORDS.get(name.lower().replace("_", ""))
    return word if word in known else nearest(name, known)


def no_setting(name: str, known: Iterable[str]) -> UnknownOption:
    """What is raised for a setting that does not exist."""
    known = tuple(known)
    near = meant(name, known)
    error = UnknownOption(f"no setting {name!r}" + (f": did you mean {near}?" if near else ""))
    error.name, error.known = name, known
    return error


def looks_like_milliseconds(given: object, default: object) -> bool:
    """Whether a number of seconds was meant in Java's unit, by what the setting is without it."""
    if isinstance(given, bool) or not isinstance(given, (int, float)) or not isinstance(default, float):
        return False
    return given >= _LONG and 0 < default <= _SHORT
