"""Frames of many sends by the kernel and by the usual way: answers, log, queues and send sequences are equal."""

import asyncio
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.broker.core import append_together
from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.remoting.answers import Answers
from lockstep.protocol import kernels_together
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.together import SendTogetherRequestHeader
from lockstep.protocol.kernels import SendSettings
from lockstep.protocol.kernels_together import NumberedQueue
from lockstep.protocol.messages.together import NO_NUMBERS, FrameQueue, decode_queues, encode_sends
from tests.broker.helpers import NOW_MS
from tests.fuzz.strategies import fuzz
from tests.fuzz.test_plain_sends import new_broker, stored
from tests.remoting import helpers

_TEXT = st.one_of(
    st.builds("UNIQ_KEY\x01{}\x02WAIT\x01true".format, st.integers(0, 99)),
    st.builds("KEYS\x01k\x02TAGS\x01{}\x02WAIT\x01true".format, st.sampled_from(["a", "\u8ba2\u5355", ""])),
    st.sampled_from(
        ["", "WAIT\x01true", "TAGS\x01a\x02TAGS\x01b", "KEYS\x01DELHI\x02TAGS\x01a\x02WAIT\x01true", "\x02\x02TAGS\x01",
         "WAIT\x01false\x02KEYS\x01k", "KEYS\x01a\x02KEYS\x01WAITING", "CLUSTER\x01other", "a",
         "KEYS\x01" + "k" * 32_740]
    ),
)  # fmt: skip
_ALONE = st.sampled_from(["DELAY\x013", "TRAN_MSG\x01true", "__STARTDELIVERTIME\x0112", "K\x01v\x02" * 65])


class _One(NamedTuple):
    """A message: its place in the list of queues, and how far its number is from the next one."""

    queue: int
    step: int
    body: bytes
    text: bytes
    sys_flag: int
    born_ms: int


_PLAIN = st.builds(
    _One,
    st.integers(0, 2),
    st.just(0),
    st.sampled_from([b"", b"x", b"body " * 20]),
    _TEXT.map(str.encode),
    st.sampled_from([0, 0, 1, 16]),
    st.just(NOW_MS),
)
_ODD = st.one_of(
    st.builds(_One._replace, _PLAIN, step=st.sampled_from([-1, 1])),
    st.builds(_One._replace, _PLAIN, body=st.just(b"z" * 257)),
    st.builds(_One._replace, _PLAIN, text=st.one_of(_ALONE.map(str.encode), st.just(b"KEYS\x01\xff"))),
    st.builds(_One._replace, _PLAIN, sys_flag=st.sampled_from([4, 8])),
    st.builds(_One._replace, _PLAIN, born_ms=st.sampled_from([-1, 2**63 - 1])),
    st.builds(_One._replace, _PLAIN, queue=st.integers(3, 5)),
)
_GENERATIONS = st.lists(st.sampled_from([7, 7, 7, -1, 7, 7, 7, 7, 7, 8]), min_size=3, max_size=3)
_KNOWN = st.tuples(st.permutations([0, 1, 2]), _GENERATIONS).map(
    lambda chosen: [FrameQueue("T", *one) for one in zip(*chosen, strict=True)]
)
_ANY = st.lists(
    st.builds(FrameQueue, st.sampled_from("TTTN"), st.sampled_from([0, 1, 3, 4, -1]), st.sampled_from([-1, 7, 8])),
    min_size=3,
    max_size=6,
)
_FRAMES = st.tuples(
    st.one_of(*[_KNOWN] * 7, _ANY),
    st.lists(_PLAIN, min_size=1, max_size=5),
    st.one_of(*[st.just([])] * 7, st.lists(_ODD, min_size=1, max_size=1)),
    st.sampled_from([""] * 9 + ["odd first", "all queues", "a byte less", "a byte more"]),
)


