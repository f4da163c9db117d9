"""Frames: commands to bytes and back, with both header serialisations, and no I/O.

The frame is drawn in :mod:`rmq.protocol.command`. The ROCKETMQ header (protocol.md 1.3)::

    width    field
    2        code, signed
    1        language number
    2        version, signed
    4        opaque
    4        flag
    4 + n    remark: byte length, UTF-8; length 0 = none
    4        byte length of the ext block; 0 = none
    repeated key: int16 length + bytes; value: int32 length + bytes; a length of 0 reads as null
"""

from __future__ import annotations

import re
from decimal import Decimal
from struct import Struct

import orjson

from rmq.protocol import fastjson
from rmq.protocol.codes import Language, language_name, language_of
from rmq.protocol.command import FLAG_RESPONSE, Command, SerializeType
from rmq.protocol.errors import FrameError, ProtocolError
from rmq.protocol.fastjson.reader import Parser
from rmq.protocol.fastjson.writer import ext_fields

__all__ = ["MAX_FRAME", "MAX_HEADER", "MAX_REMARK", "FrameDecoder", "decode", "decode_at", "encode"]

#: Bytes of the largest frame, its length word included (protocol.md 1.1).
MAX_FRAME = 16_777_216
#: Bytes of the largest header of a request; the largest real one (properties of 32,767 control characters) has about
#: 200 KB. A server parses it in one go on the loop. That of an answer is bounded by its frame alone: it names every
#: message of a batch.
MAX_HEADER = 262_144
#: Characters of the longest remark; a longer one is cut: remarks repeat what they refuse, and in JSON a character may
#: take six bytes.
MAX_REMARK = 4_096
#: Ext fields of a header; the longest requests have about twenty. Those of a ROCKETMQ header are read one by one, and
#: a signature sorts all of them.
_MOST_FIELDS = 1_000
#: A header that is not strict JSON is read by a slow parser: only up to this many bytes.
MAX_LENIENT_HEADER = 65_536

_INT32_MIN, _INT32_MAX = -(1 << 31), (1 << 31) - 1
_PREFIX = Struct(">II")
_FIXED = Struct(">hBhiii")
_INT = Struct(">i")
_SHORT = Struct(">h")
_WHOLE = re.compile(r"[+-]?[0-9]{1,20}(?:\.[0-9]*)?")
_LANGUAGE_JSON = {int(number): f'"language":"{language_name(number)}",'.encode() for number in Language}
_KNOWN = {
    "code": "code",
    "flag": "flag",
    "language": "language",
    "opaque": "opaque",
    "remark": "remark",
    "version": "version",
    "extfields": "extFields",
}


def encode(command: Command) -> bytes:
    """The whole frame of a command, length word included. A remark beyond ``MAX_REMARK`` is cut.

    :raises FrameError: it would be larger than any peer takes, or the ROCKETMQ header cannot hold its code.
    """
    header = _encode_json(command) if command.serialize == 0 else _encode_binary(command)
    body = command.body
    size = len(header)
    length = 4 + size + len(body)
    if size > MAX_HEADER and not command.flag & FLAG_RESPONSE:
        raise FrameError(f"a header of {size} bytes: at most {MAX_HEADER} are allowed (code {command.code})")
    if length > MAX_FRAME - 4:
        raise FrameError(f"a frame of {length + 4} bytes: at most {MAX_FRAME} are allowed (code {command.code})")
    return b"".join((_PREFIX.pack(length, command.serialize << 24 | size), header, body))


def decode(frame: bytes | bytearray | memoryview) -> Command:
    """Read one frame, given without its length word.

    :raises FrameError: not a frame; the connection it came on is to be closed (protocol.md 1.1).
    """
    if not isinstance(frame, bytes):
        frame = bytes(frame)
    return decode_at(frame, 0, len(frame))


