"""SEND_TOGETHER: many sends in one frame are checked, stored and answered as single sends (docs/wire.md 17)."""

import struct
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.protocol.codes import RequestCode, ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import BodyError
from lockstep.protocol.filter import tags_code
from lockstep.protocol.headers.together import SendTogetherRequestHeader, SendTogetherResponseHeader
from lockstep.protocol.messages.message import MessageExt, decode_messages
from lockstep.protocol.messages.properties import encode_properties
from lockstep.protocol.messages.together import (
    NO_NUMBERS,
    SENDS_BYTES_MAX,
    SENDS_MAX,
    FrameQueue,
    SendHead,
    SendRow,
    decode_rows,
    encode_sends,
)
from lockstep.store import StoreFull
from tests.broker.helpers import NOW_MS, Peer

C = ResponseCode
HEADER = SendTogetherRequestHeader("PG", "TBW102", 4, 1, "broker-a", False, "producer-1")


class One(NamedTuple):
    """A message of a frame. `sequence` None: it has no number."""

    body: bytes = b"x"
    topic: str = "T"
    queue_id: int = 0
    sequence: int | None = None
    generation: int = 0
    properties: str = ""
    flag: int = 0
    sys_flag: int = 0


@pytest.fixture
def peer(header_encoding: SerializeType) -> Peer:
    return Peer(header_encoding)


def frame_of(messages: "list[One]") -> bytes:
    queues: dict[FrameQueue, int] = {}
    heads, texts = list[SendHead](), list[bytes]()
    for one in messages:
        queue = FrameQueue(one.topic, one.queue_id, NO_NUMBERS if one.sequence is None else one.generation)
        text = one.properties.encode()
        sizes = (len(one.body), len(text))
        index = queues.setdefault(queue, len(queues))
        heads.append(SendHead(index, one.sequence or 0, NOW_MS - 5, one.flag, one.sys_flag, *sizes))
        texts += (one.body, text)
    return encode_sends(list(queues), heads, texts)


def ask(peer: Peer, *messages: One, **command_fields: Any) -> RemotingCommand:
    header = HEADER._replace(message_count=len(messages))
    return peer.answer(RequestCode.SEND_TOGETHER, header, frame_of(list(messages)), **command_fields)


def send(peer: Peer, *messages: One) -> tuple[list[SendRow], list[str]]:
    reply = ask(peer, *messages)
    assert reply.code == C.SUCCESS
    return decode_rows(reply.body, len(messages))


def stored(peer: Peer, topic: str = "T", queue_id: int = 0) -> list[MessageExt]:
    return decode_messages(peer.broker.messages.store.get(topic, queue_id, 0, 1000, None).body)


def numbered(*sequences: int, generation: int = 0) -> list[One]:
    return [One(b"%d" % number, sequence=number, generation=generation) for number in sequences]


def test_each_message_is_answered_with_where_it_is_stored(peer: Peer) -> None:
    """Queue offsets count on in each queue; the prefix and the commit log offset make the offset message id."""
    peer.send(queue_id=1)
    messages = [One(b"a", queue_id=1), One(b"b"), One(b"c", queue_id=1), One(b"d", "U", 2)]
    reply = ask(peer, *messages)
    rows, remarks = decode_rows(reply.body, 4)
    assert ([row.code for row in rows], [row.queue_offset for row in rows], remarks) == ([0] * 4, [1, 0, 2, 0], [])
    prefix = reply.decode_header(SendTogetherResponseHeader).id_prefix
    second = stored(peer, queue_id=1)[2]
    assert f"{prefix}{rows[2].commit_log_offset:016X}" == second.offset_message_id
    assert [message.body for message in stored(peer, queue_id=1)[1:]] == [b"a", b"c"]
    assert stored(peer, "U", 2)[0].body == b"d"


_NAMES = st.sampled_from(["TAGS", "KEYS", "UNIQ_KEY", "colour", "WAIT", "CLUSTER", "WAITER", "INDELIBLE"])
_VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\x01\x02"), min_size=1, max_size=5)


