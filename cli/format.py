"""How commands print a message: as JSON, as a line for a person, or by a format string as in kcat."""

import base64
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from lockstep.cli.output import UsageError, date_time, json_line
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.messages.properties import RESERVED_PROPERTIES, SHARDING_KEY_NAMES
from lockstep.remoting.logs import printable as printable_text

__all__ = [
    "MessageFormat",
    "body_text",
    "format_json",
    "format_line",
    "message_row",
    "parse_format",
    "printable",
    "unescaped",
]

MessageFormat = Callable[[MessageExt], bytes]
T = TypeVar("T")

_OURS = RESERVED_PROPERTIES.union(SHARDING_KEY_NAMES)


def message_row(message: MessageExt) -> dict[str, Any]:
    """A message as JSON fields; `lockstep produce --envelope` reads them.

    A body that is not UTF-8 is in "body_base64".

    A compressed body that cannot be unpacked stays as it is stored, with "body_error"; `produce` refuses it.
    """
    row: dict[str, Any] = {
        "topic": message.topic,
        "broker": message.broker_name,
        "queue_id": message.queue_id,
        "offset": message.queue_offset,
        "key": message.sharding_key,
        "tags": message.tags,
        "keys": message.keys,
        "msg_id": message.msg_id,
        "store_timestamp": message.store_timestamp,
    }
    if message.keys is None:
        del row["keys"]
    properties = {name: value for name, value in message.properties.items() if name not in _OURS}
    if properties:
        row["properties"] = properties
    if message.body_error is not None:
        row["body_error"] = message.body_error
    try:
        row["body"] = message.body.decode("utf-8")
    except UnicodeDecodeError:
        row["body_base64"] = base64.b64encode(message.body).decode("ascii")
    return row


def format_json(message: MessageExt) -> bytes:
    """One line."""
    return json_line(message_row(message)).encode("utf-8", "replace") + b"\n"


def format_line(message: MessageExt) -> bytes:
    """For a person: store time, queue, key, tag and body on one line."""
    place = f"{message.broker_name}:{message.queue_id}  {message.queue_offset}"
    words = printable_text(f"{place}  {message.sharding_key or '-'}  {message.tags or '-'}")
    return f"{date_time(message.store_timestamp)}  {words}  {body_text(message)}\n".encode("utf-8", "replace")


def body_text(message: MessageExt) -> str:
    """The body for a person. If it cannot be unpacked: the reason, and the stored bytes."""
    text = printable(message.body)
    return text if message.body_error is None else f"[{message.body_error}] {text}"


def printable(body: bytes) -> str:
    """The bytes as text without control characters: nothing in it moves the cursor or ends the line."""
    return printable_text(body.decode("utf-8", "backslashreplace"))


def _text(value: str | None) -> bytes:
    return (value or "").encode("utf-8", "replace")


_FIELDS: dict[str, MessageFormat] = {
    "t": lambda message: _text(message.topic),
    "p": lambda message: b"%d" % message.queue_id,
    "o": lambda message: b"%d" % message.queue_offset,
    "k": lambda message: _text(message.sharding_key),
    "s": lambda message: message.body,
    "S": lambda message: b"%d" % len(message.body),
    "T": lambda message: b"%d" % message.store_timestamp,
    "g": lambda message: _text(message.tags),
    "i": lambda message: _text(message.msg_id),
}
_ESCAPES = {"n": b"\n", "t": b"\t", "r": b"\r", "0": b"\0", "\\": b"\\"}


def parse_format(text: str) -> MessageFormat:
    """ "%t %p %o %k %s\\n" and the like. Raises UsageError that lists what is allowed."""
    parts: list[bytes | MessageFormat] = []
    letters = iter(text)
    for letter in letters:
        if letter == "%":
            name = next(letters, "")
            parts.append(b"%" if name == "%" else _looked_up(_FIELDS, "%", name))
        elif letter == "\\":
            parts.append(_looked_up(_ESCAPES, "\\", next(letters, "")))
        else:
            parts.append(letter.encode("utf-8", "replace"))
    return lambda message: b"".join([part if isinstance(part, bytes) else part(message) for part in parts])


def unescaped(text: str, option: str) -> str:
    """The text with \\t, \\n and the like replaced. Raises UsageError that lists what is allowed."""
    parts: list[bytes] = []
    letters = iter(text)
    for letter in letters:
        is_escape = letter == "\\"
        parts.append(
            _looked_up(_ESCAPES, "\\", next(letters, ""), option) if is_escape else letter.encode("utf-8", "replace")
        )
    return b"".join(parts).decode()


def _looked_up(table: Mapping[str, T], sign: str, name: str, option: str = "-f") -> T:
    if name not in table:
        allowed = " ".join(sign + known for known in table)
        percent = " %%" if sign == "%" else ""
        raise UsageError(f"{option}: {sign + name!r} means nothing; allowed are {allowed}{percent}")
    return table[name]
