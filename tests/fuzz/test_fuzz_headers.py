"""Typed headers from anybody's extFields and positional values."""

import json
from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.protocol.codes import SerializeType
from lockstep.protocol.command import RemotingCommand, decode_command, encode_command
from lockstep.protocol.errors import HeaderError
from lockstep.protocol.frame import FrameDecoder
from lockstep.protocol.headers.spec import HeaderSpec, spec_of
from tests.fuzz.strategies import (
    HEADER_CLASSES,
    fuzz_broken,
    fuzz_each,
    headers,
    json_values,
    msgpack_values,
    numerals,
    texts,
)
from tests.rows import by_row

each_class = by_row("header_class", HEADER_CLASSES)
HeaderClass = type[tuple[Any, ...]]


def through_the_wire(header: tuple[Any, ...], serialize_type: SerializeType) -> tuple[Any, ...]:
    decoder = FrameDecoder()
    decoder.feed(encode_command(RemotingCommand(0, header, serialize_type=serialize_type)))
    frame = decoder.next_frame()
    assert frame is not None
    return decode_command(frame).decode_header(type(header))


def check_decoded(header: tuple[Any, ...]) -> None:
    """A header that was let in has typed values and survives every encoding; the binary one has no empty texts."""
    for serialize_type in SerializeType:
        if serialize_type != SerializeType.ROCKETMQ or "" not in header:
            assert through_the_wire(header, serialize_type) == header


def ext_fields_for(header_class: HeaderClass) -> st.SearchStrategy[dict[str, Any]]:
    """Mostly right extFields of a class: its names, with values of all kinds, and others."""
    values = st.one_of(numerals, texts, json_values)
    lawful = headers(header_class).map(spec_of(header_class).to_texts)
    names = [field.wire_name for field in spec_of(header_class).fields]
    odd = st.dictionaries(st.one_of(st.sampled_from(names), texts), values, max_size=3)
    return st.builds(lambda right, wrong: {**right, **wrong}, lawful, odd)


@each_class
def test_any_ext_fields(header_class: HeaderClass) -> None:
    """extFields of any kind give a header that can be sent on, or a HeaderError and nothing else."""

    @fuzz_each
    @given(ext_fields_for(header_class))
    def check(ext_fields: dict[str, Any]) -> None:
        ext_fields = json.loads(json.dumps(ext_fields))
        try:
            header = RemotingCommand(0, ext_fields=ext_fields).decode_header(header_class)
        except HeaderError:
            return
        check_decoded(header)

    check()


@st.composite
def positional_for(draw: st.DrawFn, header_class: HeaderClass) -> list[Any]:
    """The values of a header after one was replaced, some were cut off or some appended."""
    values = list(draw(headers(header_class)))
    change = draw(st.sampled_from(["none", "replace", "replace", "cut", "append", "random"]))
    if change == "replace":
        values[draw(st.integers(0, len(values) - 1))] = draw(msgpack_values)
    elif change == "cut":
        del values[draw(st.integers(0, len(values))) :]
    elif change == "append":
        values += draw(st.lists(msgpack_values, max_size=3))
    elif change == "random":
        values = draw(st.lists(msgpack_values, max_size=len(values) + 2))
    return values


def check_positional(header_class: HeaderClass, values: list[Any], spec: HeaderSpec) -> None:
    values = msgpack.unpackb(msgpack.packb(values))
    try:
        header = spec.from_positional(list(values))
    except HeaderError:
        return
    assert list(header[: len(values)]) == values[: len(header)]
    assert isinstance(header, header_class)
    check_decoded(header)


@each_class
def test_any_positional_values(header_class: HeaderClass) -> None:
    """Positional values of any kind give a header that can be sent on, or a HeaderError and nothing else."""

    @fuzz_each
    @given(positional_for(header_class))
    def check(values: list[Any]) -> None:
        check_positional(header_class, values, spec_of(header_class))

    check()


@each_class
def test_lawful_headers_survive_the_wire(header_class: HeaderClass) -> None:
    """Every header of a class goes through both encodings unchanged."""

    @fuzz_each
    @given(headers(header_class))
    def check(header: tuple[Any, ...]) -> None:
        check_decoded(header)

    check()


class TrustingSpec(HeaderSpec):
    """Believes every shape it sees once and no range."""

    def from_positional(self, values: list[Any]) -> tuple[Any, ...]:
        padded = values[: len(self.fields)] + [field.default for field in self.fields[len(values) :]]
        header: tuple[Any, ...] = tuple.__new__(self._class, padded)
        return header


@each_class
def test_a_spec_that_does_not_check_is_caught(header_class: HeaderClass) -> None:
    """The canary: values let in unchecked cannot be sent on, and the check above sees it for every class."""

    @fuzz_broken
    @given(positional_for(header_class))
    def check(values: list[Any]) -> None:
        check_positional(header_class, values, TrustingSpec(header_class))

    with pytest.raises((AssertionError, HeaderError, OverflowError, TypeError)):
        check()