def decode_at(buffer: bytes, low: int, high: int) -> Command:
    """:func:`decode` of a frame among others, without a copy of it.

    :param low: where it begins, behind its length word. :param high: where it ends.
    """
    if high - low < 4:
        raise FrameError(f"a frame of {high - low} bytes: at least 4 are needed")
    word = int.from_bytes(buffer[low : low + 4], "big")
    kind, size = word >> 24, word & 0xFFFFFF
    begin = low + 4
    end = begin + size
    if end > high:
        raise FrameError(f"a header of {size} bytes in a frame of {high - low}")
    if not size:
        raise FrameError("an empty header")
    header = buffer[begin:end]
    body = buffer[end:high]
    if kind == 0:
        command = _decode_json(header, body)
    elif kind == 1:
        command = _decode_binary(header, body)
    else:
        raise FrameError(f"the serialize type {kind} is unknown")
    if size > MAX_HEADER and not command.flag & FLAG_RESPONSE:
        # Whoever serves strangers looks at the size before it reads one (``Limits.header``).
        raise FrameError(f"a header of {size} bytes: at most {MAX_HEADER} are allowed")
    return command


def _encode_json(command: Command) -> bytes:
    ext = command.ext
    remark = command.remark
    language = command.language
    return b'{"code":%d,%s"flag":%d,%s"opaque":%d,%s"serializeTypeCurrentRPC":"JSON","version":%d}' % (
        command.code,
        b"" if ext is None else b'"extFields":%s,' % ext_fields(ext),
        command.flag,
        b"" if language is None else _LANGUAGE_JSON.get(language, b""),
        command.opaque,
        b"" if remark is None else b'"remark":%s,' % fastjson.quote(remark[:MAX_REMARK]).encode(),
        command.version,
    )


def _decode_json(header: bytes, body: bytes) -> Command:
    if 64 in header and b'"@type"' in header:  # a number is found faster in bytes than a text; 64 is "@"
        return _decode_odd(header, body)
    try:
        fields = orjson.loads(header)
    except orjson.JSONDecodeError:
        return _decode_odd(header, body)
    if type(fields) is not dict:
        raise FrameError(f"a header that is no JSON object: {header[:64]!r}")
    get = fields.get
    code = get("code")
    flag = get("flag", 0)
    opaque = get("opaque", 0)
    version = get("version", 0)
    language = get("language", "JAVA")
    remark = get("remark")
    ext = get("extFields")
    if (
        type(code) is not int
        or type(flag) is not int
        or type(opaque) is not int
        or type(version) is not int
        or not -0x80000000 <= opaque <= 0x7FFFFFFF
        or not -0x80000000 <= code <= 0x7FFFFFFF
        or not -0x80000000 <= version <= 0x7FFFFFFF
        or not -0x80000000 <= flag <= 0x7FFFFFFF
        or not (remark is None or type(remark) is str)
    ):
        return _decode_odd(header, body)
    if ext is not None:
        try:
            "".join(ext.values())  # the cheapest test that all of them are texts
        except (TypeError, AttributeError):
            return _decode_odd(header, body)
        if len(ext) > _MOST_FIELDS:
            raise FrameError(f"a header with {len(ext)} ext fields: at most {_MOST_FIELDS} are allowed")
    command = Command.__new__(Command)  # a call with eight keywords costs more than reading the JSON
    command.code = code
    command.ext = ext
    command.body = body
    command.flag = flag
    command.opaque = opaque
    command.remark = remark
    command.language = 0 if language == "JAVA" else language_of(language)
    command.version = version
    command.serialize = SerializeType.JSON
    command.grant = None
    return command


