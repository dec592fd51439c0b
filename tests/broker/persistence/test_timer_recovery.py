"""Messages for a time and SIGKILL: each comes once, at its time, and a recalled one does not (18.7)."""

import json
from pathlib import Path

from lockstep.protocol.codes import RequestCode
from lockstep.protocol.headers.messaging import RecallMessageRequestHeader
from lockstep.protocol.recall import RecallHandle
from lockstep.store.base import QueueEntry
from tests.broker.helpers import NOW_MS
from tests.broker.persistence.kept_broker import Kept, kept, until
from tests.broker.persistence.test_delay_recovery import LIFE, killed, write_offsets

TIMERS = "rmq_sys_LOCKSTEP_TIMERS"


def send_timed(opened: Kept, body: bytes, delay_ms: int) -> None:
    opened.send(body, properties=f"TIMER_DELAY_MS\x01{delay_ms}\x02UNIQ_KEY\x01{body.decode()}")


def recall(opened: Kept, body: bytes, delay_ms: int) -> None:
    handle = RecallHandle("T", "broker-a", NOW_MS + delay_ms, body.decode()).encode()
    opened.ask(RequestCode.RECALL_MESSAGE, RecallMessageRequestHeader("T", handle, "PG"))


async def test_each_comes_once_after_any_number_of_kills(tmp_path: Path) -> None:
    """With the place of the last delivery in a file, or not yet; in the order of time."""
    folder = tmp_path / "0"
    async with kept(folder, **LIFE) as opened:
        for number in range(6):
            send_timed(opened, b"%d" % number, 6000 - number * 1000)
        opened.broker.messages.deliver_timed(NOW_MS + 2000)
        assert opened.bodies() == [b"5", b"4"]
        left = killed(folder, "1")
    async with kept(left, **LIFE) as again:
        assert again.broker.messages.timers.next_due_ms == NOW_MS + 3000
        write_offsets(again)
        again.broker.messages.deliver_timed(NOW_MS + 4000)
        send_timed(again, b"new", 4500)
        left = killed(left, "2")
    async with kept(left, **LIFE) as last:
        last.broker.messages.deliver_timed(NOW_MS + 60_000)
        assert last.bodies() == [b"5", b"4", b"3", b"2", b"new", b"1", b"0"]
        write_offsets(last)
        left = killed(left, "3")
    async with kept(left, **LIFE) as after:
        assert after.broker.messages.timers.next_due_ms is None
        assert json.loads((left / "config" / "timers.json").read_text())["deliverMs"] == NOW_MS + 6000


async def test_a_recall_is_kept(tmp_path: Path) -> None:
    """Until its message is due, also when others of the same time were delivered before a kill."""
    folder = tmp_path / "0"
    async with kept(folder, **LIFE) as opened:
        for body in (b"first", b"recalled", b"last"):
            send_timed(opened, body, 1000)
        recall(opened, b"recalled", 1000)
        for record in opened.broker.messages.timers.due(NOW_MS + 1000, 1):
            opened.broker.messages.put(record)
        write_offsets(opened)
        left = killed(folder, "1")
    async with kept(left, **LIFE) as again:
        again.broker.messages.deliver_timed(NOW_MS + 1000)
        assert again.bodies() == [b"first", b"last"]


async def test_a_message_with_a_damaged_entry_comes_at_its_time(tmp_path: Path) -> None:
    """The entry says when. A start finds it again in the log."""
    folder = tmp_path / "0"
    async with kept(folder, **LIFE) as opened:
        send_timed(opened, b"late", 1000)
    async with kept(folder, **LIFE) as again:
        again.store.queues[TIMERS, 0].put(0, QueueEntry(0, 0, 0))
        again.store.queues[TIMERS, 0].write_tail()
        left = killed(folder, "1")
    async with kept(left, **LIFE) as last:
        assert last.broker.messages.timers.next_due_ms == NOW_MS + 1000
        last.broker.messages.deliver_timed(NOW_MS + 1000)
        assert last.bodies() == [b"late"]


async def test_a_message_that_reaches_the_disk_after_its_time_comes_then(tmp_path: Path) -> None:
    """With --flush sync. The timer found nothing to deliver."""
    async with kept(tmp_path) as opened:
        send_timed(opened, b"late", 1000)
        opened.broker.messages.deliver_timed(NOW_MS + 1000)
        await until(lambda: opened.store.max_offset(TIMERS, 0) == 1, "the message can be read")
        opened.broker.messages.deliver_timed(NOW_MS + 1000)
        await until(lambda: opened.bodies() == [b"late"], "it is delivered")


async def test_its_topic_is_brought_back(tmp_path: Path) -> None:
    """When the table of topics is lost, a message that waits for its time says that there is its topic."""
    folder = tmp_path / "0"
    async with kept(folder, **LIFE) as opened:
        send_timed(opened, b"late", 1000)
    for path in (folder / "config").glob("topics.json*"):
        path.unlink()
    async with kept(folder, **LIFE) as again:
        again.broker.messages.deliver_timed(NOW_MS + 1000)
        assert again.bodies() == [b"late"]
