"""What is done to a frame: to its parts before it is written, and to its bytes after."""

import random
import struct
from collections.abc import Callable
from typing import Any, Final

from tests.fuzz.frames.loose import JSON, MSGPACK, Loose
from tests.fuzz.frames.words import Words

__all__ = ["mutate_bytes", "mutate_parts"]


# Parts ------------------------------------------------------------------------------------------------------------


def _wrong_field(loose: Loose, words: Words) -> None:
    if loose.fields:
        loose.fields[_name_of(loose, words)] = words.wrong()


def _spelled(loose: Loose, words: Words) -> None:
    """A number in a spelling that one reader takes and another may not."""
    if loose.fields:
        name = _name_of(loose, words)
        value = str(loose.fields[name])
        forms = (
            f"+{value}",
            f"00{value}",
            f" {value}",
            f"{value} ",
            f"{value}\n",
            f"{value}.0",
            value.upper(),
            f"{value}\x00",
        )
        loose.fields[name] = forms[words.small(len(forms))]


def _as_number(loose: Loose, words: Words) -> None:
    """A text of digits as a number, a number as a text."""
    if loose.fields:
        name = _name_of(loose, words)
        value = loose.fields[name]
        if isinstance(value, str) and value.lstrip("-").isdecimal() and len(value) < 30:
            loose.fields[name] = int(value)
        elif value in ("true", "null", "false"):
            loose.fields[name] = {"true": True, "null": None, "false": False}[value]
        else:
            loose.fields[name] = str(value)


def _left_out(loose: Loose, words: Words) -> None:
    if loose.fields:
        del loose.fields[_name_of(loose, words)]


def _swapped(loose: Loose, words: Words) -> None:
    if loose.fields:
        one, other = _name_of(loose, words), _name_of(loose, words)
        loose.fields[one], loose.fields[other] = loose.fields[other], loose.fields[one]


def _renamed(loose: Loose, words: Words) -> None:
    if loose.fields:
        name = _name_of(loose, words)
        value = loose.fields.pop(name)
        text = str(name)
        new = (text.upper(), text + " ", "topic", "group", "consumerGroup", "b", "a", "Signature", "AccessKey", "")
        loose.fields[b"topic" if loose.kind == MSGPACK and words.small(9) == 0 else new[words.small(len(new))]] = value


def _one_more(loose: Loose, words: Words) -> None:
    names = (
        "topic",
        "b",
        "offset",
        "group",
        "consumerGroup",
        "AccessKey",
        "SecurityToken",
        "lockstep.once",
        "x",
        "_UNIQUE_KEY_QUERY",
    )
    loose.fields[names[words.small(len(names))]] = words.topic() if words.small(2) else words.wrong()


def _twice(loose: Loose, words: Words) -> None:
    """A second member of the same name: readers may take the first or the last one."""
    if loose.kind == JSON:
        extra = (
            '"code":11',
            '"extFields":{"topic":"secret"}',
            '"flag":1',
            '"opaque":"x"',
            '"extFields":null',
            '"code":"10"',
        )
        loose.extra = extra[words.small(len(extra))]


def _wrong_head(loose: Loose, words: Words) -> None:
    part = ("code", "flag", "opaque", "version", "language", "remark")[words.small(6)]
    value = words.wrong() if words.small(2) else words.number()
    setattr(loose, part, value)


def _wrong_body(loose: Loose, words: Words) -> None:
    if isinstance(loose.body, bytes):
        loose.body = words.rng.randbytes(words.small(200))
    else:
        loose.body = _changed(loose.body, words)


def _changed(value: Any, words: Words) -> Any:
    """One node of lists and dicts is replaced, left out, renamed or repeated."""
    if not isinstance(value, dict | list) or not value or words.small(5) == 0:
        return words.wrong()
    if isinstance(value, list):
        index = words.small(len(value))
        if words.small(6) == 0:
            return value[:index] + [value[index]] * 40 + value[index:]
        return [*value[:index], _changed(value[index], words), *value[index + 1 :]]
    name = list(value)[words.small(len(value))]
    how = words.small(8)
    rest = {key: old for key, old in value.items() if key != name}
    if how == 0:
        return rest
    return rest | ({words.text(): value[name]} if how == 1 else {name: _changed(value[name], words)})


def _deep(loose: Loose, words: Words) -> None:
    depth = (10, 100, 600, 5000)[words.small(4)]
    opening, closing = (("[", "]"), ('{"a":', "}"))[words.small(2)]
    text = opening * depth + "1" + closing * depth
    if words.small(2) and loose.kind == JSON:
        loose.extra = f'"deep":{text}'
    else:
        loose.body = text.encode() if loose.kind == JSON else b"\x91" * depth + b"\x01"


