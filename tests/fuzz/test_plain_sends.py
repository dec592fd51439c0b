"""Sends by the kernel and by the usual way: the answers, the log and the queues are equal, byte by byte."""

import asyncio
import json
import random
import struct
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.broker.config import BrokerConfig
from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.remoting.answers import Answers
from lockstep.broker.fronts.remoting.plain_sends import PlainSendLane
from lockstep.protocol import kernels
from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.protocol.messages.message import Record
from lockstep.remoting.connections import endpoint
from tests.broker.helpers import NOW_MS, RecordingLog
from tests.fuzz.strategies import fuzz
from tests.remoting import helpers

_PLAIN = {"a": "PG", "b": "T", "c": "TBW102", "d": "4", "e": "0", "f": "0", "g": "1700000000000", "h": "0"}
_TAKEN = st.fixed_dictionaries(
    {"e": st.sampled_from("00112203")},
    optional={
        "h": st.sampled_from(["0", "7", "2147483647"]),
        "f": st.sampled_from(["0", "1", "2", "00", "16"]),
        "j": st.sampled_from(["0", "3"]),
        "k": st.sampled_from(["false", "true"]),
        "l": st.sampled_from(["0", "16"]),
        "m": st.sampled_from(["false", "0"]),
        "n": st.sampled_from(["broker-a", ""]),
    },
)
_ODD_VALUES: list[Any] = [
    "", "-1", "+1", "4", "9", "2147483648", "9223372036854775808", "1e3", "\u0663", "8", "12", "true", "x", "MadeNow",
    "T" * 256, "%RETRY%G", "SELF_TEST_TOPIC", "no topic", None, 0, 1, True, 1.5, [], {}, ["a"], "MSGPACK",
]  # fmt: skip
_ODD = st.tuples(
    st.sampled_from([*"abcdefghijklmno", "lockstep.serialize"]),
    st.sampled_from(_ODD_VALUES),
)
_NAME = st.sampled_from(["KEYS", "TAGS", "UNIQ_KEY", "WAIT", "Schlüssel", "a", ""])
_OTHER_KIND = st.sampled_from(["DELAY\x013", "TRAN_MSG\x01true", "CLUSTER\x01other", "TRAN_MSG\x01x", "CLUSTER\x01"])
_VALUE = st.sampled_from(["1", "true", "tag", "\u8ba2\u5355", 'a"b\\', "x\x01y", "", "\u2028\n"])
_PIECE = st.one_of(st.builds("{}\x01{}".format, _NAME, _VALUE), _NAME, _OTHER_KIND)
_PROPERTIES = st.one_of(
    st.builds("UNIQ_KEY\x01{}\x02WAIT\x01true".format, st.integers(0, 99)),
    st.builds("KEYS\x01{}\x02\x02TAGS\x01{}".format, _VALUE, _VALUE),
    st.builds("WAIT\x01false\x02{}\x01{}".format, st.sampled_from(["Schlüssel", "a"]), _VALUE),
    st.lists(_PIECE, max_size=4).map("\x02".join),
    st.lists(_PIECE, min_size=17, max_size=18).map("\x02".join),
    st.just("KEYS\x01" + "k" * 32_760),
)
_PARTS = st.fixed_dictionaries(
    {},
    optional={
        "code": st.sampled_from([10, 310.0, 320, 11]),
        "flag": st.sampled_from([1, 2, True, 0.0, None]),
        "opaque": st.sampled_from([-1, 2**31, 2**63, None, "1", True]),
        "version": st.sampled_from([0, 453, None, "435", 1.0]),
        "language": st.sampled_from(["CPP", "GO", None, 3]),
        "remark": st.sampled_from(["why", 1, {"a": ["[" * 300]}]),
        "extFields": st.sampled_from([None, [], {}, "x"]),
    },
)
_BODIES = st.sampled_from([b"", b"x", b"body " * 20, bytes(range(256)), b"z" * 257])


@st.composite
def _frames(draw: st.DrawFn) -> bytes:
    """A send, most of them plain; or some other frame, perhaps with a fault."""
    fields: dict[str, Any] = {**_PLAIN, **draw(_TAKEN)}
    if draw(st.booleans()):
        fields["i"] = draw(_PROPERTIES)
    parts: dict[str, Any] = {"code": 310, "extFields": fields, "flag": 0, "language": "JAVA", "opaque": 1}
    parts["opaque"] = draw(st.integers(1, 9))
    kind = draw(st.sampled_from(["plain"] * 16 + ["long", "numbers", "field", "dropped", "part", "text", "bytes"]))
    if kind == "field":
        name, value = draw(_ODD)
        fields[name] = value
    elif kind == "long":
        parts |= {"code": 10, "language": "CPP", "extFields": _with_long_names(fields, draw(st.sampled_from(_EXTRA)))}
    elif kind == "numbers":
        for name in fields.keys() & set("defghjl"):
            fields[name] = int(fields[name])
        fields["k"] = draw(st.booleans())
    elif kind == "dropped":
        del fields[draw(st.sampled_from(sorted(fields)))]
    elif kind == "part":
        parts |= draw(_PARTS)
    text = json.dumps(parts, separators=(",", ":"), ensure_ascii=draw(st.booleans()))
    if kind == "text":
        text = draw(_TEXTS)(text)
    header, body = text.encode("utf-8", "surrogatepass"), draw(_BODIES)
    frame = bytearray(struct.pack(">II", 4 + len(header) + len(body), len(header)) + header + body)
    if kind == "bytes":
        frame[draw(st.integers(0, len(frame) - 1))] ^= 1 << draw(st.integers(0, 7))
    return bytes(frame)


