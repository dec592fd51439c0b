"""Bytes received and not handled yet: a bound for all connections together, and a time limit for each frame."""

from lockstep.remoting.connections.byte_budget import ByteBudget, Inbound
from lockstep.remoting.limit_log import LimitLog
from tests.remoting.helpers import RecordingLog

NOW_MS = 1_700_000_000_000
TIMEOUT_MS = 60_000


class Sender:
    """A connection as `Inbound` sees it."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.write_paused = False
        self.ended = ""

    def abort(self, reason: str) -> None:
        self.ended = reason


def new_inbound(bytes_max: int = 100) -> tuple[Inbound, RecordingLog]:
    log = RecordingLog()
    budget = ByteBudget("inbound_bytes", bytes_max, "an unfinished frame", LimitLog(log))
    return Inbound(budget, TIMEOUT_MS, log), log


def test_the_largest_sender_goes_when_all_together_are_too_many() -> None:
    """Not who brings the last byte, but who holds the most; the others are untouched, and a line says so."""
    inbound, log = new_inbound()
    small, large = Sender("small"), Sender("large")
    inbound.note(large, 70, NOW_MS, progress=False)
    inbound.note(small, 30, NOW_MS, progress=False)
    assert (inbound.bytes, large.ended) == (100, "")
    inbound.note(small, 31, NOW_MS, progress=False)
    assert large.ended
    assert not small.ended
    assert inbound.bytes == 31
    facts = {"peer": "large", "peer_bytes": 70, "maximum": 100, "connections": 2, "times": 1}
    assert log.events == [("warning", "limit_met", {"setting": "inbound_bytes_max", **facts})]


def test_bytes_that_were_handled_count_no_more() -> None:
    """A finished frame gives its bytes back, and so does a connection that is lost."""
    inbound, _ = new_inbound()
    sender = Sender("s")
    for waiting_bytes in (90, 0, 90, 20, 0):
        inbound.note(sender, waiting_bytes, NOW_MS, progress=True)
        assert inbound.bytes == waiting_bytes
    assert not sender.ended


def test_a_frame_that_takes_too_long_ends_its_connection() -> None:
    """The time counts from the first byte, however often another comes; at the limit it is not over yet."""
    inbound, log = new_inbound()
    sender = Sender("s")
    for at_ms in range(NOW_MS, NOW_MS + TIMEOUT_MS + 1, 1000):
        inbound.note(sender, 1 + (at_ms - NOW_MS) // 1000, at_ms, progress=False)
        inbound.close_late(at_ms)
    assert log.events == []
    inbound.close_late(NOW_MS + TIMEOUT_MS + 1)
    assert sender.ended
    facts = {"peer": "s", "age_ms": TIMEOUT_MS + 1, "received_bytes": 61, "limit_ms": TIMEOUT_MS}
    assert log.events == [("warning", "frame_timeout", facts)]
    assert inbound.bytes == 0


def test_a_sender_of_many_frames_is_not_late() -> None:
    """Part of a frame waits after every read, but of a later one each time."""
    inbound, _ = new_inbound()
    sender = Sender("s")
    for second in range(0, 600, 30):
        inbound.note(sender, 10, NOW_MS + second * 1000, progress=True)
        inbound.close_late(NOW_MS + second * 1000)
    assert not sender.ended


def test_a_connection_whose_replies_are_not_read_is_not_late() -> None:
    """Its frames wait because we stopped to read them; the idle limit ends it when nothing moves."""
    inbound, _ = new_inbound()
    sender = Sender("s")
    inbound.note(sender, 10, NOW_MS, progress=False)
    sender.write_paused = True
    inbound.close_late(NOW_MS + 10 * TIMEOUT_MS)
    assert not sender.ended
