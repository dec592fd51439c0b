"""JSON headers read by orjson and written in prepared forms, beside the json module: the same, refusals too."""

import itertools
import json
from collections.abc import Callable
from typing import Any

import orjson
from hypothesis import given
from hypothesis import strategies as st

from lockstep.protocol.codecs import json_header
from lockstep.protocol.codecs.json_header import to_text
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import HeaderError
from lockstep.protocol.headers.messaging import QueueRequestHeader
from lockstep.protocol.headers.spec import spec_of
from tests.fuzz.strategies import (
    HEADER_CLASSES,
    fuzz,
    fuzz_each,
    headers,
    json_values,
    numerals,
    texts,
    with_bytes_changed,
)
from tests.rows import by_row

each_class = by_row("header_class", HEADER_CLASSES)
HeaderClass = type[tuple[Any, ...]]
REFUSED = "refused"


def outcome(read: Callable[[], Any]) -> str:
    """What a reader makes of its input, with the types of all values; -0.0, NaN and 1 are not 0.0, 0 and True."""
    try:
        return repr(read())
    except HeaderError as error:
        return f"{REFUSED}: {error}"


def check_read(data: bytes) -> None:
    """As the json module alone reads it: what is taken and what is refused was written down with it."""
    assert outcome(lambda: json_header.decode_header(data)) == outcome(lambda: json_header._decode_any(data))


_VALUES = ["0", "-0", "11", "2147483647", "9223372036854775808", "18446744073709551616", "-9223372036854775809",
    "9" * 30, "9" * 4300, "9" * 4301, "1.0", "-0.0", "1e2", "1e400", "5e-324", "01", "1.", ".5", "+1", "1_0", "NaN",
    "-Infinity", "null", "true", "nul", '"JAVA"', '"PERL"', '"\\ud83d\\ude00"', '"\\ud800"', '"\\uDC00x"', '"a\nb"',
    '"\x00"', '"\x7f\u2028é"', '"\\u0000\\/"', '"\\x"', "'a'", "[]", "[1.5]", "{}", '{"a":18446744073709551616}',
    "[[[1]]]", "[" * 900 + "]" * 900, "[" * 2000 + "]" * 2000, "", "//", "\xa01", "1\x00", "{a:1}", "[1,]"]  # fmt: skip
_NAMES = ["code", "flag", "opaque", "version", "language", "remark", "extFields", "serializeTypeCurrentRPC", "more",
    "\\u0063ode", "c\\u006fde", "", "k" * 70, "\\ud800"]  # fmt: skip
_members = st.tuples(st.sampled_from(_NAMES), st.sampled_from(_VALUES))
_ext = st.lists(
    st.tuples(st.sampled_from(["a", "b", "topic", "queueId", "\\u0061"]), st.sampled_from(_VALUES)), max_size=4
)


def _object(members: list[tuple[str, str]]) -> str:
    return "{" + ",".join([f'"{name}":{value}' for name, value in members]) + "}"


@st.composite
def odd_headers(draw: st.DrawFn) -> bytes:
    """A header with up to three odd members, some of which occur twice, in any order, with odd bytes around it."""
    members = [("code", "11"), ("opaque", "5"), ("flag", "0"), ("extFields", _object(draw(_ext)))]
    members = draw(st.permutations(members[: draw(st.integers(2, 4))] + draw(st.lists(_members, max_size=3))))
    around = st.sampled_from(["", "", "", "", " \t\r\n", "\x0b", "\ufeff", "x", "\x00"])
    return (draw(around) + _object(members) + draw(around)).encode()


_lawful = st.sampled_from(HEADER_CLASSES).flatmap(headers).map(
    lambda header: json_header.encode_header(RemotingCommand(11, header, opaque=7, remark="r"))
)  # fmt: skip
_written = st.builds(
    lambda value, ascii_only, spaced: json.dumps(value, ensure_ascii=ascii_only, indent=1 if spaced else None),
    json_values | st.fixed_dictionaries({"code": json_values, "opaque": st.integers(), "extFields": json_values}),
    st.booleans(),
    st.booleans(),
).map(lambda text: text.encode("utf-8", "surrogatepass"))


@fuzz
@given(odd_headers() | with_bytes_changed(odd_headers()) | _lawful | with_bytes_changed(_lawful) | _written)
def test_a_header_is_read_as_the_json_module_reads_it(data: bytes) -> None:
    """Numbers of any length, NaN, names that occur twice, escapes, surrogates, broken texts: no difference."""
    check_read(data)


