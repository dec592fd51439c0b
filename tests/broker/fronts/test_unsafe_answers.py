"""A sync of the log fails: answers about messages in the log that may not be on the disk (wire.md 3)."""

import errno
from pathlib import Path
from typing import Any

import pytest

from lockstep.broker.core.revive import run_pops
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.admin import SendMessageBackRequestHeader
from lockstep.protocol.headers.messaging import SendMessageResponseHeader
from lockstep.protocol.headers.pop import PopRequestHeader
from lockstep.protocol.headers.together import SendTogetherRequestHeader
from lockstep.protocol.messages.batch import BatchRecord, encode_batch
from lockstep.protocol.messages.together import NO_NUMBERS, FrameQueue, decode_rows, encode_sends
from tests.broker.helpers import NOW_MS, over_the_wire, pull_header, send_header
from tests.broker.persistence.kept_broker import Kept, kept, until

SEND, BATCH = RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE
TWO = encode_batch([BatchRecord(0, b"one", ""), BatchRecord(0, b"two", "")])
HALF: dict[str, Any] = {"properties": "TRAN_MSG\x01true\x02PGROUP\x01PG\x02UNIQ_KEY\x01k", "sys_flag": 4}


async def unsafe_reply(opened: Kept, code: RequestCode, header: tuple[Any, ...], body: bytes) -> RemotingCommand:
    """To a request that stores something while the disk fails."""
    opened.disk.sync_error = errno.EIO
    before = len(opened.connection.replies)
    assert opened.ask(code, header, body) is None
    opened.flusher.check()
    await until(lambda: len(opened.connection.replies) > before, "it is answered")
    return opened.connection.replies[-1]


@pytest.mark.parametrize(
    ("code", "fields", "body"),
    [
        (SEND, {}, b"x"),
        (BATCH, {"batch": True}, TWO),
        (SEND, {"properties": "DELAY\x013"}, b"x"),
        (SEND, HALF, b"x"),
        (SEND, {"sender_id": "p", "send_generation": 0, "send_sequence": 0}, b"x"),
    ],
    ids=["one", "batch", "delayed", "half", "numbered"],
)
async def test_a_send_that_may_not_be_on_the_disk(
    tmp_path: Path, code: RequestCode, fields: dict[str, Any], body: bytes
) -> None:
    """FLUSH_DISK_TIMEOUT with the place where it stands, as RocketMQ's: it may well be read there later."""
    async with kept(tmp_path) as opened:
        reply = await unsafe_reply(opened, code, send_header(**fields), body)
        assert reply.code == ResponseCode.FLUSH_DISK_TIMEOUT
        assert "Input/output error" in (reply.remark or "")
        header = over_the_wire(reply).decode_header(SendMessageResponseHeader)
        assert header.queue_offset == 0
        assert header.msg_id
        opened.disk.sync_error = 0
        await until(lambda: not opened.store.refusal, "the disk works again")
        assert opened.store.max_commit_log_offset == opened.store.visible_end


async def test_nothing_follows_a_numbered_send_that_may_not_be_on_the_disk(tmp_path: Path) -> None:
    """Later sends of its producer are refused until a new generation begins."""
    queue: dict[str, Any] = {"sender_id": "p", "send_generation": 0}
    async with kept(tmp_path) as opened:
        await unsafe_reply(opened, SEND, send_header(**queue, send_sequence=0), b"x")
        opened.disk.sync_error = 0
        await until(lambda: not opened.store.refusal, "the disk works again")
        late = opened.send(b"late", **queue, send_sequence=1)
        assert late is not None
        assert late.code == ResponseCode.SEND_OUT_OF_SEQUENCE
        assert opened.send(b"again", sender_id="p", send_generation=1, send_sequence=0) is None


