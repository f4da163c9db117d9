"""One table of settings per daemon; files, environment, dumps, live updates and the reference page come from it.

::

    class NamesrvSettings(Settings):
        listen_port: int = setting(9876, key="listenPort", minimum=0, maximum=65535, doc="Port to listen on.")
        order_message_enable: bool = setting(False, key="orderMessageEnable", live=True, doc="...")
        inert = {"serverWorkerThreads": "there are no worker threads"}

A number has two ranges. Outside ``minimum`` and ``maximum`` nobody can mean it: an error. Outside ``lowest`` and
``highest`` Java starts with it and serves, so it is no error at start: a warning says which value is used instead. An
update is refused either way: an operator must not believe in a change that never was.

Later sources win: defaults, Java's own variables (NAMESRV_ADDR), the file, ``RMQ_*`` variables, the command line.
"""

from __future__ import annotations

import copy
import difflib
import logging
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Any, ClassVar, NamedTuple, Self, TypeVar, cast

import javaproperties

from rmq.config import values
from rmq.config.sources import Given, environment_name, from_environment, parse_update, read_file
from rmq.protocol.errors import ConfigError

__all__ = ["INT_MAX", "LONG_MAX", "Outside", "Setting", "Settings", "setting"]

log = logging.getLogger(__name__)

#: The largest of Java's ``int`` and ``long``: it takes no notice of larger numbers.
INT_MAX = (1 << 31) - 1
LONG_MAX = (1 << 63) - 1

T = TypeVar("T")


class Outside(NamedTuple):
    """A value that Java starts with, and that cannot be used as it is."""

    #: What is used instead, and the words for it.
    used: Any
    told: str
    #: What should stand there.
    expected: str


@dataclass(slots=True)
class Setting:
    """One line of the table."""

    default: Any
    key: str
    doc: str
    unit: str
    live: bool
    important: bool
    minimum: float | None
    maximum: float | None
    lowest: int | None
    highest: int | None
    shape: Callable[[str], Outside | None] | None
    longest: int
    env: tuple[str, ...]
    also: tuple[str, ...]
    printed: str
    secret: bool
    attribute: str = ""
    kind: type = str
    optional: bool = False

    def check(self, value: Any) -> Any:
        """:raises ValueError: outside its bounds; says what is expected."""
        if isinstance(value, str):
            if fault := values.fault(value, self.longest):
                raise ValueError(fault)
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            if self.minimum is not None and value < self.minimum:
                raise ValueError(f"at least {self.minimum:.15g} is expected")
            if self.maximum is not None and value > self.maximum:
                raise ValueError(f"at most {self.maximum:.15g} is expected")
        return value

    def outside(self, value: Any) -> Outside | None:
        """What is used instead of a value that passed :meth:`check`; None when it is fine."""
        if isinstance(value, str):
            return self.shape(value) if self.shape is not None else None
        if self.lowest is not None and value is not None and value < self.lowest:
            return Outside(self.lowest, str(self.lowest), f"at least {self.lowest} is expected")
        if self.highest is not None and value is not None and value > self.highest:
            return Outside(self.highest, str(self.highest), f"at most {self.highest} is expected")
        return None

    def read(self, given: Given) -> Any:
        """:raises ConfigError: not of its type, or outside its bounds."""
        if given.value is None or (self.optional and not given.value.strip()):
            if self.optional:
                return None
            if self.kind is str:
                return ""
            raise ConfigError(f"{given.origin}: {self.key} has no value: {values.expected(self.kind)} is expected")
        try:
            value = values.parse(self.kind, given.value)
        except ValueError:
            raise given.refused(f"{values.expected(self.kind)} is expected") from None
        try:
            return self.check(value)
        except ValueError as error:
            raise given.refused(str(error)) from None


