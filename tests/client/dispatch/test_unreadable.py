"""An unreadable message stops no queue: a pull returns it with a flag, logs it once, and goes on."""

from collections.abc import Callable

import pytest

from lockstep.cli.format import format_line, message_row
from lockstep.client import ConsumerConfig
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import (
    PullMessageRequestHeader,
    PullMessageResponseHeader,
    SendMessageResponseHeader,
)
from lockstep.protocol.messages.compression import CompressionType, compress
from lockstep.protocol.messages.message import MESSAGE_MAGIC, MessageExt, decode_messages
from tests.client.messages import stored_bytes
from tests.client.pulls.pulling import PULL, Answer, found, in_turn, pulling
from tests.client.stage import TOPIC, Stage, on_stage

SEND = RequestCode.SEND_MESSAGE_V2
SYS_FLAG_AT = 36  # in a stored record


def flagged(record: bytes, sys_flag: int) -> bytes:
    return record[:SYS_FLAG_AT] + sys_flag.to_bytes(4) + record[SYS_FLAG_AT + 4 :]


def broken(record: bytes) -> bytes:
    """Its magic is no message's: nobody can say what it is, or where the next one begins."""
    return record.replace(MESSAGE_MAGIC.to_bytes(4), b"oops", 1)


def reply_of(*records: bytes, next_offset: int) -> Callable[[RemotingCommand], Answer]:
    header = PullMessageResponseHeader(0, next_offset, 0, 1000)
    return lambda command: command.reply(ResponseCode.SUCCESS, header, b"".join(records))


@pytest.mark.parametrize("sys_flag", [0x001, 0x101, 0x201, 0x301, 0x401])
@on_stage
async def test_a_body_that_cannot_be_unpacked(stage: Stage, sys_flag: int) -> None:
    """The messages before and after it are returned too, and the offset moves on. It is logged once, not at each
    pull."""
    it = await pulling(stage)
    records = [stored_bytes(5), flagged(stored_bytes(6, b"no stream"), sys_flag), stored_bytes(7)]
    again = reply_of(*records, next_offset=8)
    it.broker.on[PULL] = in_turn(again, again)
    await it.run(100)
    messages = it.queue.cache.take_messages(9)
    assert [message.body for message in messages] == [b"5", b"no stream", b"7"]
    assert [message.body_error is None for message in messages] == [True, False, True]
    assert [pull.queue_offset for pull in it.pulls] == [5, 8, 8]
    assert stage.events("error") == ["message_unreadable"]


@on_stage
async def test_bodies_of_every_codec(stage: Stage) -> None:
    """They are unpacked on a thread and keep their order."""
    it = await pulling(stage)
    kinds = list(CompressionType)
    records = [
        flagged(stored_bytes(5 + i, compress(b"plain %d" % i, kind, 5)), kind.sys_flag) for i, kind in enumerate(kinds)
    ]
    it.broker.on[PULL] = in_turn(reply_of(stored_bytes(4), *records, stored_bytes(8), next_offset=9))
    await it.run(100)
    bodies = [message.body for message in it.queue.cache.take_messages(9)]
    assert bodies == [b"4", b"plain 0", b"plain 1", b"plain 2", b"8"]


@on_stage
async def test_many_large_bodies_in_one_pull(stage: Stage) -> None:
    """A pull returns about 64 MiB of unpacked bodies; the next pull asks for the rest."""
    it = await pulling(stage)
    packed = compress(bytes(40 * 1024 * 1024), CompressionType.ZSTD, 1)
    records = {offset: flagged(stored_bytes(offset, packed), 0x201) for offset in range(5, 9)}

    def answer(command: RemotingCommand) -> Answer:
        offset = command.decode_header(PullMessageRequestHeader).queue_offset
        left = [records[at] for at in records if at >= offset]
        return reply_of(*left, next_offset=9)(command) if left else None

    it.broker.on[PULL] = answer
    sizes: list[int] = []

    def submit(_: object, messages: list[MessageExt]) -> None:
        sizes.append(sum(len(message.body) for message in messages) >> 20)

    it.member.take = submit  # type: ignore[method-assign,assignment]  # a test's own
    await it.run(1000)
    assert [pull.queue_offset for pull in it.pulls] == [5, 7, 9]
    assert sizes == [80, 80]


