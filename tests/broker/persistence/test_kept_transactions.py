"""Transactions on a store in files: a commit that a full disk or a crash interrupts is made once."""

import errno
from pathlib import Path

import pytest

from lockstep.broker.messages.transactions.recovery import open_halves
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.admin import ResumeCheckHalfMessageRequestHeader
from lockstep.protocol.headers.messaging import EndTransactionRequestHeader
from lockstep.protocol.messages.ids import encode_offset_message_id
from lockstep.store import Record
from tests.broker.helpers import NOW_MS
from tests.broker.persistence.kept_broker import Kept, kept, until
from tests.store.stores import record

HALF, OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
COMMIT, ROLLBACK = 8, 12


async def send_half(opened: Kept, body: bytes = b"half") -> EndTransactionRequestHeader:
    """What commits it."""
    text = "TRAN_MSG\x01true\x02PGROUP\x01PG\x02UNIQ_KEY\x01" + body.decode()
    before = opened.store.max_commit_log_offset
    opened.send(body, properties=text, sys_flag=4)
    await opened.writers.flush()
    offset = opened.store.max_offset(HALF, 0) - 1
    assert opened.store.max_commit_log_offset > before
    (entry,) = opened.store.entries(HALF, 0, offset, 1)
    opened.connection.replies.clear()
    return EndTransactionRequestHeader("PG", offset, entry.commit_log_offset, COMMIT, body.decode())


def end(opened: Kept, header: EndTransactionRequestHeader) -> RemotingCommand | None:
    return opened.ask(RequestCode.END_TRANSACTION, header)


@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
async def test_a_second_end_is_answered_when_the_first_is_on_the_disk(tmp_path: Path, decision: int) -> None:
    """It reports the same bytes, so it must not be answered earlier; when all is on the disk it is answered at once."""
    async with kept(tmp_path, flush_interval_ms=60_000) as opened:
        header = (await send_half(opened))._replace(commit_or_rollback=decision)
        assert [end(opened, header), end(opened, header)] == [None, None]
        opened.disk.sync_error = errno.EIO
        opened.flusher.check()
        await until(lambda: len(opened.connection.replies) == 2, "both are answered")
        assert {reply.code for reply in opened.connection.replies} == {ResponseCode.FLUSH_DISK_TIMEOUT}
        opened.disk.sync_error = 0
        assert end(opened, header) is None
        opened.flusher._tick()
        await until(lambda: len(opened.connection.replies) == 3, "the third is answered")
        assert opened.connection.replies[2].code == ResponseCode.SUCCESS
        assert end(opened, header) is None
        assert [reply.code for reply in opened.connection.replies[3:]] == [ResponseCode.SUCCESS]
        assert opened.store.max_offset("T", 0) == (decision == COMMIT)


@pytest.mark.parametrize("flush_sync", [True, False])
@pytest.mark.parametrize("decision", [COMMIT, ROLLBACK])
async def test_a_commit_without_room_for_its_mark_did_not_happen(
    tmp_path: Path, flush_sync: bool, decision: int
) -> None:
    """One write has the message and its mark. On a full disk the end is refused; with room it is done once."""
    async with kept(tmp_path, flush_sync=flush_sync) as opened:
        header = (await send_half(opened))._replace(commit_or_rollback=decision)
        opened.disk.writes_left = 0
        refused = end(opened, header)
        assert refused is not None
        assert refused.code == ResponseCode.SYSTEM_ERROR
        opened.disk.writes_left = None
        assert len(opened.broker.messages.halves) == 1
        assert (opened.store.max_offset("T", 0), opened.store.max_offset(OP, 0)) == (0, 0)
        done = end(opened, header)
        await opened.writers.flush()
        assert (done or opened.connection.replies[0]).code == ResponseCode.SUCCESS
        assert len(opened.broker.messages.halves) == 0
        assert opened.bodies() == [b"half"] * (decision == COMMIT)
    async with kept(tmp_path, flush_sync=flush_sync) as again:
        assert len(again.broker.messages.halves) == 0