@given(st.dictionaries(_NAMES, _VALUES), st.booleans(), st.binary(max_size=9), st.integers(-(2**31), 2**31 - 1))
def test_a_message_is_stored_as_a_single_send_stores_it(
    properties: dict[str, str], waits: bool, body: bytes, flag: int
) -> None:
    """Body, flags, times, host, tag hash and properties, whatever the properties are."""
    text = encode_properties(properties | ({"WAIT": "true"} if waits else {}))
    peer = Peer()
    assert peer.send(body=body, properties=text, flag=flag, sys_flag=0x331).code == 0
    assert [row.code for row in send(peer, One(body, properties=text, flag=flag, sys_flag=0x331))[0]] == [0]
    single, together = stored(peer)
    assert (together.properties, together.body) == (single.properties, single.body)
    assert (together.flag, together.sys_flag, together.born_timestamp) == (flag, 0x301, NOW_MS - 5)
    assert (together.store_timestamp, together.born_host) == (single.store_timestamp, single.born_host)
    entries = peer.broker.messages.store.entries("T", 0, 0, 2)
    assert entries[0].tags_code == entries[1].tags_code == tags_code(properties.get("TAGS"))


def test_one_refused_message_refuses_no_other(peer: Peer) -> None:
    """A wrong queue, a topic of the broker's own, a body too large: each has a code, a remark and a log line."""
    peer = Peer(peer.encoding, max_message_bytes=100)
    messages = [
        One(b"a"), One(b"b", queue_id=9), One(bytes(101)), One(b"c", "SCHEDULE_TOPIC_XXXX"), One(b"d"),
        One(b"e", queue_id=9),
    ]  # fmt: skip
    rows, remarks = send(peer, *messages)
    assert [row.code for row in rows] == [0, 1, C.MESSAGE_ILLEGAL, C.NO_PERMISSION, 0, 1]
    assert [row.queue_offset for row in rows] == [0, -1, -1, -1, 1, -1]
    assert [remark.split()[0] for remark in remarks] == ["topic", "the", "topic", "topic"]
    assert [message.body for message in stored(peer)] == [b"a", b"d"]
    assert peer.log.names().count("send_refused") == 4


@pytest.mark.parametrize(
    "one",
    [
        One(properties="DELAY\x013"), One(properties="a\x01b\x02DELAY\x010\x02WAIT\x01true"),
        One(properties="__STARTDELIVERTIME\x011"), One(properties="TRAN_MSG\x01true"), One(sys_flag=4),
        One(topic="%RETRY%G"), One(queue_id=-1),
    ],
)  # fmt: skip
def test_what_is_sent_by_itself(peer: Peer, one: One) -> None:
    """Delayed and transactional messages, those of retry topics, and those for any queue are refused among others."""
    rows, (remark,) = send(peer, One(b"before"), one, One(b"behind"))
    assert [row.code for row in rows] == [0, C.MESSAGE_ILLEGAL, 0]
    assert "cannot go with others" in remark
    assert [message.body for message in stored(peer)] == [b"before", b"behind"]


def test_a_send_makes_a_topic(peer: Peer) -> None:
    """As a single send does, once."""
    send(peer, One(topic="new"), One(topic="new", queue_id=3))
    assert (peer.topic_changes, len(stored(peer, "new", 3))) == (1, 1)


def test_properties_that_do_not_fit(peer: Peer) -> None:
    """The stored ones may have 32,767 bytes, whether they need a closer look or not."""
    cluster = len("\x02CLUSTER\x01DefaultCluster")
    fits, no_fit = (f"k\x01{'v' * (32767 - 2 - cluster + more)}" for more in (0, 1))
    rows, _ = send(peer, One(properties=fits), One(properties=no_fit), One(properties=f"WAITS\x01é\x02{fits}"))
    assert [row.code for row in rows] == [0, C.MESSAGE_ILLEGAL, C.MESSAGE_ILLEGAL]


# Order ------------------------------------------------------------------------------------------------------------