@on_stage
async def test_a_record_that_is_none_is_asked_for_alone(stage: Stage) -> None:
    """The messages before it are returned. The bad record is returned as a message with its bytes, whatever the tags
    are; then the queue goes on after it."""
    it = await pulling(stage, expression="A")
    tagged = [stored_bytes(offset, properties={"TAGS": "A"}) for offset in (5, 6, 7)]
    bad = broken(tagged[1])
    it.broker.on[PULL] = in_turn(
        reply_of(tagged[0], bad, tagged[2], next_offset=8),
        reply_of(bad, tagged[2], next_offset=8),
        reply_of(bad, next_offset=7),
        found(7, TAGS="A"),
    )
    await it.run(100)
    assert [(pull.queue_offset, pull.max_msg_nums) for pull in it.pulls] == [(5, 32), (6, 32), (6, 1), (7, 32), (8, 32)]
    first, corrupted, last = it.queue.cache.take_messages(9)
    assert [message.queue_offset for message in (first, corrupted, last)] == [5, 6, 7]
    assert (corrupted.body, corrupted.topic, corrupted.commit_log_offset) == (bad, TOPIC, -1)
    assert "the stored record cannot be read: byte 0: magic" in (corrupted.body_error or "")
    assert stage.events("error") == ["message_unreadable"]


@on_stage
async def test_a_broker_that_speaks_nonsense_is_an_error(stage: Stage) -> None:
    """A reply without its fields is logged at ERROR each time."""
    it = await pulling(stage)
    it.broker.on[PULL] = in_turn(lambda command: command.reply(ResponseCode.SUCCESS), found(5))
    await it.run(1500)
    assert stage.events("error") == ["pull_failed"]
    assert [pull.queue_offset for pull in it.pulls] == [5, 5, 6]


@on_stage
async def test_dead_letters_commit_no_message_that_waits(stage: Stage) -> None:
    """A pull that found unreadable messages alone moves the offset only when no earlier message waits."""
    it = await pulling(stage, unreadable_to_dead_letters=True)
    it.broker.answers(SEND, SendMessageResponseHeader("ID", 0, 0))
    it.broker.on[PULL] = in_turn(found(5), reply_of(flagged(stored_bytes(6, b"no stream"), 0x101), next_offset=7))
    await it.run(1000)
    assert len(it.broker.requests(SEND)) == 1
    assert [message.queue_offset for message in it.queue.cache.take_messages(9)] == [5]
    assert it.offsets.in_memory(it.queue.queue) == -1, "5 is not handled"


@on_stage
async def test_a_dropped_queue_makes_no_dead_letter(stage: Stage) -> None:
    """What was pulled for it belongs to the next owner, which makes the dead letter and moves the offset."""
    it = await pulling(stage, unreadable_to_dead_letters=True)
    it.broker.answers(SEND, SendMessageResponseHeader("ID", 0, 0))
    answer = reply_of(flagged(stored_bytes(5, b"no stream"), 0x101), next_offset=6)

    def late(command: RemotingCommand) -> Answer:
        it.queue.life.dropped = True
        return answer(command)

    it.broker.on[PULL] = late
    await it.run(1000)
    assert it.broker.requests(SEND) == []
    assert it.offsets.in_memory(it.queue.queue) == -1


def test_how_commands_print_it() -> None:
    """JSON has the reason beside the body; a line for a person has it before the stored bytes; others are as ever."""
    corrupted, whole = decode_messages(flagged(stored_bytes(6, b"no\x00stream"), 0x101) + stored_bytes(7))
    assert "is not LZ4" in message_row(corrupted)["body_error"]
    assert message_row(corrupted)["body"] == "no\0stream"
    assert "body_error" not in message_row(whole)
    assert "  [a body flagged as compressed is not LZ4" in format_line(corrupted).decode()
    assert format_line(corrupted).endswith(b"] no\\x00stream\n")
    assert format_line(whole).endswith(b"  7\n")


def test_the_setting_is_off() -> None:
    """By default the listener gets unreadable messages; in RocketMQ the queue would stop."""
    assert ConsumerConfig().unreadable_to_dead_letters is False
