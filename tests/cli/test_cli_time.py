"""Times and queues as commands read them."""

import pytest

from lockstep.cli.lookup import find_queue
from lockstep.cli.option_values import parse_queue
from lockstep.cli.output import CliError, UsageError
from lockstep.cli.time import moment_ms
from lockstep.protocol.model import MessageQueue

NOW_MS = 1_700_000_000_000
ONE = [MessageQueue("T", "broker-a", n) for n in range(3)]
TWO = [*ONE, MessageQueue("T", "broker-b", 0)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1357017300000", 1357017300000),
        ("0", 0),
        ("2013-01-01T05:15:00Z", 1357017300000),
        ("2013-01-01T06:15+01:00", 1357017300000),
        ("now", NOW_MS),
        ("10m ago", NOW_MS - 600_000),
        ("10m", NOW_MS - 600_000),
        ("1h30m ago", NOW_MS - 5_400_000),
        ("2d 1s 5ms ago", NOW_MS - 172_801_005),
    ],
)
def test_a_time_is_epoch_milliseconds_a_date_or_how_long_ago(text: str, expected: int) -> None:
    """Zones are honoured."""
    assert moment_ms(text, "--from", NOW_MS) == expected


@pytest.mark.parametrize(
    "text",
    ["", "yesterday", "10x ago", "m ago", "-5", "9" * 400, "1969-01-01T00:00Z", "99999d ago", "ago", "10m hence"],
)
def test_what_is_no_time_lists_what_is(text: str) -> None:
    """Also what would lie before the epoch or after the last 64-bit millisecond."""
    with pytest.raises(UsageError, match=r"--from .*: give first, epoch milliseconds, .* or '10m ago'"):
        moment_ms(text, "--from", NOW_MS, others="first, ")


def test_a_local_date_is_that_of_this_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a zone the date is read as the machine's own."""
    import time

    monkeypatch.setenv("TZ", "Etc/GMT-1")
    time.tzset()
    try:
        assert moment_ms("2013-01-01T06:15", "--from", NOW_MS) == 1357017300000
    finally:
        monkeypatch.undo()
        time.tzset()


@pytest.mark.parametrize(
    ("text", "queues", "expected"), [("broker-a:2", ONE, ONE[2]), ("1", ONE, ONE[1]), ("broker-b:0", TWO, TWO[3])]
)
def test_a_queue_is_named_by_broker_and_number(text: str, queues: list[MessageQueue], expected: MessageQueue) -> None:
    """The broker may be left away where the number says enough."""
    assert find_queue(parse_queue(text), queues) == expected


@pytest.mark.parametrize(
    ("text", "error", "complaint"),
    [
        ("two", UsageError, "--queue 'two': write BROKER:N, as in broker-a:0"),
        ("broker-a:", UsageError, "write BROKER:N"),
        ("broker-a:-1", UsageError, "write BROKER:N"),
        ("9" * 400, UsageError, "write BROKER:N"),
        ("0", UsageError, "several brokers have one; write one of broker-a:0, broker-b:0"),
        ("broker-a:3", CliError, "has no queue broker-a:3; it has broker-a:0 to broker-a:2, broker-b:0 to broker-b:0"),
        ("broker-c:0", CliError, "has no queue broker-c:0"),
    ],
)
def test_a_queue_that_cannot_be_found_is_named(text: str, error: type[CliError], complaint: str) -> None:
    """A wrong form is a wrong call; a queue that is not there is not."""
    with pytest.raises(error) as raised:
        find_queue(parse_queue(text), TWO)
    assert type(raised.value) is error
    assert complaint in str(raised.value)