def test_numbers_are_those_of_single_sends(peer: Peer) -> None:
    """A frame goes on where single sends ended, and single sends where a frame ended."""
    queue: dict[str, Any] = {"send_generation": 0, "sender_id": "producer-1"}
    assert peer.send(send_sequence=0, **queue).code == 0
    assert [row.code for row in send(peer, *numbered(1, 2, 3))[0]] == [0, 0, 0]
    assert peer.send(send_sequence=5, **queue).code == C.SEND_OUT_OF_SEQUENCE
    assert peer.send(send_sequence=4, **queue).code == 0


def test_none_overtakes_one_that_was_not_stored(peer: Peer) -> None:
    """Behind a refused message those of its queue and generation are refused, in this frame and in later ones."""
    peer = Peer(peer.encoding, max_message_bytes=10)
    other = One(b"other", queue_id=1, sequence=0)
    refused = One(bytes(11), sequence=1)
    rows, remarks = send(peer, *numbered(0), refused, other, *numbered(2, 3))
    late = C.SEND_OUT_OF_SEQUENCE
    assert [row.code for row in rows] == [0, C.MESSAGE_ILLEGAL, 0, late, late]
    assert remarks[1] == "number 2 would overtake 1, which was not stored"
    assert [row.code for row in send(peer, *numbered(4))[0]] == [late]
    rows, _ = send(peer, *numbered(0, 1, generation=1), *numbered(1))
    assert [row.code for row in rows] == [0, 0, late]
    assert [message.body for message in stored(peer)] == [b"0", b"0", b"1"]


def test_a_frame_that_comes_twice_is_stored_once(peer: Peer) -> None:
    """Numbers protect from a second copy."""
    frame = numbered(0, 1)
    assert [row.code for row in send(peer, *frame)[0]] == [0, 0]
    rows, remarks = send(peer, *frame)
    assert [row.code for row in rows] == [C.SEND_OUT_OF_SEQUENCE] * 2
    assert "stored already" in remarks[0]
    assert len(stored(peer)) == 2


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 4), st.booleans(), st.booleans()), max_size=40))
def test_any_frames_do_what_single_sends_do(arrivals: list[tuple[int, int, bool, bool]]) -> None:
    """Whatever numbers come, good or refused, and wherever frames begin: codes, remarks and order are the same."""
    single, together = Peer(max_message_bytes=10), Peer(max_message_bytes=10)
    expected, frames = list[tuple[int, str]](), list[list[One]]()
    for at, (generation, sequence, good, begins) in enumerate(arrivals):
        body = b"%d" % at if good else bytes(11)
        queue: dict[str, Any] = {"send_generation": generation, "send_sequence": sequence, "sender_id": "producer-1"}
        reply = single.send(body=body, **queue)
        expected.append((reply.code, reply.remark or ""))
        if begins or not frames:
            frames.append([])
        frames[-1].append(One(body, sequence=sequence, generation=generation))
    answers = list[tuple[int, str]]()
    for frame in frames:
        rows, remarks = send(together, *frame)
        left = iter(remarks)
        answers += [(row.code, next(left) if row.code else "") for row in rows]
    assert answers == expected
    assert [one.body for one in stored(together)] == [one.body for one in stored(single)]


