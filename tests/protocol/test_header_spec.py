"""Typed headers against extFields and positional values: what is taken, what is refused, and how it is said."""

from typing import Any, NamedTuple

import pytest

from lockstep.protocol.errors import HeaderError
from lockstep.protocol.headers import acl as acl_headers
from lockstep.protocol.headers import admin as admin_headers
from lockstep.protocol.headers import messaging as headers
from lockstep.protocol.headers import pop as pop_headers
from lockstep.protocol.headers import together as together_headers
from lockstep.protocol.headers.messaging import (
    REQUEST_HEADERS,
    RESPONSE_HEADERS,
    PullMessageRequestHeader,
    SendMessageRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
    UnregisterClientRequestHeader,
)
from lockstep.protocol.headers.spec import Int32, rename_on_wire, spec_of, stand_in
from tests.rows import by_row


class Sample(NamedTuple):
    group_name: str
    queue_id: Int32
    queue_offset: int
    order: bool
    remark_text: str | None = None
    retry_times: Int32 | None = None
    limit: int = 7


SPEC = spec_of(Sample)
TEXTS = {"groupName": "G", "queueId": "3", "queueOffset": "5000000000", "order": "true"}
VALUES: list[Any] = ["G", 3, 5_000_000_000, True, "r", 1, 9]


def with_text(name: str, value: Any) -> dict[str, Any]:
    return TEXTS | {name: value}


def with_value(index: int, value: Any) -> list[Any]:
    return [value if i == index else old for i, old in enumerate(VALUES)]


def test_fields_go_by_camel_case_names_as_text() -> None:
    """Everything in JSON is text under a Java name; None is left out."""
    assert SPEC.to_texts(Sample("G", 3, -5, False)) == {
        "groupName": "G", "queueId": "3", "queueOffset": "-5", "order": "false", "limit": "7",
    }  # fmt: skip
    assert SPEC.from_ext_fields(TEXTS) == Sample("G", 3, 5_000_000_000, True)


def test_to_texts_and_back() -> None:
    """A header written as extFields and read again is equal, defaults and all."""
    for header in (Sample(*VALUES), Sample("", 0, 0, False), Sample("G", -1, -1, True, "", 0, 0)):
        assert SPEC.from_ext_fields(SPEC.to_texts(header)) == header


@pytest.mark.parametrize("name", list(TEXTS))
def test_a_missing_field_is_named(name: str) -> None:
    """Every required field that is absent or null is refused by its wire name."""
    with pytest.raises(HeaderError, match=f"{name} .* is missing"):
        SPEC.from_ext_fields({key: text for key, text in TEXTS.items() if key != name})
    with pytest.raises(HeaderError, match=f"{name} .* is missing"):
        SPEC.from_ext_fields(with_text(name, None))


@by_row("text",
    ["", " ", "x", "1x", "0x10", "1.0", "1e3", "1_000", " 1", "1 ", "\u0661", "--1", "+", "-", "9" * 5000, [], {}, [1],
     1.5, 2.0, True, float("nan"), float("inf")])  # fmt: skip
def test_a_field_that_is_not_a_number(text: Any) -> None:
    """A number is ASCII digits with a sign, as Java's parser takes it; nothing else is guessed at."""
    for name in ("queueId", "queueOffset"):
        with pytest.raises(HeaderError, match=f"{name} must"):
            SPEC.from_ext_fields(with_text(name, text))


@pytest.mark.parametrize(("text", "number"), [("0", 0), ("-1", -1), ("+5", 5), ("007", 7), (12, 12), (-3, -3)])
def test_numbers_as_text_and_raw(text: Any, number: int) -> None:
    """ali-ons sends raw numbers; Java's parser takes a plus and leading zeros."""
    header = SPEC.from_ext_fields(with_text("queueId", text) | {"queueOffset": text})
    assert (header[1], header[2]) == (number, number)


@pytest.mark.parametrize(
    ("name", "index", "low", "high"), [("queueId", 1, -(2**31), 2**31 - 1), ("queueOffset", 2, -(2**63), 2**63 - 1)]
)
def test_integers_keep_to_their_width(name: str, index: int, low: int, high: int) -> None:
    """The bounds of Java's int and long pass in both encodings; one beyond is refused with the width."""
    bits = 32 if index == 1 else 64
    for good in (low, high):
        assert SPEC.from_ext_fields(with_text(name, str(good)))[index] == good
        assert SPEC.from_positional(with_value(index, good))[index] == good
    for bad in (low - 1, high + 1):
        with pytest.raises(HeaderError, match=f"{name} must fit {bits} bits"):
            SPEC.from_ext_fields(with_text(name, str(bad)))
    with pytest.raises(HeaderError, match=f"{name} must fit {bits} bits"):
        SPEC.from_positional(with_value(index, high + 1))


