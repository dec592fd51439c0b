"""Bytes that are no request, each on a connection of its own: answered, silent, or closed."""

import json
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.differential.side import Answer, Side

__all__ = ["CONNECTION_CASES", "CONNECTION_REASONS", "ConnectionOutcome", "run_connection_cases"]

_HEADER: Final = json.dumps(
    {"code": 30, "flag": 0, "language": "JAVA", "opaque": 1, "version": 409,
     "extFields": {"topic": "DiffTopic", "queueId": "0"}}
).encode()  # fmt: skip


def _frame(header: bytes = _HEADER, body: bytes = b"", *, kind: int = 0, total: int = 0, length: int = -1) -> bytes:
    word = kind << 24 | (len(header) if length < 0 else length)
    return struct.pack(">iI", total or 4 + len(header) + len(body), word) + header + body


def _changed(**members: object) -> bytes:
    return json.dumps(json.loads(_HEADER) | members).encode()


CONNECTION_CASES: Final[dict[str, bytes]] = {
    "a good request": _frame(),
    "a good request with blanks behind its header": _frame(_HEADER + b"  \n"),
    "header type 7": _frame(kind=7),
    "header type 255": _frame(kind=255),
    "a frame of 16 MiB and one byte": _frame(total=16 * 1024 * 1024 + 1),
    "a frame of 2 GiB": struct.pack(">I", 0x7FFFFFFF) + b"x" * 64,
    "a negative length": struct.pack(">i", -1) + b"x" * 64,
    "a length of 0": struct.pack(">i", 0) + b"x" * 64,
    "a length of 3": struct.pack(">i", 3) + b"xxx",
    "a header longer than its frame": _frame(length=100_000),
    "a header that is no JSON": _frame(b"this is no header"),
    "a header that is a list": _frame(b"[1,2]"),
    "a header that is null": _frame(b"null"),
    "an empty header": _frame(b""),
    "a header cut in the middle": _frame(_HEADER[:30]),
    "a header that is no UTF-8": _frame(b'{"code":30,"remark":"\xff\xfe"}'),
    "a code that is text": _frame(_changed(code="many")),
    "a code of digits as text": _frame(_changed(code="30")),
    "an unknown code": _frame(_changed(code=29999)),
    "a negative code": _frame(_changed(code=-5)),
    "a code of 40 bits": _frame(_changed(code=2**40)),
    "no opaque": _frame(json.dumps({"code": 30, "flag": 0}).encode()),
    "a reply that nobody waits for": _frame(_changed(flag=1)),
    "a short binary header": _frame(b"\0" * 5, kind=1),
    "a binary header with a field of -1 bytes": _frame(b"\0" * 13 + b"\xff" * 4 + b"\0" * 4, kind=1),
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


# Where the two differ, why.
CONNECTION_REASONS: Final[dict[str, str]] = {
    "a header that is no UTF-8": "text must be UTF-8; RocketMQ reads on",
    "a code of digits as text": "a code is a number",
    "a code of 40 bits": "it is a code that is not known",
    "no opaque": "nobody could tell what the answer answers",
}


class ConnectionOutcome(NamedTuple):
    name: str
    apache: str
    lockstep: str

    @property
    def agrees(self) -> bool:
        return self.apache == self.lockstep


def run_connection_cases(apache: Side, lockstep: Side) -> Sequence[ConnectionOutcome]:
    return [
        ConnectionOutcome(name, _told(apache.send_raw(data)), _told(lockstep.send_raw(data)))
        for name, data in CONNECTION_CASES.items()
    ]


def _told(answer: Answer) -> str:
    if answer.reply is not None:
        return f"answers {answer.reply.code}"
    return "closes" if answer.closed else "is silent"
