"""Times and queues as commands read them."""

import pytest

from lockstep.cli.lookup import find_queue
from lockstep.cli.option_values import duration_option, parse_queue
from lockstep.cli.output import CliError, UsageError
from lockstep.cli.time import moment_ms
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.texts import duration_us
from tests.rows import by_row

NOW_MS = 1_700_000_000_000
ONE = [MessageQueue("T", "broker-a", n) for n in range(3)]
TWO = [*ONE, MessageQueue("T", "broker-b", 0)]


@by_row(
    "text, expected",
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


@by_row(
    "text, expected_ms",
    [("500ms", 500), ("2s", 2000), ("1m30s", 90_000), ("1.5s", 1500), ("2", 2000), ("0.1", 100), ("0.0004", 0)],
)
def test_an_option_takes_a_duration_or_a_number_of_its_unit(text: str, expected_ms: int) -> None:
    """All options that are a time do."""
    assert duration_option("--interval", "", bare="s").parser(text) == expected_ms
    assert duration_option("--lock-live-ms", "", bare="ms").parser("10000") == 10_000


def test_a_duration_is_exact() -> None:
    """No part is rounded, however long it is; a sentence says what is none."""
    assert duration_us("1d 1h1m1s1ms1us") == 90_061_001_001
    assert duration_us("123456789012345.000001s") == 123_456_789_012_345_000_001
    for text in ("", "5", "1s2", "s", "9" * 400 + "s", "1 s"):
        with pytest.raises(ValueError, match="is no duration; write it as 500ms, 30s, 1m30s or 2h"):
            duration_us(text)


@by_row(
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


@by_row(
    "text, error, complaint",
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