def test_a_full_store_takes_what_it_can(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then each message is tried by itself, and none overtakes one of its sequence that was not stored."""
    store, append = peer.broker.messages.store, peer.broker.messages.store.append

    def full(records: Any) -> Any:
        raise StoreFull("no room for all")

    def first_is_refused(record: Any) -> Any:
        if record.body == b"0":
            raise StoreFull("no room")
        return append(record)

    monkeypatch.setattr(store, "append_all", full)
    monkeypatch.setattr(store, "append", first_is_refused)
    rows, remarks = send(peer, *numbered(0, 1), One(b"other", queue_id=1, sequence=0), One(b"without"))
    assert [row.code for row in rows] == [C.SERVICE_NOT_AVAILABLE, C.SEND_OUT_OF_SEQUENCE, 0, 0]
    assert remarks == ["no room", "number 1 would overtake an earlier one, which was not stored"]
    assert [row.code for row in send(peer, *numbered(2))[0]] == [C.SEND_OUT_OF_SEQUENCE]


# Hostile frames ---------------------------------------------------------------------------------------------------

GOOD = frame_of([One(b"a"), One(b"b", queue_id=1)])


@pytest.mark.parametrize(
    ("body", "count", "reason"),
    [
        (GOOD, 0, "at least one"),
        (GOOD, -1, "at least one"),
        (GOOD, 1, "1 to 1 queues"),
        (GOOD, 3, "add up|heads|queue"),
        (GOOD[:-1], 2, "add up"),
        (GOOD + b"x", 2, "add up"),
        (b"", 1, "queues"),
        (b"\0\1", 1, "queues"),
        (b"\0\0", 1, "queues"),
        (struct.pack(">HiqB", 1, 0, -1, 200), 1, "heads"),
        (b"\xff" * 100, 2, "queues"),
        (encode_sends([FrameQueue("T", 0, -1)], [(1, 0, 0, 0, 0, 0, 0)], []), 1, "queue 1 of 1"),
        (encode_sends([FrameQueue("T", 0, -1)], [(0, 0, 0, 0, 0, -1, 1)], []), 1, "-1 bytes"),
    ],
)
def test_a_frame_whose_lengths_are_wrong_stores_nothing(peer: Peer, body: bytes, count: int, reason: str) -> None:
    """It is refused as a whole, and the reason says what is wrong."""
    with pytest.raises(BodyError, match=reason):
        peer.answer(RequestCode.SEND_TOGETHER, HEADER._replace(message_count=count), body)
    assert peer.broker.messages.store.max_commit_log_offset == 0


def test_a_frame_with_too_many_messages(peer: Peer) -> None:
    """MESSAGE_ILLEGAL, as a batch has; nothing of it is stored. No setting of the broker makes the limit smaller."""
    peer = Peer(peer.encoding, batch_messages_max=2)
    reply = ask(peer, *[One()] * (SENDS_MAX + 1))
    assert reply.code == C.MESSAGE_ILLEGAL
    assert "at most 1000 messages, not 1001" in (reply.remark or "")
    reply = ask(peer, One(bytes(SENDS_BYTES_MAX)))
    assert reply.code == C.MESSAGE_ILLEGAL
    assert "at most 2097152 bytes" in (reply.remark or "")
    assert peer.broker.messages.store.max_commit_log_offset == 0
    assert [row.code for row in send(peer, *[One()] * SENDS_MAX)[0]] == [0] * SENDS_MAX


def test_hostile_topics_are_refused_as_single_ones(peer: Peer) -> None:
    """Names that no topic has, and an order topic of a broker that may not be written to."""
    peer = Peer(peer.encoding, broker_permission=4)
    peer.broker.catalog.topics.put(TopicConfig("ordered", order=True), NOW_MS)
    names = ["", "no spaces", "x" * 128, "é", "ordered"]
    rows, remarks = send(peer, *[One(topic=name) for name in names])
    singles = [peer.send(name) for name in names]
    assert [(row.code, remark) for row, remark in zip(rows, remarks, strict=True)] == [
        (single.code, single.remark) for single in singles
    ]


def test_a_sender_id_that_is_too_long(peer: Peer) -> None:
    """Its numbered messages are refused, the others are stored."""
    header = HEADER._replace(message_count=3, sender_id="p" * 2000)
    reply = peer.answer(RequestCode.SEND_TOGETHER, header, frame_of([*numbered(0, 1), One()]))
    assert [row.code for row in decode_rows(reply.body, 3)[0]] == [C.SEND_OUT_OF_SEQUENCE] * 2 + [0]
    assert len(peer.broker.messages.send_sequences) == 0


def test_a_one_way_frame_is_stored(peer: Peer) -> None:
    """And its answer is the endpoint's to drop."""
    peer.call(RequestCode.SEND_TOGETHER, HEADER._replace(message_count=1), frame_of([One()]), flag=2)
    assert len(stored(peer)) == 1


def test_answers_are_as_small_as_the_rows(peer: Peer) -> None:
    """20 bytes for a stored message."""
    assert len(ask(peer, *[One()] * 50).body) == 1000