def test_a_nullable_integer_keeps_to_its_width_too() -> None:
    """Optional numbers are checked when they are there, also when the shape was seen before."""
    assert SPEC.from_positional(with_value(5, None)) == Sample("G", 3, 5_000_000_000, True, "r", None, 9)
    SPEC.from_positional(VALUES)
    with pytest.raises(HeaderError, match="retryTimes must fit 32 bits"):
        SPEC.from_positional(with_value(5, 2**31))


@by_row("value, wanted", [("true", True), ("TRUE", True), ("True", True), ("false", False), ("1", False), ("0", False),
     ("yes", False), ("", False), (True, True), (False, False), (1, False), (0, False)])  # fmt: skip
def test_booleans_by_javas_rule(value: Any, wanted: bool) -> None:
    """Only the text true, in any case, and a raw true are true; "1" is false (wire.md 1.2)."""
    assert SPEC.from_ext_fields(with_text("order", value))[3] is wanted


@pytest.mark.parametrize(("value", "text"), [(12, "12"), (True, "true"), (False, "false"), (1.5, "1.5"), ("x", "x")])
def test_raw_values_in_text_fields(value: Any, text: str) -> None:
    """ali-ons puts raw numbers and booleans where text belongs; they become the text Java makes of them."""
    assert SPEC.from_ext_fields(with_text("groupName", value))[0] == text


@pytest.mark.parametrize("value", [[], {}, ["G"], {"a": 1}])
def test_containers_are_no_text(value: Any) -> None:
    """A list or an object never becomes the name of something."""
    with pytest.raises(HeaderError, match="groupName must"):
        SPEC.from_ext_fields(with_text("groupName", value))
    with pytest.raises(HeaderError, match="order must"):
        SPEC.from_ext_fields(with_text("order", value))


def test_an_error_does_not_repeat_the_peers_megabytes() -> None:
    """The text of an error becomes a remark and a log line, so it is short whatever was sent."""
    for wrong in ("x" * 100_000, ["x" * 100_000]):
        with pytest.raises(HeaderError) as raised:
            SPEC.from_ext_fields(with_text("queueId", wrong))
        assert len(str(raised.value)) < 300
        with pytest.raises(HeaderError) as raised:
            SPEC.from_positional(with_value(1, wrong))
        assert len(str(raised.value)) < 300


@by_row("index, value", [(0, 1), (0, b"G"), (0, None), (0, ["G"]), (1, "3"), (1, 3.0), (1, True), (1, None), (1, {}),
     (2, "5"), (3, 1), (3, "true"), (3, None), (4, 5), (4, b"r"), (5, "1"), (5, False), (6, None.__class__),
     (6, "7")])  # fmt: skip
def test_positional_values_have_their_type(index: int, value: Any) -> None:
    """MSGPACK is typed: nothing is converted, and None passes only where the field may be absent."""
    with pytest.raises(HeaderError, match="must be of type"):
        SPEC.from_positional(with_value(index, value))
    assert SPEC.from_positional(VALUES) == Sample(*VALUES), "a refusal must not corrupt the next header"


def test_none_where_the_default_is_something() -> None:
    """An optional field that is never None is not None when it comes by position; in extFields null is absence."""
    assert SPEC.from_ext_fields(with_text("limit", None))[6] == 7
    for _ in range(2):
        with pytest.raises(HeaderError, match="limit must be of type int"):
            SPEC.from_positional(with_value(6, None))


def test_a_wrong_shape_is_refused_every_time() -> None:
    """Only shapes that were right are remembered."""
    for _ in range(3):
        with pytest.raises(HeaderError):
            SPEC.from_positional(with_value(1, "3"))


def test_appended_fields_of_a_newer_peer_are_ignored() -> None:
    """Values behind the last known field are dropped, as long as they last."""
    tail: list[Any]
    for tail in ([1], ["a", None, {}], [[]] * 50):
        for _ in range(2):
            assert SPEC.from_positional(VALUES + tail) == Sample(*VALUES)


def test_a_missing_tail_takes_the_defaults() -> None:
    """An older peer sends fewer values: optional ones get their defaults, a required one is named."""
    for length in range(4, 8):
        for _ in range(2):
            assert SPEC.from_positional(VALUES[:length]) == Sample(*VALUES[:length])
    with pytest.raises(HeaderError, match=r"order .* is missing"):
        SPEC.from_positional(VALUES[:3])
    with pytest.raises(HeaderError, match=r"groupName .* is missing"):
        SPEC.from_positional([])


def test_a_short_header_is_checked_for_width() -> None:
    """The range check also holds where defaults were filled in."""
    with pytest.raises(HeaderError, match="queueId must fit 32 bits"):
        SPEC.from_positional(["G", 2**31, 0, True])


def test_the_memory_of_shapes_is_bounded() -> None:
    """A peer that plays through every shape cannot grow the table for ever."""

    class Wide(NamedTuple):
        a: str | None = None
        b: str | None = None
        c: str | None = None
        d: str | None = None
        e: str | None = None
        f: str | None = None
        g: str | None = None
        h: str | None = None

    spec = spec_of(Wide)
    for number in range(256):
        values = [None if number >> i & 1 else "x" for i in range(8)]
        for _ in range(2):
            assert spec.from_positional(list(values)) == Wide(*values)
    assert len(spec._shapes) <= 64