def _huge(loose: Loose, words: Words) -> None:
    size = (1000, 10000, 33000)[words.small(3)] if words.small(4) else (70000, 270000)[words.small(2)]
    text = ("x", "\x00", "ü", '"', "\ud800")[words.small(5)] * size
    if words.small(3) and loose.fields:
        loose.fields[_name_of(loose, words)] = text
    elif words.small(2):
        loose.body = text.encode("utf-8", "replace")
    else:
        loose.remark = text


_PARTS: Final[tuple[Callable[[Loose, Words], None], ...]] = (
    _wrong_field, _wrong_field, _wrong_field, _spelled, _spelled, _as_number, _as_number, _left_out, _left_out,
    _swapped,
    _renamed, _one_more, _one_more, _twice, _wrong_head, _wrong_body, _wrong_body, _wrong_body, _deep,
)  # fmt: skip


def _name_of(loose: Loose, words: Words) -> Any:
    return list(loose.fields)[words.small(len(loose.fields))]


def mutate_parts(loose: Loose, words: Words) -> None:
    """One or a few mutations of the parts of a frame. Huge texts are rare, for they take long."""
    for _ in range(1 if words.small(3) else 3):
        mutate = _huge if words.small(150) == 0 else _PARTS[words.small(len(_PARTS))]
        mutate(loose, words)


# Bytes ------------------------------------------------------------------------------------------------------------


def _flip(data: bytearray, rng: random.Random, _other: bytes) -> None:
    for _ in range(1 + int(rng.random() * 4)):
        data[int(rng.random() * len(data))] ^= 1 << int(rng.random() * 8)


def _overwrite(data: bytearray, rng: random.Random, _other: bytes) -> None:
    at = int(rng.random() * len(data))
    data[at] = (0, 255, 127, 128, 34, 92, 123, 91, 10)[int(rng.random() * 9)]


def _lengths(data: bytearray, rng: random.Random, _other: bytes) -> None:
    """Of the frame, of the header, or four bytes anywhere."""
    if len(data) < 8:
        return
    at = (0, 4, int(rng.random() * (len(data) - 4)))[int(rng.random() * 3)]
    (was,) = struct.unpack_from(">I", data, at)
    values = (
        was + 1,
        was - 1,
        0,
        1,
        3,
        4,
        0xFFFFFFFF,
        0x7FFFFFFF,
        0x80000000,
        16 << 20,
        (16 << 20) + 1,
        was ^ 0x02000000,
    )
    struct.pack_into(">I", data, at, values[int(rng.random() * len(values))] & 0xFFFFFFFF)


def _cut(data: bytearray, rng: random.Random, _other: bytes) -> None:
    del data[int(rng.random() * len(data)) :]


def _cut_out(data: bytearray, rng: random.Random, _other: bytes) -> None:
    at = int(rng.random() * len(data))
    del data[at : at + 1 + int(rng.random() * 16)]


def _repeat(data: bytearray, rng: random.Random, _other: bytes) -> None:
    at = int(rng.random() * len(data))
    part = data[at : at + 1 + int(rng.random() * 64)]
    data[at:at] = part * (1 + int(rng.random() * 8))


def _put_in(data: bytearray, rng: random.Random, _other: bytes) -> None:
    at = int(rng.random() * len(data))
    data[at:at] = rng.randbytes(1 + int(rng.random() * 16))


def _splice(data: bytearray, rng: random.Random, other: bytes) -> None:
    if other:
        data[int(rng.random() * len(data)) :] = other[int(rng.random() * len(other)) :]


def _kind(data: bytearray, rng: random.Random, _other: bytes) -> None:
    """Another header encoding for the same bytes."""
    if len(data) > 4:
        data[4] = int(rng.random() * 5)


_BYTES: Final[tuple[Callable[[bytearray, random.Random, bytes], None], ...]] = (
    _flip, _flip, _overwrite, _lengths, _cut, _cut_out, _repeat, _put_in, _splice, _kind,
)  # fmt: skip


def mutate_bytes(data: bytes, rng: random.Random, other: bytes, *, keep_lengths: bool) -> bytes:
    """One to three mutations of bytes.

    Args:
        other: A frame to splice with.
        keep_lengths: The first eight bytes are made to fit again, so that what is inside reaches the codecs.
    """
    changed = bytearray(data)
    for _ in range(1 + int(rng.random() * 3)):
        if changed:
            _BYTES[int(rng.random() * len(_BYTES))](changed, rng, other)
    if keep_lengths and len(changed) >= 8:
        (word,) = struct.unpack_from(">I", changed, 4)
        inside = len(changed) - 8
        header = min(word & 16777215, inside)
        struct.pack_into(">II", changed, 0, len(changed) - 4, (word >> 24) % 3 << 24 | header)
    return bytes(changed)
