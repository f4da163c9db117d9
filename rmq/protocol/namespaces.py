"""Namespaces: a prefix that clients put before topics and groups (protocol.md 7.7). Servers never see them apart."""

from __future__ import annotations

from rmq.protocol.names import DLQ_PREFIX, RETRY_PREFIX, is_system_group, is_system_topic

__all__ = ["unwrap", "wrap"]


def _split(resource: str) -> tuple[str, str]:
    prefix = ""
    rest = resource
    for mark in (RETRY_PREFIX, DLQ_PREFIX):
        if rest.startswith(mark):
            prefix += mark
            rest = rest[len(mark) :]
    return prefix, rest


def wrap(namespace: str | None, resource: str) -> str:
    """``ns%resource``, with ``%RETRY%`` or ``%DLQ%`` staying in front; system names and wrapped ones unchanged."""
    if not namespace or not resource or is_system_topic(resource) or is_system_group(resource):
        return resource
    prefix, rest = _split(resource)
    if rest.startswith(f"{namespace}%"):
        return resource
    return f"{prefix}{namespace}%{rest}"


def unwrap(resource: str, namespace: str | None = None) -> str:
    """Without its namespace.

    :param namespace: take off only this one; None: whatever stands before the first ``%``.
    """
    if not resource or is_system_topic(resource) or is_system_group(resource):
        return resource
    prefix, rest = _split(resource)
    if namespace is None:
        before, mark, after = rest.partition("%")
        return prefix + after if mark and before else resource
    if namespace and rest.startswith(f"{namespace}%"):
        return prefix + rest[len(namespace) + 1 :]
    return resource