_EXTRA: list[dict[str, str]] = [
    {},
    {"AccessKey": "", "Signature": "x="},
    {"b": "T"},
    {"brokerName": "b"},
    {"batch": "1"},
]


def _with_long_names(fields: dict[str, Any], more: dict[str, str]) -> dict[str, Any]:
    letters = {letter: name for name, letter in kernels._LETTERS.items()}
    return {letters[letter]: value for letter, value in fields.items() if letter != "n"} | more


_CHANGES: list[Callable[[str], str]] = [
    lambda text: text[:-1],
    lambda text: text + " ",
    lambda text: text.replace(":", ": "),
    lambda text: text.replace('"e":', '"e":"1","e":'),
    lambda text: text.replace('"code":310', '"code":310,"code":11'),
    lambda text: text.replace('"PG"', '"\\ud800"'),
    lambda text: text.replace('"PG"', "NaN"),
    lambda text: text.replace('"flag"', '"x":' + "[" * 250 + "]" * 250 + ',"flag"'),
]
_TEXTS = st.sampled_from(_CHANGES)


def new_broker() -> Broker:
    broker = Broker(BrokerConfig(max_message_bytes=256), random.Random(7), RecordingLog(), NOW_MS)
    broker.catalog.topics.put(TopicConfig("T", 4, 4), NOW_MS)
    for queue_id in range(3):  # the fourth queue has had no message
        broker.messages.put(Record("T", queue_id, 0, 0, 0, bytes(4), 0, NOW_MS, 0, 0, b"", b"", 0))
    return broker


def stored(broker: Broker) -> dict[tuple[str, int], tuple[bytes, list[Any]]]:
    store = broker.messages.store
    return {key: (store.get(*key, 0, 1000, None).body, store.entries(*key, 0, 1000)) for key in store.queue_keys()}


@pytest.fixture(autouse=True)
def no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel looks at each read."""
    monkeypatch.setattr(endpoint, "_REST_READS_MAX", 0)


async def _played(reads: list[bytes], *, with_kernel: bool) -> tuple[Any, int]:
    """What a broker has answered and stored after these reads, and how many sends the kernel took."""
    broker = new_broker()
    lane = PlainSendLane(broker, Answers(broker).stored_leave_now)
    peer = helpers.Peer(Answers(broker).answer, on_bytes=lane if with_kernel else None)
    for read in reads:
        if not peer.transport.ended:
            peer.endpoint.data_received(read)
    return (peer.transport.sent, peer.transport.ended, stored(broker)), broker.messages.plain_sends["taken"]


def test_both_ways_are_equal() -> None:
    """Of any frames, split in any way. The kernel takes many of them: one that refuses all would be equal too."""
    taken = sent = 0

    @fuzz
    @given(st.lists(_frames(), min_size=1, max_size=12), st.lists(st.integers(0, 2000), max_size=4))
    def compare(frames: list[bytes], cuts: list[int]) -> None:
        nonlocal taken, sent
        data = b"".join(frames)
        places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
        reads = [data[start:end] for start, end in pairwise(places)]
        usual, _ = runner.run(_played(reads, with_kernel=False))
        found, count = runner.run(_played(reads, with_kernel=True))
        assert found == usual
        taken, sent = taken + count, sent + len(frames)

    with asyncio.Runner() as runner:
        compare()
    assert taken > sent // 8


def test_both_arms_are_equal() -> None:
    """The native one takes what its twin takes with the same result, or less: numbers of 19 digits, a name twice."""
    native = pytest.importorskip("lockstep.protocol._native", reason="no native part: make native")
    settings = kernels.SendSettings("CLUSTER\x01c", b"7F000001", bytes(4), 10911, 256, 60_000, 8)
    taken = plain = 0

    @fuzz
    @given(st.lists(_frames(), min_size=1, max_size=12).map(b"".join))
    def compare(data: bytes) -> None:
        nonlocal taken, plain
        rest = settings, lambda topic, queue_id: {"T": 5, "T" * 256: 0}.get(topic), NOW_MS, (bytes(4), 5), 77
        found, whole = native.plain_sends(data, 0, *rest), kernels.plain_sends(data, 0, *rest)
        if found is not None:
            assert found == kernels.plain_sends(data[: found[0]], 0, *rest)
        taken += found[1] if found else 0
        plain += whole.send_count if whole else 0

    compare()
    assert taken > 0.9 * plain > 0


@pytest.mark.parametrize("arm", ["python", "native"])
def test_a_topic_that_cannot_be_stored_is_not_taken(arm: str) -> None:
    """The stored layout has a byte for its length: a broker may know a longer one, of a group's dead letters."""
    take: Any = kernels.plain_sends
    if arm == "native":
        take = pytest.importorskip("lockstep.protocol._native", reason="no native part: make native").plain_sends
    settings = kernels.SendSettings("CLUSTER\x01c", b"7F000001", bytes(4), 10911, 256, 60_000, 8)
    for length, is_taken in ((255, True), (256, False)):
        parts = {"code": 310, "extFields": {**_PLAIN, "b": "T" * length}, "language": "GO", "opaque": 1}
        header = json.dumps(parts, separators=(",", ":")).encode()
        data = struct.pack(">II", 4 + len(header), len(header)) + header
        taken = take(data, 0, settings, lambda topic, queue_id: 0, NOW_MS, (bytes(4), 5), 77)
        assert (taken is not None) is is_taken