async def test_sends_of_one_frame_that_may_not_be_on_the_disk(tmp_path: Path) -> None:
    """Each that was stored gets FLUSH_DISK_TIMEOUT with its place, the refused one keeps its code; sequences end."""
    queues = [FrameQueue("T", 0, 0), FrameQueue("T", 9, NO_NUMBERS)]
    body = encode_sends(queues, [(0, 0, 1, 0, 0, 1, 0), (1, 0, 1, 0, 0, 1, 0), (0, 1, 1, 0, 0, 1, 0)], [b"abc"])
    header = SendTogetherRequestHeader("PG", "TBW102", 4, 3, sender_id="p")
    async with kept(tmp_path) as opened:
        opened.send(b"first")
        await opened.writers.flush()
        reply = over_the_wire(await unsafe_reply(opened, RequestCode.SEND_TOGETHER, header, body))
        rows, remarks = decode_rows(reply.body, 3)
        unsafe = ResponseCode.FLUSH_DISK_TIMEOUT
        assert (reply.code, [row.code for row in rows]) == (0, [unsafe, ResponseCode.SYSTEM_ERROR, unsafe])
        assert [row.queue_offset for row in rows] == [1, -1, 2]
        assert ["Input/output error" in remark for remark in remarks] == [True, False, True]
        opened.disk.sync_error = 0
        await until(lambda: not opened.store.refusal, "the disk works again")
        late = opened.send(b"late", sender_id="p", send_generation=0, send_sequence=2)
        assert late is not None
        assert late.code == ResponseCode.SEND_OUT_OF_SEQUENCE


async def test_a_message_sent_back_that_may_not_be_on_the_disk(tmp_path: Path) -> None:
    """SYSTEM_ERROR as in RocketMQ: the consumer does not count it as sent back."""
    async with kept(tmp_path) as opened:
        opened.broker.catalog.groups.find("G", NOW_MS)
        opened.send(b"poison")
        await opened.writers.flush()
        header = SendMessageBackRequestHeader(0, "G", 0)
        opened.broker.catalog.topics.ensure_retry_topic("G", 1, NOW_MS)
        await opened.writers.flush()
        reply = await unsafe_reply(opened, RequestCode.CONSUMER_SEND_MSG_BACK, header, b"")
        assert (reply.code, "Input/output error" in (reply.remark or "")) == (ResponseCode.SYSTEM_ERROR, True)


async def test_one_way_sends_are_answered_nothing(tmp_path: Path) -> None:
    """Whatever the disk says."""
    async with kept(tmp_path) as opened:
        opened.disk.sync_error = errno.EIO
        command = over_the_wire(RemotingCommand(SEND, send_header(), b"x"))
        command.flag |= 2
        assert opened.answers.answer(opened.connection, command) is None
        opened.flusher.check()
        await until(lambda: opened.store.refusal, "the sync has failed")
        assert opened.connection.replies == []


async def test_what_is_stored_by_the_way_changes_no_answer(tmp_path: Path) -> None:
    """A pull with an illegal offset stores an event in a topic; a failing disk does not change its answer."""
    async with kept(tmp_path) as opened:
        opened.send(b"x")
        await opened.writers.flush()
        reply = await unsafe_reply(opened, RequestCode.PULL_MESSAGE, pull_header(7, topic="T", queue_id=0), b"")
        assert reply.code == ResponseCode.PULL_OFFSET_MOVED


async def test_an_answer_to_a_message_that_may_not_be_on_the_disk(tmp_path: Path) -> None:
    """It is stored beside its delivery, so its sender is told of the delivery alone."""
    async with kept(tmp_path) as opened:
        reply = await unsafe_reply(opened, RequestCode.SEND_REPLY_MESSAGE_V2, send_header(), b"x")
        assert (reply.code, reply.remark) == (
            ResponseCode.SYSTEM_ERROR,
            "REPLY_TO_CLIENT is null, can not reply message",
        )


async def test_a_delivery_that_may_not_be_on_the_disk(tmp_path: Path) -> None:
    """A pop that waited is refused, too: after a crash the broker would not know who has the message."""
    popping = PopRequestHeader("G", "T", 0, 1, 60_000, 10_000, 0, 0, "TAG", "*", True)
    async with kept(tmp_path, lock_mode="fenced") as opened:
        assert opened.ask(RequestCode.POP_MESSAGE, popping) is None
        opened.send(b"x")
        opened.flusher.check()
        await until(lambda: opened.connection.replies, "the message is on the disk")
        assert opened.broker.messages.pops.held.woken
        opened.disk.sync_error = errno.EIO
        before = len(opened.connection.replies)
        run_pops(opened.broker, NOW_MS)
        opened.flusher.check()
        await until(lambda: len(opened.connection.replies) > before, "it is answered")
        reply = opened.connection.replies[-1]
        assert (reply.code, reply.body) == (ResponseCode.SYSTEM_ERROR, b"")
        assert "Input/output error" in (reply.remark or "")
