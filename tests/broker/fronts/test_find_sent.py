"""FIND_SENT: where a send that had no answer is stored, asked before it is repeated (docs/wire.md 17.3)."""

import asyncio
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lockstep.broker.core import find_sent as searched
from lockstep.protocol.bodies.codec import encode_body
from lockstep.protocol.codes import RequestCode, ResponseCode, SerializeType
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import HeaderError
from lockstep.protocol.headers.messaging import FindSentRequestHeader, SendMessageResponseHeader
from lockstep.protocol.messages.batch import BatchRecord, encode_batch
from tests.broker.helpers import Peer, heartbeat_of
from tests.broker.persistence.kept_broker import kept, until

C = ResponseCode
FIND = RequestCode.FIND_SENT
HEADER = FindSentRequestHeader("T", 0, 0, "id-1", 1, 1, 0, "producer-1")


@pytest.fixture
def peer(header_encoding: SerializeType) -> Peer:
    made = Peer(header_encoding)
    made.make_topics("T")
    return made


def unique(message_id: str, before: str = "") -> str:
    return f"{before}UNIQ_KEY\x01{message_id}"


def numbered(sequence: int, generation: int = 0) -> dict[str, Any]:
    return {"sender_id": "producer-1", "send_generation": generation, "send_sequence": sequence}


def send(peer: Peer, message_id: str, **fields: Any) -> RemotingCommand:
    return peer.send(properties=unique(message_id), **fields)


def find(peer: Peer, message_id: str = "id-1", **fields: Any) -> RemotingCommand:
    return peer.answer(FIND, HEADER._replace(message_id=message_id, **fields))


def place(reply: RemotingCommand) -> SendMessageResponseHeader:
    assert reply.code == C.SUCCESS, reply.remark
    return reply.decode_header(SendMessageResponseHeader)