def setting(
    default: T,
    *,
    key: str,
    doc: str = "",
    unit: str = "",
    live: bool = False,
    important: bool = False,
    minimum: float | None = None,
    maximum: float | None = None,
    lowest: int | None = None,
    highest: int | None = None,
    shape: Callable[[str], Outside | None] | None = None,
    longest: int = values.LONGEST,
    env: tuple[str, ...] = (),
    also: tuple[str, ...] = (),
    printed: str = "",
    secret: bool = False,
) -> T:
    """A line of a settings table.

    :param default: the value when no source gives one.
    :param key: Java's name.
    :param unit: of the value, for people (``ms``, ``bytes``).
    :param live: may be changed while running (request codes 25 and 318).
    :param important: shown by ``-m``.
    :param minimum: below it, and
    :param maximum: above it nobody can mean it: refused everywhere.
    :param lowest: below it, and
    :param highest: above it a start uses this end instead, and says so; an update is refused.
    :param shape: the same for a text: what is used instead of it, or None when it is fine.
    :param longest: bytes of UTF-8 of a text; see also :func:`rmq.config.values.fault`.
    :param env: variables of Java's that set it, below the file.
    :param also: other keys read as this one.
    :param printed: the key in dumps, where Java prints another than it reads (``isEnableBatchPush``).
    :param secret: never dumped.
    """
    line = Setting(
        default, key, doc, unit, live, important, minimum, maximum, lowest, highest, shape, longest, env, also,
        printed or key, secret,
    )  # fmt: skip
    return cast(T, line)