def _decode_odd(header: bytes, body: bytes) -> Command:
    """A header that is not as Java writes it: everything fastjson takes is taken (protocol.md 1.2)."""
    if len(header) > MAX_LENIENT_HEADER:
        raise FrameError(f"a header of {len(header)} bytes that is not strict JSON as Java writes it")
    parser = Parser(header.decode("utf-8", "replace"), exact=True, types=False)
    try:
        document = parser.document()
    except ProtocolError as error:
        raise FrameError(f"a header that is no JSON: {error}") from None
    if not isinstance(document, dict):
        raise FrameError(f"a header that is no JSON object: {header[:64]!r}")
    fields: dict[str, object] = {}
    for key, value in document.items():
        if isinstance(key, str) and (name := _KNOWN.get(key.replace("_", "").replace("-", "").lower())):
            fields[name] = value
    language = fields.get("language", "JAVA")
    if language is not None and (isinstance(language, bool) or not isinstance(language, (str, int))):
        raise FrameError("a header whose language is neither a name nor a number")
    return Command(
        _number(fields, "code"),
        ext=_ext(fields.get("extFields")),
        body=body,
        flag=_number(fields, "flag"),
        opaque=_number(fields, "opaque"),
        remark=_text(fields.get("remark")),
        language=language_of(language),
        version=_number(fields, "version"),
    )


def _number(fields: dict[str, object], name: str) -> int:
    value = fields.get(name)
    if value is None or value in ("", "null", "NULL"):
        return 0
    if isinstance(value, str):
        if not _WHOLE.fullmatch(value):
            raise FrameError(f"a header whose {name} is no number: {value[:32]!r}")
        value = Decimal(value)
    if not isinstance(value, (int, Decimal)) or not _INT32_MIN <= value <= _INT32_MAX:
        raise FrameError(f"a header whose {name} is no 32-bit number: {str(value)[:32]}")
    return int(value)


def _ext(value: object) -> dict[str, str | None] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise FrameError("a header whose extFields are no object")
    if len(value) > _MOST_FIELDS:
        raise FrameError(f"a header with {len(value)} ext fields: at most {_MOST_FIELDS} are allowed")
    ext: dict[str, str | None] = {}
    for key, item in value.items():
        if isinstance(key, int):
            raise FrameError("a header whose extFields have a number as name")
        ext["null" if key is None else key] = _text(item)
    return ext


def _text(value: object) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return fastjson.dumps(value).decode()


def _encode_binary(command: Command) -> bytes:
    code, version = command.code, command.version
    if not -32768 <= code <= 32767:
        raise FrameError(f"code {code} does not fit a ROCKETMQ header: send it as JSON")
    language = Language.OTHER if command.language is None else command.language
    remark = b"" if command.remark is None else command.remark[:MAX_REMARK].encode("utf-8", "replace")
    fields: list[bytes] = []
    for name, text in (command.ext or {}).items():
        if text is None:
            continue
        key, value = name.encode("utf-8", "replace"), text.encode("utf-8", "replace")
        if len(key) > 32767:
            raise FrameError(f"an ext field name of {len(key)} bytes does not fit a ROCKETMQ header")
        fields += (_SHORT.pack(len(key)), key, _INT.pack(len(value)), value)
    block = b"".join(fields)
    return b"".join(
        (
            _FIXED.pack(code, language & 0xFF, version, command.opaque, command.flag, len(remark)),
            remark,
            _INT.pack(len(block)),
            block,
        )
    )


