"""Commands that watch end soon when nobody reads their output any more, though they have nothing to write."""

from collections.abc import Iterator

import pytest

from tests.commands import END_S, Lockstep, running_broker, without_progress
from tests.rows import by_row


@pytest.fixture(scope="module")
def lockstep() -> Iterator[Lockstep]:
    """The command with a broker of this module's own, one message in `orders`, and a group that has consumed it."""
    with running_broker("--topic", "orders:1", "--topic", "empty:1") as command:
        assert command("produce", "orders", "-k", "k", "--text", stdin="a\n").status == 0
        assert command("consume", "orders", "-g", "g", "-e").status == 0
        yield command


@by_row(
    "arguments, lines",
    [
        ("lock watch", 0),
        ("lock watch -o json --interval 1h", 0),
        ("group watch g --interval 1h", 1),
        ("group watch g --interval 1h -o json", 1),
        ("message tail -t orders --follow", 1),
        ("message tail -t orders --from first", 0),
        ("message tail -t empty --follow -q 0", 0),
        ("consume orders -g other", 1),
        ("consume empty -g empty", 0),
        ("consume orders -q 0", 1),
        ("consume empty -q 0", 0),
    ],
)
def test_a_watch_that_nobody_reads_ends(lockstep: Lockstep, arguments: str, lines: int) -> None:
    """With 141 and without a word, as SIGPIPE would end it at its next line."""
    with lockstep.start(*arguments.split()) as running:
        for _ in range(lines):
            running.line()
        assert running.popen.stdout is not None
        assert running.popen.stderr is not None
        running.popen.stdout.close()
        assert running.popen.wait(END_S) == 141
        assert without_progress(running.popen.stderr.read().decode()) == ""


def test_a_consumer_that_nobody_reads_leaves_nothing_behind(lockstep: Lockstep) -> None:
    """Its offset is committed, its locks are freed, and it is no member any more."""
    with lockstep.start("consume", "orders", "-g", "leaving") as running:
        running.line()
        assert running.popen.stdout is not None
        running.popen.stdout.close()
        assert running.popen.wait(END_S) == 141
    assert lockstep("lock", "list", "-g", "leaving", "-o", "json").rows == []
    (described,) = lockstep("group", "describe", "leaving", "-o", "json").rows
    assert (described["members"], described["total_lag"]) == ([], 0)