def _frame(
    parts: tuple[list[FrameQueue], list[_One], list[_One], str], next_of: dict[FrameQueue, int]
) -> tuple[bytes, int]:
    """The body of a frame, perhaps with a fault, and its number of messages."""
    queues, plain, odd, change = parts
    messages = odd + plain if change == "odd first" else plain + odd
    used = sorted({one.queue for one in messages if one.queue < len(queues)}) or [0]
    if change == "all queues" and len(messages) >= len(queues):
        used = list(range(len(queues)))  # some have no message
    heads: list[tuple[int, ...]] = []
    texts: list[bytes] = []
    for one in messages:
        place = used.index(one.queue) if one.queue in used else len(used)
        queue = queues[one.queue] if one.queue < len(queues) else FrameQueue("T", 0, NO_NUMBERS)
        number = next_of.get(queue, 0)
        next_of[queue] = number + 1
        head = place, number + one.step, one.born_ms, 5, one.sys_flag, len(one.body), len(one.text)
        heads.append(head)
        texts += (one.body, one.text)
    body = encode_sends([queues[place] for place in used], heads, texts)
    if change == "a byte less":
        body = body[:-1]
    return (body + b"x" if change == "a byte more" else body), len(heads)


def _command(body: bytes, count: int) -> bytes:
    header = SendTogetherRequestHeader("PG", "TBW102", 4, count, "broker-a", False, "sender")
    return helpers.frame_of(RemotingCommand(RequestCode.SEND_TOGETHER, header, body, opaque=1))


async def _played(frames: list[bytes]) -> tuple[Any, Broker]:
    """What a broker has answered and stored after these frames."""
    broker = new_broker()
    peer = helpers.Peer(Answers(broker).answer)
    for queue_id in range(3):  # a sequence begins the usual way
        broker.messages.send_sequences.refusal(("sender", "T", queue_id), 7, 0, peer.endpoint, NOW_MS)
    for frame in frames:
        peer.endpoint.data_received(frame)
    sequences = {
        key: (entry.generation, entry.next_sequence, entry.last_used_ms)
        for key, entry in broker.messages.send_sequences._sequences.items()
    }
    return (peer.transport.sent, stored(broker), sequences), broker


def test_both_ways_are_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of any frames. The kernel takes many of them: one that refuses all would be equal too."""
    taken = refused = 0

    @fuzz
    @given(st.lists(_FRAMES, min_size=1, max_size=5))
    def compare(parts: list[Any]) -> None:
        nonlocal taken, refused
        next_of: dict[FrameQueue, int] = {}
        frames = [_command(*_frame(one, next_of)) for one in parts]
        found, broker = runner.run(_played(frames))
        with monkeypatch.context() as without:
            without.setattr(append_together, "take_frame", lambda *_: None)
            usual, _ = runner.run(_played(frames))
        assert found == usual
        taken += broker.messages.plain_sends["taken"]
        refused += broker.messages.plain_sends["refused"]

    with asyncio.Runner() as runner:
        compare()
    assert taken > 3
    assert refused > 0


def test_both_arms_are_equal() -> None:
    """The native one takes the frames that its twin takes, with the same result."""
    native = pytest.importorskip("lockstep.protocol._native", reason="no native part: make native")
    settings = SendSettings("CLUSTER\x01c", b"7F000001", bytes(4), 10911, 256, 60_000, 8)
    taken = refused = 0

    @fuzz
    @given(_FRAMES)
    def compare(parts: Any) -> None:
        nonlocal taken, refused
        body, count = _frame(parts, {})
        queues, heads_begin = decode_queues(body, count)
        numbered = [
            NumberedQueue(topic, queue_id, -1 if generation == NO_NUMBERS else 0, 2**40)
            for topic, queue_id, generation in queues
        ]
        arguments = body, heads_begin, count, settings, numbered, NOW_MS, (bytes(4), 5), 77
        found = native.plain_frame(*arguments)
        assert found == kernels_together.plain_frame(*arguments)
        taken, refused = taken + (found is not None), refused + (found is None)

    compare()
    assert taken > refused // 4 > 0
