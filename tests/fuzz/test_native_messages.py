"""Messages read by the native part and by its twin in Python: equal, whatever the bytes are."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.protocol.messages.message import PyMessageExt, Record, encode_stored_message, py_decode_into
from tests.fuzz.strategies import fuzz, stored_blobs, with_bytes_changed
from tests.fuzz.test_fuzz_messages import lying_blobs

native = pytest.importorskip("lockstep.protocol._native", reason="no native part: make native")

_NAMES = sorted(name for name in vars(PyMessageExt) if not name.startswith("_") and name != "unreadable")


def _decoded(decode: Any, blob: bytes) -> tuple[list[Any], list[int], str | None]:
    messages: list[Any] = []
    packed: list[int] = []
    return messages, packed, decode(messages, packed, blob, "broker-a")


def _seen(message: Any, names: list[str]) -> dict[str, Any]:
    return {name: getattr(message, name) for name in names} | {"repr": repr(message)}


def test_every_attribute_is_compared() -> None:
    """The native class has what the twin has, and no more."""
    assert sorted(name for name in vars(native.MessageExt) if name[0] != "_" and name != "unreadable") == _NAMES


@fuzz
@given(st.one_of(st.binary(max_size=200), stored_blobs, with_bytes_changed(stored_blobs), lying_blobs()), st.randoms())
def test_both_read_the_same(blob: bytes, rng: Any) -> None:
    """Messages, the indexes of packed ones, the text of the damage, and each attribute in any order of use."""
    (ours, *rest), (theirs, *others) = _decoded(py_decode_into, blob), _decoded(native.decode_into, blob)
    assert rest == others
    assert len(ours) == len(theirs)
    names = _NAMES.copy()
    rng.shuffle(names)
    for one, other in zip(ours, theirs, strict=True):
        one.bounds = other.bounds = rng.choice([None, (1, 7)])
        assert _seen(one, names) == _seen(other, names)
        one.body = other.body = b"changed"
        one.topic = other.topic = "T"
        assert _seen(one, names) == _seen(other, names)
        assert _seen(one.unreadable("why"), names) == _seen(other.unreadable("why"), names)


def test_a_message_may_be_read_while_it_is_read() -> None:
    """What it makes at the first use may run Python code, such as a finalizer: here it is `str()` of the bounds."""
    record = Record("T", 0, 0, 0, 0, bytes(4), 0, 0, 0, 0, b"body", b"a\x01b", 0)
    ([message], *_) = _decoded(native.decode_into, encode_stored_message(record, b"T", 0, 0, bytes(4), 0))

    class Reads:
        def __str__(self) -> str:
            return f"{message.topic} {message.body!r} {message!r}"

    message.bounds = (7, Reads())
    assert message.properties["MAX_OFFSET"].startswith("T b'body' <MessageExt T:0@0 ")
