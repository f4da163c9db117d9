"""The two surfaces are one: the same names, the same arguments; and importing the package costs nothing."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType
from typing import Any, cast, get_args, get_type_hints

import pytest

import rmq
from rmq import aio
from rmq.client import blocking
from tests.support import mirror

CLASSES = [
    "AdminClient",
    "LitePullConsumer",
    "Producer",
    "PullConsumer",
    "PushConsumer",
    "ScheduledPullConsumer",
    "TransactionProducer",
]


def public(cls: type) -> dict[str, object]:
    return {name: inspect.getattr_static(cls, name) for name in dir(cls) if not name.startswith("_")}


@pytest.mark.parametrize("made", [rmq, aio])
def test_a_client_says_who_it_is(made: ModuleType) -> None:
    assert repr(made.PushConsumer("orders", namesrv="127.0.0.1:1")) == "<PushConsumer orders, not started>"
    assert repr(made.AdminClient(namesrv="127.0.0.1:1")) == "<AdminClient, not started>"


@pytest.mark.parametrize("name", CLASSES)
def test_both_have_the_same_methods_with_the_same_arguments(name: str) -> None:
    asynchronous, plain = getattr(aio, name), getattr(blocking, name)
    theirs = public(asynchronous).keys()
    assert public(plain).keys() == theirs
    for method in sorted(theirs):
        one, other = inspect.getattr_static(asynchronous, method), inspect.getattr_static(plain, method)
        assert isinstance(one, property) == isinstance(other, property), method
        if isinstance(one, property):
            continue
        assert not inspect.iscoroutinefunction(other)
        first = [(p.name, p.kind, p.default) for p in inspect.signature(one).parameters.values()]
        second = [(p.name, p.kind, p.default) for p in inspect.signature(other).parameters.values()]
        assert first == second, method


@pytest.mark.parametrize("name", CLASSES)
def test_what_the_sdk_asks_of_its_own_clients_is_not_the_applications(name: str) -> None:
    arguments: dict[str, tuple[object, ...]] = {"AdminClient": (), "TransactionProducer": ("g", print)}
    for home in (aio, blocking):
        made = getattr(home, name)(*arguments.get(name, ("g",)), namesrv="127.0.0.1:1")
        shown = {attribute for attribute in vars(made) if not attribute.startswith("_")}
        # Tools that stand on an admin client take the time where it does.
        assert shown == ({"group"} if name != "AdminClient" else {"world"} if home is aio else set())


def test_the_plain_methods_are_those_of_the_asyncio_classes() -> None:
    assert mirror.PLACE.read_text() == mirror.text(), "run make mirror"


@pytest.mark.parametrize("name", CLASSES)
def test_every_public_name_is_documented(name: str) -> None:
    for cls in (getattr(aio, name), getattr(rmq, name)):
        assert inspect.getdoc(cls)
        for method, value in public(cls).items():
            assert inspect.getdoc(value), f"{cls.__module__}.{name}.{method}"


def test_both_export_the_same_names() -> None:
    assert set(rmq.__all__) == set(aio.__all__)
    for name in rmq.__all__:
        shared = getattr(rmq, name) is getattr(aio, name)
        assert shared == (name not in (*CLASSES, "Transaction")), name
    with pytest.raises(AttributeError, match="LitePushConsumer"):
        rmq.LitePushConsumer  # noqa: B018


def test_importing_the_package_loads_nothing_else() -> None:
    """Field case B137."""
    code = (
        "import sys, rmq\n"
        "heavy = [m for m in sys.modules if m.startswith('rmq.') or m in ('asyncio', 'orjson', 'ssl', 'logging')]\n"
        "assert not heavy, heavy\n"
        "assert 'Producer' in dir(rmq)\n"
        "from rmq import Message\n"
        "assert 'asyncio' not in sys.modules\n"
        "from rmq import Producer\n"
        "loaded = [m for m in sys.modules if m.startswith(('rmq.broker', 'rmq.namesrv', 'rmq.cli.', 'rmq.testing'))]\n"
        "assert not loaded, loaded\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)


@pytest.mark.parametrize("made", [rmq, aio])
@pytest.mark.parametrize("name", CLASSES)
def test_what_public_methods_take_and_return_can_be_imported(name: str, made: ModuleType) -> None:
    known = {getattr(made, public_name) for public_name in made.__all__}
    for method, value in public(getattr(made, name)).items():
        function = value.fget if isinstance(value, property) else inspect.unwrap(cast(Any, value))
        hints = {name: hint for name, hint in get_type_hints(function).items() if name != "unknown"}  # takes nothing
        for hint in classes_of(hints):
            if hint.__module__.startswith("rmq."):
                assert hint in known, f"{name}.{method}: {hint}"


def classes_of(hints: object) -> Iterator[type]:
    """The classes in hints, however deep."""
    if isinstance(hints, type) and not get_args(hints):
        yield hints
    parts = hints.values() if isinstance(hints, dict) else hints if isinstance(hints, list) else get_args(hints)
    for part in parts:
        yield from classes_of(part)