class Settings:
    """Base of the settings classes; see the module's docstring."""

    #: Java keys that are known and have no effect here: key -> why.
    inert: ClassVar[Mapping[str, str]] = {}
    #: Those of them whose values are nobody's business: never dumped.
    inert_secrets: ClassVar[frozenset[str]] = frozenset()
    #: Begins the environment variables that set keys: ``RMQ_`` + ``BROKER_NAME``.
    env_prefix: ClassVar[str] = "RMQ_"
    #: Keys that cannot be changed while running, whatever their ``live`` says, and end an update (16 in Java).
    black_list: ClassVar[frozenset[str]] = frozenset({"configBlackList"})

    _table: ClassVar[dict[str, Setting]] = {}
    _by_key: ClassVar[dict[str, Setting]] = {}

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        table: dict[str, Setting] = {}
        for base in reversed(cls.__mro__[1:]):
            table.update(base.__dict__.get("_table", {}))
        hints = typing.get_type_hints(cls)
        for name, line in list(vars(cls).items()):
            if isinstance(line, Setting):
                line.attribute = name
                line.kind, line.optional = _kind(cls, name, hints.get(name))
                table[name] = line
                delattr(cls, name)
        by_key: dict[str, Setting] = {}
        for line in table.values():
            for key in (line.key, *line.also):
                if key in by_key and by_key[key] is not line:
                    raise TypeError(f"{cls.__name__}: the key {key} is declared twice")
                by_key[key] = line
        doubled = [key for key in cls.inert if key in by_key]
        if doubled:
            raise TypeError(f"{cls.__name__}: {', '.join(doubled)} cannot be both a setting and without effect")
        cls._table = table
        cls._by_key = by_key

    def __init__(self, **attributes: Any) -> None:
        """Defaults, with values by attribute name.

        :raises ConfigError: a value that is not allowed.
        :raises TypeError: no such attribute.
        """
        self._origins: dict[str, str] = {}
        self._explicit: dict[str, str] = {}
        #: Told the keys that :meth:`update` applied.
        self.on_update: list[Callable[[list[str]], None]] = []
        for name, line in self._table.items():
            setattr(self, name, line.default)
        for name, value in attributes.items():
            line_given = self._table.get(name)
            if line_given is None:
                raise TypeError(f"{type(self).__name__} has no setting {name}")
            try:
                setattr(self, name, line_given.check(value))
            except ValueError as error:
                raise Given(line_given.key, values.text(value), "given").refused(str(error)) from None
            self._origins[line_given.key] = "given"

    # -- in -----------------------------------------------------------------------------------------------------

    @classmethod
    def from_sources(
        cls,
        file: str | None = None,
        env: Mapping[str, str] | None = None,
        overrides: Mapping[str, str] | None = None,
    ) -> Self:
        """Read every source.

        :param file: path of a .properties or YAML file (``-c``).
        :param env: the environment.
        :param overrides: key -> text from the command line.
        :raises ConfigError: a key that does not exist (with a suggestion), a value of the wrong type, a file that
            cannot be read: says where.
        """
        made = cls()
        env = env or {}
        java_names = {name: line.key for line in cls._table.values() for name in line.env}
        own_names = {environment_name(cls.env_prefix, line.key): line.key for line in cls._table.values()}
        made._take(from_environment(env, java_names))
        if file is not None:
            made._take(read_file(file), explicit=True)
        made._take(from_environment(env, own_names))
        made._warn_about(env, own_names)
        made._take([Given(key, text, "command line") for key, text in (overrides or {}).items()])
        made._take(made.named_elsewhere())
        return made

    def named_elsewhere(self) -> list[Given]:
        """What a file says that one of the settings names; it goes before everything else.

        :raises ConfigError: it cannot be read.
        """
        return []

    def _take(self, given: list[Given], *, explicit: bool = False) -> None:
        without_effect: dict[str, str] = {}
        for item in given:
            line = self._by_key.get(item.key)
            if line is None:
                if item.key not in self.inert:
                    raise ConfigError(self._unknown(item))
                without_effect[item.key] = _without_effect(item)
            else:
                value = line.read(item)
                outside = line.outside(value)
                if outside is not None:
                    expected, told = outside.expected, outside.told
                    where, given_text = item.origin, values.shown(item.value)
                    log.warning("%s: %s=%s: %s: %s is used", where, item.key, given_text, expected, told)
                    value = outside.used
                setattr(self, line.attribute, value)
                self._origins[line.key] = item.origin
            if explicit and item.value is not None:
                self._explicit[line.key if line is not None else item.key] = item.value.strip()
        self._tell_without_effect(without_effect)

    def _tell_without_effect(self, keys: Iterable[str]) -> None:
        """Name the known keys that do nothing here in one line, whoever set them counted on something."""
        by_reason: dict[str, list[str]] = {}
        for key in keys:
            by_reason.setdefault(self.inert[key], []).append(key)
        if by_reason:
            told = "; ".join(f"{', '.join(some)} ({why})" for why, some in by_reason.items())
            log.warning("these settings have no effect here: %s", told)

    def _unknown(self, item: Given) -> str:
        near = self._nearest(item.key)
        hint = f"; did you mean {near}?" if near else ""
        key = item.key if item.key.isprintable() else values.shown(item.key)
        return f"{item.origin}: {key} is not a key{hint}"

    def _nearest(self, key: str) -> str | None:
        lowered = {known.lower(): known for known in (*self.inert, *self._by_key)}
        near = difflib.get_close_matches(key.lower(), lowered, n=1, cutoff=0.6)
        return lowered[near[0]] if near else None

    def _warn_about(self, env: Mapping[str, str], names: Mapping[str, str]) -> None:
        """A variable that looks like one of ours and is none: another daemon's perhaps, so no error."""
        for name in env:
            if name.startswith(self.env_prefix) and name not in names:
                near = difflib.get_close_matches(name, names, n=1, cutoff=0.85)
                if near:
                    log.warning("environment variable %s has no effect; did you mean %s?", name, near[0])

    # -- out ----------------------------------------------------------------------------------------------------

    @classmethod
    def lines(cls) -> Iterator[Setting]:
        """The table, in order of declaration."""
        yield from cls._table.values()

    @classmethod
    def line(cls, key: str) -> Setting | None:
        """The line of a key."""
        return cls._by_key.get(key)

    def get(self, key: str) -> Any:
        """The value of a key.

        :raises KeyError: no such key.
        """
        return getattr(self, self._by_key[key].attribute)

    def origin(self, key: str) -> str:
        """Where a key's value comes from: ``default``, ``<file> line <n>``, ``environment variable <name>`` ..."""
        return self._origins.get(key, "default")

    def dump(self, *, important: bool = False) -> str:
        """``key=value`` lines as Java prints them (``-p``, ``-m``, requests 26 and 319); what is None is left out.

        Values are not escaped, as in Java (store-and-broker.md 10.1). Known keys without effect follow when the file
        gives them, unless only the important ones are asked for.
        """
        shown = {} if important else self.inert.keys() - self.inert_secrets
        given = {key: text for key, text in self._explicit.items() if key in shown}
        lines = "".join(
            f"{line.printed}={values.text(value)}\n"
            for name, line in self._table.items()
            if (line.important or not important) and not line.secret and (value := getattr(self, name)) is not None
        )
        return lines + "".join(f"{key}={text}\n" for key, text in given.items())

    def to_properties(self) -> bytes:
        """What the file and live updates set, as a .properties file that reads back as it is."""
        return javaproperties.dumps(self._explicit, timestamp=False).encode("iso-8859-1")

    def validate(self) -> None:
        """Refuse what does not hang together, at start and before an update.

        :raises ConfigError: made by :meth:`refused`: names the place, the key, its value and what to do.
        """

    def refused(self, key: str, expected: str) -> ConfigError:
        """The error for the value that a key has now, with the place it came from.

        :param expected: what is wrong, or what should stand there.
        """
        return Given(key, values.text(self.get(key)), self.origin(key)).refused(expected)

    # -- live ---------------------------------------------------------------------------------------------------

    def forbidden(self, content: str) -> list[str]:
        """The black-listed keys in an update: with any of them nothing is applied (code 16 in Java)."""
        listed = set(self.black_list)
        extra = self._by_key.get("configBlackList")
        if extra is not None:
            listed.update(item.strip() for item in str(getattr(self, extra.attribute)).split(";"))
        return [given.key for given in parse_update(content) if given.key in listed]

    def update(self, content: str) -> list[str]:
        """Apply a .properties text while running: all of it or nothing.

        Keys that do not exist are dropped, as in Java; known ones without effect are kept for the file.

        :returns: the keys that were applied.
        :raises ConfigError: a black-listed key, a key that needs a restart, a value of the wrong type or that would not
            be used as it is.
        """
        refused = self.forbidden(content)
        if refused:
            raise ConfigError(f"{', '.join(refused)}: cannot be changed while running")
        news: list[tuple[Setting, Any, Given]] = []
        kept: dict[str, str] = {}
        for given in parse_update(content):
            line = self._by_key.get(given.key)
            if line is None:
                if given.key in self.inert:
                    kept[given.key] = _without_effect(given)
                continue
            value = line.read(given)
            outside = line.outside(value)
            if outside is not None and value != getattr(self, line.attribute):
                raise given.refused(outside.expected)
            if not line.live and value != getattr(self, line.attribute):
                raise ConfigError(f"{given.key}: cannot be changed while running: set it in the file and restart")
            news.append((line, value, given))
        trial = copy.copy(self)
        trial._origins = dict(self._origins)
        for line, value, given in news:
            setattr(trial, line.attribute, value)
            trial._origins[line.key] = given.origin
        trial.validate()
        for line, value, given in news:
            setattr(self, line.attribute, value)
            self._origins[line.key] = "update"
            self._explicit[line.key] = (given.value or "").strip()
        self._explicit.update(kept)
        applied = list(dict.fromkeys(line.key for line, _, _ in news))
        for told in self.on_update:
            told(applied)
        return applied


def _without_effect(given: Given) -> str:
    """The value of a known key without effect: it is kept for the file and shown, so it must be writable.

    :raises ConfigError: it is not.
    """
    value = (given.value or "").strip()
    if fault := values.fault(value):
        raise given.refused(fault)
    return value


def _kind(cls: type, name: str, hint: Any) -> tuple[type, bool]:
    """(type, may be None) of an annotated setting."""
    if typing.get_origin(hint) in (UnionType, typing.Union):
        inner = [arg for arg in typing.get_args(hint) if arg is not type(None)]
        if len(inner) == 1:
            kind, _ = _kind(cls, name, inner[0])
            return kind, True
    elif isinstance(hint, type):
        try:
            values.expected(hint)
        except KeyError:
            pass
        else:
            return hint, False
    raise TypeError(f"{cls.__name__}.{name}: {hint!r} is not a type a setting may have")