def test_long_names_are_not_remembered() -> None:
    """A header may have 256 KiB, so a peer could fill the memory with names of fields."""
    spec = spec_of(UnregisterClientRequestHeader)
    usual = {"clientID": "c"}
    spec.from_ext_fields(usual | {"x" * 2000: ""})
    spec.from_ext_fields(usual | {"y": ""})
    assert ("clientID", "y") in spec._texts
    assert not [names for names in spec._texts if len("".join(names)) > 1024]


def test_names_can_be_given() -> None:
    """A class may say what its fields are called on the wire; the others keep camel case."""

    class Renamed(NamedTuple):
        msg_region: str
        queue_id: int

    rename_on_wire(Renamed, {"msg_region": "MSG_REGION"})
    assert spec_of(Renamed).to_texts(Renamed("r", 1)) == {"MSG_REGION": "r", "queueId": "1"}


def test_v2_sends_use_letters() -> None:
    """The fields of SEND_MESSAGE_V2 are a to n in the order of wire.md 4.1; those of sequence and lock follow."""
    wire_names = [field.wire_name for field in spec_of(SendMessageRequestHeaderV2).fields]
    assert wire_names[:14] == list("abcdefghijklmn")
    assert all(name.startswith("l") and len(name) == 2 for name in wire_names[14:])
    long_names = [field.wire_name for field in spec_of(SendMessageRequestHeader).fields]
    assert long_names[:9] == [
        "producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp",
        "flag", "properties",
    ]  # fmt: skip


def test_names_that_are_not_camel_case() -> None:
    """RocketMQ's own spellings, where the rule does not give them."""
    assert "clientID" in {field.wire_name for field in spec_of(UnregisterClientRequestHeader).fields}
    assert {"MSG_REGION", "TRACE_ON"} <= {field.wire_name for field in spec_of(SendMessageResponseHeader).fields}
    assert "suspendTimeoutMillis" in {field.wire_name for field in spec_of(PullMessageRequestHeader).fields}


def test_one_spec_a_class() -> None:
    """The table of a class is made once; V2 shares fields with V1 and not the table."""
    assert spec_of(Sample) is SPEC
    assert spec_of(SendMessageRequestHeader) is not spec_of(SendMessageRequestHeaderV2)


@by_row("header_class", sorted({*REQUEST_HEADERS.values(), *RESPONSE_HEADERS.values()}, key=str))
def test_every_header_class_has_a_sound_table(header_class: type[tuple[Any, ...]]) -> None:
    """Kinds are int, str or bool; wire names are unique; no required field stands behind an optional one."""
    fields = spec_of(header_class).fields
    assert {field.kind for field in fields} <= {int, str, bool}
    assert {field.bits for field in fields} <= {32, 64}
    assert len({field.wire_name for field in fields}) == len(fields)
    optional = [field.optional for field in fields]
    assert optional == sorted(optional)
    assert header_class.__name__ in {
        *headers.__all__,
        *admin_headers.__all__,
        *acl_headers.__all__,
        *pop_headers.__all__,
        *together_headers.__all__,
    }


class Lenient(NamedTuple):
    group: str
    queue_id: Int32
    offset: int
    retries: Int32 | None = None


class Exact(Lenient):
    __slots__ = ()


stand_in(Lenient, {"group": "null", "queue_id": 0})
stand_in(Exact, {"group": "null", "queue_id": 0}, exact=True)


@pytest.mark.parametrize("queue_id", [{}, {"queueId": "many"}, {"queueId": ""}, {"queueId": str(2**31)}])
def test_stand_ins(queue_id: dict[str, str]) -> None:
    """What is missing or cannot be read is what stands in for it, and an optional field is its default."""
    fields = {"offset": "5", "retries": "often"} | queue_id
    assert spec_of(Lenient).from_ext_fields(fields) == Lenient("null", 0, 5, None)


@pytest.mark.parametrize("fields", [{}, {"offset": "many"}])
def test_a_field_without_a_stand_in_is_required(fields: dict[str, str]) -> None:
    """A field that nothing stands in for must be there and readable."""
    with pytest.raises(HeaderError, match="offset"):
        spec_of(Lenient).from_ext_fields(fields)


@pytest.mark.parametrize("fields", [{"queueId": "many"}, {"retries": "often"}])
def test_exact_headers(fields: dict[str, str]) -> None:
    """In an exact header a field may be missing, but one that is there must be readable."""
    assert spec_of(Exact).from_ext_fields({"offset": "5"}) == Exact("null", 0, 5, None)
    with pytest.raises(HeaderError, match=next(iter(fields))):
        spec_of(Exact).from_ext_fields({"offset": "5"} | fields)