def _decode_binary(header: bytes, body: bytes) -> Command:
    size = len(header)
    if size < 21:
        raise FrameError(f"a ROCKETMQ header of {size} bytes: at least 21 are needed")
    code, language, version, opaque, flag, remark_size = _FIXED.unpack_from(header)
    at = 17 + remark_size
    if remark_size < 0 or at + 4 > size:
        raise FrameError(f"a ROCKETMQ header of {size} bytes with a remark of {remark_size}")
    remark = header[17:at].decode("utf-8", "replace") if remark_size else None
    ext_size = _INT.unpack_from(header, at)[0]
    at += 4
    if ext_size != size - at:
        raise FrameError(f"a ROCKETMQ header with ext fields of {ext_size} bytes where {size - at} are left")
    ext: dict[str, str | None] | None = None
    if ext_size:
        ext = {}
        # One decoding for all: a slice of a str that is ASCII is the text itself, and costs a third of decoding it.
        text = header.decode("latin-1")
        for _ in range(_MOST_FIELDS):
            if at >= size:
                break
            if at + 2 > size:
                raise FrameError("a ROCKETMQ header that ends within an ext field")
            key_size = header[at] << 8 | header[at + 1]
            value_at = at + 2 + key_size
            if key_size > 32767 or value_at + 4 > size:
                raise FrameError("a ROCKETMQ header that ends within the name of an ext field")
            value_size = (header[value_at] << 16 | header[value_at + 1] << 8 | header[value_at + 2]) << 8
            value_size |= header[value_at + 3]
            end = value_at + 4 + value_size  # a negative size reads as one beyond the header
            if end > size:
                raise FrameError("a ROCKETMQ header that ends within the value of an ext field")
            if key_size:
                key = text[at + 2 : value_at]
                if not key.isascii():
                    key = header[at + 2 : value_at].decode("utf-8", "replace")
                value: str | None = text[value_at + 4 : end]
                if not value:
                    value = None
                elif not value.isascii():
                    value = header[value_at + 4 : end].decode("utf-8", "replace")
                ext[key] = value
            at = end
        if at < size:
            raise FrameError(f"a ROCKETMQ header with more than {_MOST_FIELDS} ext fields")
    return Command(
        code,
        ext=ext,
        body=body,
        flag=flag,
        opaque=opaque,
        remark=remark,
        language=language_of(language),
        version=version,
        serialize=SerializeType.ROCKETMQ,
    )


class FrameDecoder:
    """Takes bytes as they come and gives whole commands.

    It holds at most one incomplete frame beside what was fed since the last :meth:`next_command`; after an error it
    refuses everything.

    :param max_frame: bytes of the largest frame, its length word included.
    """

    __slots__ = ("_at", "_broken", "_buffer", "_max_length")

    def __init__(self, max_frame: int = MAX_FRAME) -> None:
        self._max_length = max_frame - 4
        # Growing at the end and dropping from the front are both amortised: no chunk is copied more than a few times.
        self._buffer = bytearray()
        self._at = 0
        self._broken: FrameError | None = None

    @property
    def held(self) -> int:
        """Bytes that are not yet part of a command that was given out."""
        return len(self._buffer) - self._at

    def receive_data(self, data: bytes | bytearray | memoryview) -> None:
        """Take bytes from the connection."""
        if self._broken is None:
            self._buffer += data

    def next_command(self) -> Command | None:
        """The next command, or None until more bytes come.

        :raises FrameError: close the connection. A length beyond the limit is refused at once, not awaited.
        """
        frame = self.next_frame()
        if frame is None:
            return None
        try:
            return decode(frame)
        except FrameError as error:
            self._refuse(error)
            raise

    def next_frame(self) -> bytes | None:
        """The next frame without its length word, undecoded; None until more bytes come.

        :raises FrameError: the length is impossible.
        """
        if self._broken is not None:
            raise self._broken
        buffer, at = self._buffer, self._at
        if len(buffer) - at < 4:
            self._drop()
            return None
        length = int.from_bytes(buffer[at : at + 4], "big", signed=True)
        if not 4 <= length <= self._max_length:
            error = FrameError(f"a frame of length {length}: 4 to {self._max_length} are allowed")
            self._refuse(error)
            raise error
        end = at + 4 + length
        if len(buffer) < end:
            self._drop()
            return None
        frame = bytes(memoryview(buffer)[at + 4 : end])
        self._at = end
        if end == len(buffer):
            self._buffer = bytearray()
            self._at = 0
        return frame

    def _drop(self) -> None:
        if self._at:
            del self._buffer[: self._at]
            self._at = 0

    def _refuse(self, error: FrameError) -> None:
        self._broken = error
        self._buffer = bytearray()
        self._at = 0