def test_the_answer_is_that_of_the_send(peer: Peer) -> None:
    """Of each message by its own id, and in its own queue."""
    told = {f"id-{i}": place(send(peer, f"id-{i}", queue_id=i % 2, **numbered(i // 2))) for i in range(6)}
    for message_id, header in told.items():
        assert place(find(peer, message_id, queue_id=header.queue_id)) == header
        assert find(peer, message_id, queue_id=1 - header.queue_id).code == C.QUERY_NOT_FOUND


def test_what_is_not_there_is_not_found(peer: Peer) -> None:
    """Also an id that is a part of another one, or a text in a body or in another property."""
    peer.send(body=b"UNIQ_KEY\x01id-1", properties=unique("id-12", "KEYS\x01id-1\x02"))
    peer.send(properties=unique("other", "XUNIQ_KEY\x01id-1\x02"))
    reply = find(peer)
    assert (reply.code, reply.remark) == (C.QUERY_NOT_FOUND, "message id-1 is not in queue 0 of topic 'T'")
    assert find(peer, topic="unknown").code == C.QUERY_NOT_FOUND
    assert find(peer, queue_id=77).code == C.QUERY_NOT_FOUND


def test_a_batch_is_found_by_its_first_message(peer: Peer) -> None:
    send(peer, "before")
    records = [BatchRecord(0, b"x", unique(f"id-{i}")) for i in range(3)]
    header = place(peer.send(body=encode_batch(records), batch=True, **numbered(0)))
    send(peer, "behind")
    found = place(find(peer, "id-0", message_count=3))
    assert found == header
    assert found.msg_id.count(",") == 2
    assert found.queue_offset == 1
    assert find(peer, "behind", message_count=3).code == C.QUERY_NOT_FOUND  # a part of a batch is no batch


def test_the_search_ends_where_the_producer_says(peer: Peer) -> None:
    for i in range(4):
        send(peer, f"id-{i}")
    assert place(find(peer, "id-2", begin_offset=2)).queue_offset == 2
    assert find(peer, "id-1", begin_offset=2).code == C.QUERY_NOT_FOUND
    assert find(peer, "id-3", begin_offset=100).code == C.QUERY_NOT_FOUND
    assert place(find(peer, "id-0", begin_offset=-5)).queue_offset == 0


def test_a_long_queue_is_searched_from_its_end(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    """In parts, and not for ever."""
    monkeypatch.setattr(searched, "_ENTRIES", 7)
    for i in range(30):
        send(peer, f"id-{i}")
    assert [place(find(peer, f"id-{i}")).queue_offset for i in (0, 6, 7, 15, 29)] == [0, 6, 7, 15, 29]
    monkeypatch.setattr(searched, "_SEARCHED_MAX", 10)
    assert place(find(peer, "id-20")).queue_offset == 20
    assert find(peer, "id-19").code == C.QUERY_NOT_FOUND


def test_other_requests_run_during_a_long_search(peer: Peer) -> None:
    """It ends in a later turn of the loop, and answers then. A message that looks like the wanted one costs more."""
    for i in range(searched._ENTRIES * 30):
        send(peer, f"id-{i}")
    turns: list[Any] = []
    peer.broker.work.soon = turns.append
    rounds = []
    for message_id in ("id-0", "id-"):
        assert peer.call(FIND, HEADER._replace(message_id=message_id)) is None
        rounds.append(0)
        while turns:
            turns.pop()()
            rounds[-1] += 1
    assert 0 < rounds[0] < rounds[1] / 10
    found, missing = peer.connection.replies
    assert place(found).queue_offset == 0
    assert missing.code == C.QUERY_NOT_FOUND


def test_what_was_asked_for_is_not_stored_later(peer: Peer) -> None:
    """An attempt that arrives after the question, over an older connection, is of an old generation."""
    assert find(peer).code == C.QUERY_NOT_FOUND
    late = send(peer, "id-1", **numbered(0, generation=0))
    assert late.code == C.SEND_OUT_OF_SEQUENCE
    assert place(send(peer, "id-1", **numbered(0, generation=1))).queue_offset == 0
    assert place(find(peer, send_sequence=1)).queue_offset == 0


def test_a_question_has_the_place_of_its_send(peer: Peer) -> None:
    """A send before it that was not stored makes the question fail too, so the repeat does not overtake it."""
    assert find(peer, send_sequence=1).code == C.SEND_OUT_OF_SEQUENCE
    send(peer, "id-0", **numbered(0, generation=1))
    assert find(peer, send_sequence=1).code == C.QUERY_NOT_FOUND
    reply = find(peer, send_generation=0, send_sequence=1)
    assert (reply.code, "generation 0 has ended" in (reply.remark or "")) == (C.SEND_OUT_OF_SEQUENCE, True)


@pytest.mark.parametrize("count", [0, -1, 1 << 20])
def test_a_wrong_count_is_refused(peer: Peer, count: int) -> None:
    with pytest.raises(HeaderError, match=f"messageCount must be 1 to .*, but is {count}"):
        find(peer, message_count=count)


def in_the_next_turn(then: Callable[[], None]) -> None:
    asyncio.get_running_loop().call_soon(then)


# On the disk -------------------------------------------------------------------------------------------------


async def test_with_flush_sync_the_answer_waits_for_the_disk(tmp_path: Path) -> None:
    """The message is in the log, and not in its queue yet."""
    async with kept(tmp_path) as opened:
        opened.broker.work.soon = in_the_next_turn
        assert opened.send(b"x", properties=unique("id-1"), **numbered(0)) is None
        assert opened.ask(FIND, HEADER) is None
        opened.flusher.check()
        await until(lambda: len(opened.connection.replies) == 2, "both are answered")
        sent, found = opened.connection.replies
        assert place(found) == place(sent)
        reply = opened.ask(FIND, HEADER)  # nothing waits for the disk now
        assert reply is not None
        assert place(reply) == place(sent)


async def test_only_questions_wait_for_the_disk(tmp_path: Path) -> None:
    """A heartbeat over the same connection does not, or a slow disk would end the memberships of the process."""
    async with kept(tmp_path) as opened:
        opened.broker.work.soon = in_the_next_turn
        opened.send(b"x", properties=unique("id-1"))
        assert opened.ask(FIND, HEADER) is None
        beat = encode_body(heartbeat_of("c1", producers=("PG",)), SerializeType.JSON)
        reply = opened.ask(RequestCode.HEART_BEAT, None, beat)
        assert reply is not None
        assert reply.code == C.SUCCESS
        for _ in range(1023):
            assert opened.ask(FIND, HEADER) is None
        reply = opened.ask(FIND, HEADER)
        assert reply is not None
        assert reply.code == C.SYSTEM_BUSY


async def test_a_disk_that_fails_leaves_it_open(tmp_path: Path) -> None:
    """Then the message is found when the disk works again: it is written once more, not stored once more."""
    async with kept(tmp_path) as opened:
        opened.broker.work.soon = in_the_next_turn
        opened.disk.sync_error = errno.EIO
        assert opened.send(b"x", properties=unique("id-1"), **numbered(0)) is None
        assert opened.ask(FIND, HEADER) is None
        opened.flusher.check()
        await until(lambda: len(opened.connection.replies) == 2, "both are answered")
        assert [reply.code for reply in opened.connection.replies] == [C.FLUSH_DISK_TIMEOUT, C.SERVICE_NOT_AVAILABLE]
        assert "Input/output error" in (opened.connection.replies[1].remark or "")
        opened.disk.sync_error = 0
        await until(lambda: not opened.store.refusal, "the disk works again")
        reply = opened.ask(FIND, HEADER)
        assert reply is not None
        assert place(reply).queue_offset == 0


async def test_a_message_is_found_after_a_restart(tmp_path: Path) -> None:
    """By its id alone: the broker has forgotten the producer's sequence."""
    async with kept(tmp_path) as opened:
        opened.send(b"x", properties=unique("id-1"), **numbered(0))
    async with kept(tmp_path) as opened:
        reply = opened.ask(FIND, HEADER)
        assert reply is not None
        assert place(reply).queue_offset == 0
