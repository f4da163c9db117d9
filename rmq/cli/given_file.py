"""A file that is named on the command line and read whole: bounded, whatever it turns out to be."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

import click

from rmq.runtime.named_file import read_named

__all__ = ["STDIN", "GivenFile", "GivenFileType"]

#: What standard input is called in errors.
STDIN = "<stdin>"


@dataclass(frozen=True, slots=True)
class GivenFile:
    """:param name: for errors."""

    name: str
    data: bytes


class GivenFileType(click.ParamType[GivenFile]):
    """The type of an option: the file's name becomes what stands in it; ``-`` is standard input.

    :param most: bytes that are taken; a longer file is refused before anything is made of it.
    """

    name = "file"

    def __init__(self, most: int) -> None:
        self._most = most

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> GivenFile:
        if isinstance(value, GivenFile):
            return value
        path = os.fspath(value)  # type: ignore[call-overload]
        try:
            return self._stdin() if path == "-" else GivenFile(path, read_named(path, self._most))
        except OSError as error:
            self.fail(f"{STDIN if path == '-' else path} cannot be read: {error.strerror or error}", param, ctx)

    def _stdin(self) -> GivenFile:
        data = sys.stdin.buffer.read(self._most + 1)
        if len(data) > self._most:
            raise OSError(f"it is longer than {self._most} bytes")
        return GivenFile(STDIN, data)
