"""Applications by name (``module:app``) and out of YAML files, for ``rmq run`` and for your own programs."""

from __future__ import annotations

import builtins
import importlib
import os
from typing import Any

import msgspec

from rmq.app.application import App
from rmq.app.handler import BadPayload, OnBadPayload
from rmq.app.topic import Topic
from rmq.config.bounded_yaml import bound_yaml
from rmq.protocol.errors import ClientError, ConfigError
from rmq.runtime.named_file import read_named

__all__ = ["app_of", "load", "named"]

#: Bytes of a file.
_LARGEST = 1 << 20


class TopicEntry(msgspec.Struct, forbid_unknown_fields=True):
    topic: str
    payload: str = "bytes"

    def made(self) -> Topic[Any]:
        return Topic(self.topic, named(self.payload, "payload"))


class ListenerEntry(TopicEntry, forbid_unknown_fields=True, kw_only=True):
    call: str
    expression: str = "*"
    sql: bool = False
    group: str | None = None
    send_to: TopicEntry | None = None
    reply: str | None = None
    on_bad_payload: str = ""
    options: dict[str, Any] = {}


class AppEntry(msgspec.Struct, forbid_unknown_fields=True):
    """The keys of a file, as :class:`~rmq.app.App` and its listeners take them; ``call``, ``payload``, ``lifespan`` and
    ``middlewares`` name what is in Python, as ``module:name`` (``payload`` also as ``str``, ``dict`` ...).
    """

    app: str
    listeners: list[ListenerEntry]
    health: str | None = None
    lifespan: str | None = None
    middlewares: list[str] = []
    producer: dict[str, Any] = {}
    client: dict[str, Any] = {}


def named(text: str, what: str) -> Any:
    """What ``module:name`` (or ``module:name.name``) is, or the built-in of that name.

    :param what: which key says it, for errors.
    :raises ConfigError: there is no such module, nothing of that name in it, or importing it failed.
    """
    module, colon, path = text.partition(":")
    if not colon:
        if isinstance(found := getattr(builtins, text, None), type):
            return found
        raise ConfigError(f"{what} is {text!r}: give module:name")
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        raise ConfigError(f"{what} is {text!r}, and {module} cannot be imported: {error}") from error
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise ConfigError(f"{what} is {text!r}, and there is no {name} in {found!r:.100}") from None
    return found


def load(path: str | os.PathLike[str]) -> App:
    """The application that a YAML file describes; docs/app.md has its keys.

    :raises ConfigError: the file cannot be read or says what cannot be used, with the file and the place in it.
    """
    where = os.fspath(path)
    try:
        text = read_named(where, _LARGEST).decode("utf-8-sig")
        bound_yaml(where, text)
        entry = msgspec.yaml.decode(text, type=AppEntry)
    except OSError as error:
        raise ConfigError(f"{where} cannot be read: {error.strerror}") from error
    except UnicodeDecodeError:
        raise ConfigError(f"{where}: this is no UTF-8: save the file in UTF-8") from None
    except ConfigError:
        raise
    except Exception as error:  # PyYAML's own, and those of what it makes dates and numbers of
        raise ConfigError(f"{where}: {' '.join(str(error).split())}") from error
    try:
        return _made(entry)
    except (ClientError, ConfigError, TypeError) as error:  # a setting of clients that is a key of its own
        raise ConfigError(f"{where}: {error}") from error


def _made(entry: AppEntry) -> App:
    lifespan = named(entry.lifespan, "lifespan") if entry.lifespan is not None else None
    app = App(entry.app, lifespan=lifespan, health=entry.health, producer=entry.producer, **entry.client)  # type: ignore[arg-type]
    for name in entry.middlewares:
        app.middleware(named(name, "middlewares"))
    for number, one in enumerate(entry.listeners):
        where = f"listeners[{number}]"
        try:
            app.listener(
                one.made(),
                one.expression,
                group=one.group,
                sql=one.sql,
                send_to=one.send_to.made() if one.send_to is not None else None,
                reply=named(one.reply, "reply") if one.reply is not None else None,
                on_bad_payload=_bad_payload(one.on_bad_payload),
                **one.options,
            )(named(one.call, "call"))
        except (ClientError, ConfigError, TypeError) as error:  # an option that is a key of its own
            raise ConfigError(f"{where}: {error}") from error
    return app


def _bad_payload(text: str) -> OnBadPayload | None:
    if not text:
        return None
    if ":" in text:
        return named(text, "on_bad_payload")  # type: ignore[no-any-return]
    try:
        return BadPayload(text)
    except ValueError:
        known = ", ".join(one.value for one in BadPayload)
        raise ConfigError(f"on_bad_payload is {text!r}: give {known}, or module:name") from None


def app_of(target: str) -> App:
    """The application that ``module:app``, or the path of a YAML file, stands for.

    :raises ConfigError: there is none.
    """
    if target.endswith((".yaml", ".yml")):
        return load(target)
    found = named(target if ":" in target else f"{target}:app", "the application")
    if not isinstance(found, App):
        raise ConfigError(f"{target} is {type(found).__name__}, not an rmq.app.App")
    return found