@by_row("name, value", itertools.product(_NAMES, _VALUES))
def test_odd_members(name: str, value: str) -> None:
    """Where readers of JSON differ most, in each member and in extFields: ours is the json module."""
    lawful = [("code", "11"), ("opaque", "5")]
    check_read(_object([*lawful, (name, value)]).encode())
    check_read(_object([(name, value), *lawful]).encode())
    check_read(_object([*lawful, ("extFields", _object([("a", '"b"'), (name, value)]))]).encode())


def test_a_number_that_orjson_reads_otherwise() -> None:
    """The canary: orjson alone would make a float of it, so the comparisons above can fail."""
    data = _object([("code", "11"), ("opaque", "5"), ("extFields", '{"a":18446744073709551616}')]).encode()
    assert orjson.loads(data)["extFields"] == {"a": 18446744073709551616.0}
    assert repr(json_header.decode_header(data)[6]) == "{'a': 18446744073709551616}"


def written_by_json(command: RemotingCommand) -> bytes:
    """The header as a dict that the json module writes."""
    parts: dict[str, Any] = {"code": command.code}
    header, ext_fields = command.header, command.ext_fields
    if header is not None or ext_fields is not None:
        parts["extFields"] = {} if header is None else spec_of(type(header)).to_texts(header)
        parts["extFields"] |= {name: to_text(value) for name, value in (ext_fields or {}).items()}
    parts |= {"flag": command.flag, "language": "PYTHON", "opaque": command.opaque}
    if command.remark is not None:
        parts["remark"] = command.remark
    parts |= {"serializeTypeCurrentRPC": "JSON", "version": command.version}
    return json.dumps(parts, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "replace")


_any_text = st.text(st.characters(), max_size=12) | st.sampled_from(
    ['"', "\\", "\x00\x1f\x7f", "\ud800", "%s%d", "é😀"]
)
_ext_fields = st.dictionaries(_any_text, _any_text | st.integers() | st.booleans(), max_size=3)


@each_class
def test_a_header_is_written_as_the_json_module_writes_it(header_class: HeaderClass) -> None:
    """Byte for byte: order, escapes, numbers as texts, absent fields, more fields, remarks."""

    def with_text(header: tuple[Any, ...], text: str) -> tuple[Any, ...]:
        return header_class._make(text if type(value) is str else value for value in header)  # type: ignore[attr-defined, no-any-return]

    @fuzz_each
    @given(st.builds(with_text, headers(header_class), _any_text), st.none() | _any_text, st.none() | _ext_fields)
    def check(header: tuple[Any, ...], remark: str | None, ext_fields: dict[str, Any] | None) -> None:
        for one in (header, None):
            command = RemotingCommand(11, one, remark=remark, ext_fields=ext_fields, flag=1, opaque=2**31 - 1)
            assert json_header.encode_header(command) == written_by_json(command)

    check()


def test_values_of_other_types_are_written_alike() -> None:
    """A number of an enum, a text of a subclass, a number in a field for text: as text, with its escapes."""

    class Text(str):
        __slots__ = ()

    for topic, queue_id in ((Text('a"b'), 1), ("t", True), (5, 1), (True, 1), ('"', "\\")):
        command = RemotingCommand(11, QueueRequestHeader(topic, queue_id))  # type: ignore[arg-type]
        assert json_header.encode_header(command) == written_by_json(command)


@each_class
def test_ext_fields_are_read_as_one_by_one(header_class: HeaderClass) -> None:
    """Any names in any order, present or not, with values of any kind: the same header or the same refusal."""
    spec = spec_of(header_class)
    names = [field.wire_name for field in spec.fields]
    values = st.one_of(numerals, numerals, texts, json_values)
    lawful = headers(header_class).map(spec.to_texts)
    odd = st.dictionaries(st.one_of(st.sampled_from(names), texts), values, max_size=2)
    mixed = st.builds(lambda right, wrong: {**right, **wrong}, lawful, odd)
    shuffled = mixed.flatmap(lambda fields: st.permutations(list(fields.items()))).map(dict)

    def answer(read: Callable[[dict[str, Any]], Any], fields: dict[str, Any]) -> tuple[Any, ...]:
        try:
            header = read(fields)
        except HeaderError as error:
            return (REFUSED, str(error))
        return (type(header), repr(header))

    @fuzz_each
    @given(st.lists(lawful | mixed | shuffled, min_size=1, max_size=3))
    def check(several: list[dict[str, Any]]) -> None:
        for fields in [*several, *several]:  # the second time each shape is known
            assert answer(spec.from_ext_fields, fields) == answer(spec._read_each, fields)

    check()
