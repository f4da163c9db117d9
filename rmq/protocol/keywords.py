"""Keyword arguments that nobody takes, refused with the name of the nearest that somebody does.

Python itself does so from 3.13 on. What is called seldom is wrapped (:func:`keywords`); what is called for every
message declares ``**unknown: Unpack[NoOthers]``: it costs an empty dict, is nothing to type checkers, and is not
shown.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Callable, Collection, Iterable
from typing import Any, TypedDict, TypeVar, cast

from rmq.protocol.errors import UnknownOption

__all__ = ["NoOthers", "keywords", "names_of", "nearest", "no_such"]

T = TypeVar("T")
_OTHERS = "unknown"
#: What Java's names have behind ours.
_UNITS = ("timemillis", "millis", "ms")
#: So many arguments are listed where none is near.
_FEW = 8


class NoOthers(TypedDict):
    """No keyword, as type checkers see ``**unknown: Unpack[NoOthers]``."""


def nearest(name: str, known: Collection[str]) -> str | None:
    """The one of some names that is meant: as Java spells it, the most similar one, or the only one with that word."""
    plain = {one.replace("_", ""): one for one in known}
    spelt = name.lower().replace("_", "")
    for unit in ("", *_UNITS):
        if spelt.endswith(unit) and (found := plain.get(spelt.removesuffix(unit))) is not None:
            return found
    if similar := difflib.get_close_matches(name, known, 1):
        return similar[0]
    with_it = [one for one in known if name in one.split("_")]
    return with_it[0] if len(with_it) == 1 else None


def names_of(function: Callable[..., Any]) -> tuple[list[str], bool]:
    """The keywords that a function or a class takes, and whether it takes any other."""
    arguments = inspect.signature(function).parameters.values()
    named = [one.name for one in arguments if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)]
    return named, any(one.kind is one.VAR_KEYWORD for one in arguments)


def no_such(function: Callable[..., Any], unknown: Iterable[str], others: Iterable[str] = ()) -> UnknownOption:
    """What is raised for keywords that a function or a class does not take.

    :param others: what it takes beside those that it declares.
    """
    name = next(iter(unknown))
    known = [*(one for one in names_of(function)[0] if one != "self"), *others]
    near = nearest(name, known)
    if near is not None:
        hint = f"; did you mean {near!r}?"
    elif known and len(known) <= _FEW:
        hint = f"; it takes {', '.join(known)}"
    else:
        hint = ""
    return UnknownOption(f"{_called(function)}() has no argument {name!r}{hint}")


def _called(function: Callable[..., Any]) -> str:
    return function.__qualname__.rpartition("<locals>.")[2].removesuffix(".__init__")


def keywords(what: T) -> T:
    """Have a function, or the constructor and the public methods of a class, name the argument that was meant.

    Those that take any keyword are their own business.
    """
    if not isinstance(what, type):
        return cast(T, _refusing(what))
    for name, method in list(vars(what).items()):
        if inspect.isfunction(method) and (name == "__init__" or not name.startswith("_")):
            setattr(what, name, _refusing(method))
    return what


def _refusing(function: Any) -> Any:
    signature = inspect.signature(function)
    last = next(reversed(list(signature.parameters.values())), None)
    if last is not None and last.kind is last.VAR_KEYWORD:
        if last.name == _OTHERS:
            shown = [one for one in signature.parameters.values() if one is not last]
            function.__signature__ = signature.replace(parameters=shown)
        return function
    if last is None or last.name == "self":
        return function
    known = frozenset(names_of(function)[0])
    if inspect.iscoroutinefunction(function):

        @functools.wraps(function)
        async def call_later(*given: Any, **named: Any) -> Any:
            if named and not known.issuperset(named):
                raise no_such(function, named.keys() - known)
            return await function(*given, **named)

        return call_later

    @functools.wraps(function)
    def call(*given: Any, **named: Any) -> Any:
        if named and not known.issuperset(named):
            raise no_such(function, named.keys() - known)
        return function(*given, **named)

    return call
