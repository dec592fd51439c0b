"""What two looks at a group's offsets say of its lag, and `lockstep group watch` against a broker."""

import json
import os
import pty
import signal

import pytest
from rich.console import Console

from lockstep.cli.group.lag import GroupLook, QueueLook, QueueRate, left_s, rates, total
from lockstep.cli.group.live import LiveLag
from lockstep.protocol.model import MessageQueue
from tests.commands import END_S, running_broker
from tests.forked.process import Forked

QUEUE, OTHER = MessageQueue("orders", "broker-a", 0), MessageQueue("orders", "broker-a", 1)
SECOND_NS = 1_000_000_000


def look(at_s: float, **queues: QueueLook) -> GroupLook:
    known = {"queue": QUEUE, "other": OTHER}
    return GroupLook(int(at_s * SECOND_NS), 2, {known[name]: of for name, of in queues.items()})


def test_rates_are_those_between_two_looks() -> None:
    """Both sides of a queue; a queue that was not there before, and one without an offset, have none yet."""
    before = look(1, queue=QueueLook("a", 10, 20))
    now = look(3, queue=QueueLook("a", 30, 50), other=QueueLook(None, None, 7))
    assert rates(None, now) == {QUEUE: QueueRate(), OTHER: QueueRate()}
    found = rates(before, now)
    assert found == {QUEUE: QueueRate(10.0, 15.0), OTHER: QueueRate()}
    later = look(4, queue=QueueLook("a", 0, 50), other=QueueLook(None, None, 9))
    assert rates(now, later) == {QUEUE: QueueRate(-30.0, 0.0), OTHER: QueueRate(None, 2.0)}
    assert total([QueueRate(1, 2), QueueRate(None, 3), QueueRate()]) == QueueRate(1, 5)
    assert total([]) == QueueRate()


@pytest.mark.parametrize(
    ("rate", "left"),
    [(QueueRate(10.0, 5.0), 20.0), (QueueRate(5.0, 5.0), None), (QueueRate(1.0, 5.0), None), (QueueRate(), None)],
)
def test_the_lag_ends_only_when_it_shrinks(rate: QueueRate, left: float | None) -> None:
    """Seconds at this rate."""
    assert left_s(100, rate) == left


def test_lag_is_unknown_without_an_offset_and_never_below_zero() -> None:
    """An offset may be read after the end of its queue."""
    assert [QueueLook(None, committed, 5).lag for committed in (None, 2, 5, 6)] == [None, 3, 0, 0]


def drawn(width: int, height: int, shown: GroupLook) -> str:
    console = Console(width=width, height=height, force_terminal=True, color_system=None)
    with console.capture() as captured, LiveLag("shop", console) as live:
        live.show(shown, rates(look(0, queue=QueueLook("a", 0, 20)), shown), 5000)
    return captured.get()


def test_the_table_fits_its_terminal() -> None:
    """A narrow one leaves out owner and offsets; a low one shows the queues with the most lag, and says so."""
    now = look(1, queue=QueueLook("owner-1", 10, 30, 1000), other=QueueLook("owner-2", 5, 100, 2000))
    wide, narrow, low = drawn(120, 30, now), drawn(60, 30, now), drawn(120, 5, now)
    assert "shop at " in wide
    assert "lag 115, 2 members" in wide
    assert "owner-1" in wide
    assert "owner-1" not in narrow
    assert "orders@broker-a:0" in narrow
    assert "10.0" in narrow
    assert "4.0 s" in narrow  # how old the last consumed message is
    assert "orders@broker-a:1" in low
    assert "orders@broker-a:0" not in low
    assert "and 1 queue with less lag" in low


def test_control_characters_do_not_reach_the_terminal() -> None:
    """Clients choose their ids."""
    assert "\x1b[31m" not in drawn(120, 30, look(1, queue=QueueLook("\x1b[31mred", 10, 30)))


def test_a_group_is_watched() -> None:
    """JSON objects with queues and owners, lines, a live table on a terminal; an unknown group is named."""
    with running_broker("--topic", "orders:1") as lockstep:
        lockstep("produce", "orders", "-k", "k", "--text", stdin="a\nb\nc\n")
        lockstep("consume", "orders", "-g", "shop", "-c", "2")
        (row,) = lockstep("group", "watch", "shop", "-c", "1", "-o", "json").rows
        assert (row["group"], row["members"], row["total_lag"]) == ("shop", 0, 1)
        (queue,) = row["queues"]
        assert (queue["queue_id"], queue["committed_offset"], queue["max_offset"], queue["lag"]) == (0, 2, 3, 1)
        assert (queue["owner"], queue["consumed_tps"], queue["last_timestamp"] > 0) == (None, None, True)
        with lockstep.start("group", "watch", "shop", "--interval", "0.1", "-o", "json") as watch:
            assert json.loads(watch.line())["total_lag"] == 1
            with lockstep.start("consume", "orders", "-g", "shop") as consumer:
                while (seen := json.loads(watch.line()))["members"] == 0 or seen["queues"][0]["owner"] is None:
                    pass
                assert json.loads(consumer.line())["body"] == "c"  # it is handled, and so committed at the end
                assert consumer.stop(signal.SIGINT).status == 130
            while (seen := json.loads(watch.line()))["total_lag"]:
                pass
            assert seen["stored_tps"] == 0
        lines = lockstep("group", "watch", "shop", "-t", "orders", "-c", "2", "--interval", "100ms").out.splitlines()
        assert [line.split("  ")[1:4] for line in lines] == [["shop", "lag 0", "0 members"]] * 2
        assert "consumed 0.0/s  stored 0.0/s" in lines[1]
        unknown = lockstep("group", "watch", "nosuch")
        assert (unknown.status, unknown.out) == (1, "")
        assert "no broker knows group 'nosuch'; known are shop" in unknown.err
        ours, theirs = pty.openpty()
        command = lockstep.command("group", "watch", "shop", "-c", "1")
        with Forked(command, stdout=theirs, env=lockstep.environment) as watch_once:
            os.close(theirs)
            assert watch_once.wait(END_S) == 0
        assert b"lag 0, 0 members" in os.read(ours, 65536)
        os.close(ours)