@pytest.mark.parametrize("flush_sync", [True, False])
async def test_a_commit_whose_mark_a_crash_took_is_not_open_again(tmp_path: Path, flush_sync: bool) -> None:
    """The message is the last of the log: it is marked when the store opens, and stays so; others are open still."""
    async with kept(tmp_path, flush_sync=flush_sync) as opened:
        committed, _ = await send_half(opened, b"done"), await send_half(opened, b"open")
        put_all = opened.broker.messages.put_all
        opened.broker.messages.put_all = lambda records: put_all(records[:1])  # type: ignore[method-assign]
        end(opened, committed)
        await opened.writers.flush()
        assert opened.store.max_offset(OP, 0) == 0
    for life in range(3):
        (tmp_path / "abort").touch()
        async with kept(tmp_path, flush_sync=flush_sync) as again:
            await again.writers.flush()
            assert again.bodies()[:1] == [b"done"]
            assert again.store.max_offset(OP, 0) == 1
            assert [half.queue_offset for half in open_halves(again.store)] == [1]
            assert len(again.broker.messages.halves) == 1
            again.broker.messages.put(record(b"later %d" % life))


async def test_many_half_messages_are_found_again_in_few_reads(tmp_path: Path) -> None:
    """The start of a broker with a day of transactions behind it does not read them one by one."""
    count = 2000
    async with kept(tmp_path, segment_bytes=1 << 22, flush_sync=False) as opened:
        for number in range(count):
            half: Record = record(b"half", topic=HALF, at_ms=NOW_MS)
            opened.store.append(half._replace(properties=b"UNIQ_KEY\x01U%d" % number))
        for number in range(0, count, 2):
            opened.store.append(record(b"%d" % number, topic=OP))
        reads = 0
        read = opened.store.log.read

        def counted(offset: int, size_bytes: int) -> bytes:
            nonlocal reads
            reads += 1
            return read(offset, size_bytes)

        opened.store.log.read = counted  # type: ignore[method-assign]
        found = open_halves(opened.store)
        assert [half.queue_offset for half in found] == list(range(1, count, 2))
        assert reads <= 2 * 3 * count / 32


def resume(opened: Kept, header: EndTransactionRequestHeader) -> RemotingCommand | None:
    store = opened.store
    message_id = encode_offset_message_id(store.store_host, store.store_port, header.commit_log_offset)
    return opened.ask(RequestCode.RESUME_CHECK_HALF_MESSAGE, ResumeCheckHalfMessageRequestHeader(message_id))


@pytest.mark.parametrize("had_ended", [False, True])
async def test_a_resumed_message_is_undecided_after_a_restart(tmp_path: Path, had_ended: bool) -> None:
    """Also when it had ended before; a mark that comes later ends it."""
    async with kept(tmp_path, flush_sync=False) as opened:
        header = await send_half(opened)
        if had_ended:
            end(opened, header._replace(commit_or_rollback=ROLLBACK))
        resume(opened, header)
    async with kept(tmp_path, flush_sync=False) as again:
        assert [half.queue_offset for half in open_halves(again.store)] == [1]
        assert len(again.broker.messages.halves) == 1
        (entry,) = again.store.entries(HALF, 0, 1, 1)
        end(again, header._replace(tran_state_table_offset=1, commit_log_offset=entry.commit_log_offset))
    async with kept(tmp_path, flush_sync=False) as last:
        assert (len(last.broker.messages.halves), last.bodies()) == (0, [b"half"])


async def test_an_end_by_the_first_copy_ends_a_resumed_message(tmp_path: Path) -> None:
    """Its mark names the first copy, and stands behind the last one in the log."""
    async with kept(tmp_path, flush_sync=False) as opened:
        header = await send_half(opened)
        resume(opened, header)
        end(opened, header)
    async with kept(tmp_path, flush_sync=False) as again:
        assert (len(again.broker.messages.halves), again.bodies()) == (0, [b"half"])


async def test_a_resume_that_is_not_on_the_disk_is_an_error(tmp_path: Path) -> None:
    """The sync fails: the administrator must ask again."""
    async with kept(tmp_path, flush_interval_ms=60_000) as opened:
        header = await send_half(opened)
        opened.disk.sync_error = errno.EIO
        assert resume(opened, header) is None
        opened.flusher.check()
        await until(lambda: len(opened.connection.replies) == 1, "it is answered")
        assert opened.connection.replies[0].code == ResponseCode.SYSTEM_ERROR
        opened.disk.sync_error = 0
