"""What the commands make of lines, formats and lock tables, without a broker."""

import asyncio
import io
import json
from typing import Any

import pytest
from rich.console import Console

from lockstep.cli.format import format_json, parse_format
from lockstep.cli.lock.changes import Change, ChangeKind, journal_changes, table_changes
from lockstep.cli.lock.live import LiveLocks
from lockstep.cli.output import UsageError, progress, seconds
from lockstep.cli.produce.lines import BadLine, Line, LineFormat, LineReader
from lockstep.protocol.bodies.lock_changes import LockChange
from lockstep.protocol.bodies.locks import LockTableRow
from lockstep.protocol.messages.message import MessageExt, Record, decode_messages, encode_stored_message
from lockstep.protocol.messages.properties import encode_properties
from lockstep.protocol.messages.to_send import Message
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.host.runtime import AsyncioRuntime
from lockstep.simulation import World, simulate
from tests.rows import by_row

QUEUE = MessageQueue("orders", "broker-a", 0)


def lock(
    client_id: str = "a", *, age_ms: int = 0, held_ms: int = 0, life_ms: int = 60_000, **of_fenced: Any
) -> LockTableRow:
    return LockTableRow("g", QUEUE, client_id, age_ms, life_ms - age_ms, held_ms, **of_fenced)


def stored(body: bytes, **properties: str) -> MessageExt:
    host = b"\x7f\0\0\x01"
    record = Record("orders", 3, 0, 0, 1, host, 1, 1234, 0, 0, body, encode_properties(properties).encode(), 0)
    stored = encode_stored_message(record, b"orders", 7, 0, host, 2)
    (message,) = decode_messages(stored, "broker-a")
    return message


def message_of(data: bytes, **settings: object) -> Message | None:
    return LineFormat(topic="orders", **settings).message(Line(1, data))  # type: ignore[arg-type]


# Lines -------------------------------------------------------------------------------------------------------


class Chunks(io.RawIOBase):
    """A pipe that hands over its bytes in these pieces."""

    def __init__(self, *chunks: bytes) -> None:
        self._chunks = list(chunks)

    def read(self, _size: int = -1) -> bytes:
        return self._chunks.pop(0) if self._chunks else b""


@pytest.mark.parametrize(
    "chunks",
    [(b"a\nbb\r\n\nc",), (b"a", b"\nb", b"b\r", b"\n\nc"), (b"a\nbb\r\n", b"\n", b"c\n")],
    ids=["at once", "in pieces", "by lines"],
)
async def test_lines_are_whole_however_they_come(chunks: tuple[bytes, ...]) -> None:
    """Lines are numbered from 1, without their ends, an empty one among them, the last with or without an end."""
    pool = AsyncioRuntime().new_worker_pool("input", 1)
    lines = [line async for line in LineReader(Chunks(*chunks), pool)]
    pool.close()
    assert lines == [Line(1, b"a"), Line(2, b"bb"), Line(3, b""), Line(4, b"c")]


async def test_a_line_that_never_ends_is_refused() -> None:
    """Memory stays bounded whatever comes through a pipe."""
    pool = AsyncioRuntime().new_worker_pool("input", 1)
    endless = Chunks(*[bytes(1024 * 1024)] * 64)
    with pytest.raises(BadLine, match=r"line 1: is longer than \d+ bytes"):
        async with asyncio.timeout(60):
            _ = [line async for line in LineReader(endless, pool)]
    pool.close()


def test_a_json_line_is_its_own_body() -> None:
    """The bytes of the line go out as they are, spaces inside and order of fields included."""
    message = message_of(b' {"tail": "N1",  "n": 1} ', key_field="tail", tags="dep")
    assert message == Message("orders", b'{"tail": "N1",  "n": 1}', tags="dep", sharding_key="N1")


def test_key_and_body_may_be_fields() -> None:
    """A whole number is a key by its digits; a body that is no text is its JSON."""
    message = message_of(b'{"id": 17, "what": {"a": [1, null]}}', key_field="id", body_field="what")
    assert message == Message("orders", b'{"a":[1,null]}', sharding_key="17")


def test_blank_json_lines_are_passed_over() -> None:
    """A file may end with an empty line."""
    assert message_of(b"  ") is None


@by_row(
    "data, complaint",
    [
        (b"{", "is not JSON: .* at character 2"),
        (b"[1]", "is a list, not a JSON object"),
        (b"\xff{}", "is not UTF-8 at byte 0"),
        (b'{"k": NaN}', "NaN is no JSON value"),
        (b"[" * 100_000, "nested too deeply"),
        (b'{"a": 1}', "has no field 'k'; it has 'a'"),
        (b'{"k": null}', "field 'k' is null; a key is a text or a whole number"),
        (b'{"k": true}', "field 'k' is true; "),
        (b'{"k": 1.5}', "field 'k' is a number; "),
        (b'{"k": ""}', "field 'k' is empty"),
        (b'{"k": "a\\u0002b"}', "0x01 or 0x02"),
        (b'{"k": "\\ud800"}', "surrogates not allowed"),
    ],
)
def test_a_bad_line_is_named_with_what_is_wrong(data: bytes, complaint: str) -> None:
    """The text begins with the line's number."""
    with pytest.raises(BadLine, match=f"^line 1: .*{complaint}"):
        message_of(data, key_field="k")


@by_row(
    "data, complaint",
    [
        (b"{}", "has no field 'body' or 'body_base64'"),
        (b'{"body": 1}', "field 'body' is a number; it must be a text"),
        (b'{"body_base64": "?"}', "field 'body_base64' is not base64"),
        (b'{"body": "x", "properties": {"a": 1}}', "'properties' must hold texts only"),
        (b'{"body": "x", "key": ""}', "field 'key' is empty"),
        (
            b'{"body": "x", "body_error": "not zstd"}',
            r"has a body that could not be read \(not zstd\), and is not sent",
        ),
    ],
)
def test_a_bad_envelope_is_named_with_what_is_wrong(data: bytes, complaint: str) -> None:
    """Fields of an envelope are checked one by one."""
    with pytest.raises(BadLine, match=complaint):
        message_of(data, envelope=True)


@pytest.mark.parametrize("body", [b"plain", '{"a": "ü"}'.encode(), b"\xff\x00\xfe"])
def test_what_consume_prints_produce_reads(body: bytes) -> None:
    """A message survives the way out and in: body, key, tags, look-up keys and the user's own properties."""
    message = stored(body, KEYS="k1 k2", TAGS="dep", __SHARDING_KEY="N1", UNIQ_KEY="7F", WAIT="true", color="red")
    line = format_json(message)
    assert line.endswith(b"\n")
    assert b"\n" not in line[:-1]
    assert message_of(line, envelope=True) == Message(
        "orders", body, tags="dep", keys="k1 k2", sharding_key="N1", properties={"color": "red"}
    )


# Formats -----------------------------------------------------------------------------------------------------


def test_json_names_everything() -> None:
    """Key and tags are null when there are none, so that every line has them."""
    assert json.loads(format_json(stored(b"x", UNIQ_KEY="7F"))) == {
        "topic": "orders",
        "broker": "broker-a",
        "queue_id": 3,
        "offset": 7,
        "key": None,
        "tags": None,
        "msg_id": "7F",
        "store_timestamp": 1234,
        "body": "x",
    }


def test_a_format_is_kcats() -> None:
    """Every letter means what the help says; bodies come as their bytes, absent keys as nothing."""
    message = stored(b"\xffbody", TAGS="dep", __SHARDING_KEY="N1", UNIQ_KEY="7F")
    assert parse_format(r"%t %p %o %k %s %S %T %g %i %%\t\n")(message) == (
        b"orders 3 7 N1 \xffbody 5 1234 dep 7F %\t\n"
    )
    assert parse_format("%k|%g")(stored(b"x")) == b"|"


@pytest.mark.parametrize("text", ["%x", "%", "\\q", "a\\"])
def test_an_unknown_format_letter_lists_the_known_ones(text: str) -> None:
    """A wrong format is refused before anything is consumed."""
    with pytest.raises(UsageError, match="allowed are"):
        parse_format(text)


def test_durations_are_readable() -> None:
    """Tenths of seconds while they matter."""
    assert [seconds(ms) for ms in (0, 1234, 119_999, 120_000, 605_000)] == [
        "0.0 s", "1.2 s", "120.0 s", "2 min 00 s", "10 min 05 s",
    ]  # fmt: skip


# Locks -------------------------------------------------------------------------------------------------------


@by_row(
    "old, new, kind",
    [
        (lock(age_ms=19_000, held_ms=19_000), lock(age_ms=0, held_ms=20_000), ChangeKind.RENEWED),
        (lock(age_ms=59_500, held_ms=59_500), lock(age_ms=60_001, held_ms=60_001), ChangeKind.EXPIRED),
        (lock(age_ms=1000, held_ms=1000), lock(age_ms=2000, held_ms=2000), None),
        (lock(age_ms=61_000, held_ms=61_000), lock(age_ms=62_000, held_ms=62_000), None),
        (None, lock(), None),
        (lock("a"), lock("b"), None),
        (lock(), None, None),
        (lock(epoch=1), lock(age_ms=20, held_ms=20, epoch=2), None),
        (lock(draining=False), lock(age_ms=20, held_ms=20, draining=True), ChangeKind.DRAINING),
        (lock(draining=True), lock(age_ms=20, held_ms=20, draining=True), None),
    ],
)
def test_two_looks_at_a_lock_tell_what_happened(
    old: LockTableRow | None, new: LockTableRow | None, kind: ChangeKind | None
) -> None:
    """What only the table shows. Changes of owners are in the journal."""
    before = {(old.consumer_group, old.queue): old} if old is not None else {}
    found = table_changes(before, [new] if new is not None else [], renewals=True)
    assert [change.kind for change in found] == ([kind] if kind is not None else [])


@by_row(
    "cause, old, new, kind, previous",
    [
        ("granted", None, "b", ChangeKind.ACQUIRED, None),
        ("granted again", "b", "b", ChangeKind.ACQUIRED, None),
        ("taken over", "a", "b", ChangeKind.MOVED, "a"),
        ("unlocked", "b", None, ChangeKind.RELEASED, None),
        ("connection lost", "b", None, ChangeKind.EXPIRED, None),
        ("reset", "b", "b", ChangeKind.RESET, None),
        ("refused", "a", "b", ChangeKind.REFUSED, "a"),
        ("a later broker's cause", None, "b", ChangeKind.ACQUIRED, None),
    ],
)
def test_the_journal_tells_owners(
    cause: str, old: str | None, new: str | None, kind: ChangeKind, previous: str | None
) -> None:
    """Each cause, with the broker's time; the row is the present one if it is of the same owner."""
    change = LockChange(7, 99, "g", QUEUE, old, new, None, cause, 1500)
    rows = {("g", QUEUE): lock("b", age_ms=10)}
    (found,) = journal_changes([change], rows, refusals=True)
    assert (found.kind, found.previous_owner, found.at_ms, found.rest_ms) == (kind, previous, 99, 1500)
    assert found.row == rows["g", QUEUE]
    (alone,) = journal_changes([change], {}, refusals=True)
    assert (alone.row.client_id, alone.row.queue) == ("b", QUEUE)
    assert len(journal_changes([change], rows, refusals=False)) == (cause != "refused")


def test_renewals_are_told_on_request_only() -> None:
    """Every 20 s a queue is renewed; who watches takeovers need not see it."""
    before = {("g", QUEUE): lock(age_ms=19_000, held_ms=19_000)}
    assert table_changes(before, [lock(held_ms=20_000)], renewals=False) == []


def test_the_first_look_tells_what_is_held() -> None:
    """Locks that were there before the watch are no news of their own kind."""
    assert table_changes(None, [lock()], renewals=False) == [Change(ChangeKind.HELD, lock())]
    assert table_changes(None, [lock(age_ms=60_001)], renewals=False)[0].kind is ChangeKind.EXPIRED


@pytest.mark.parametrize("width", [40, 60, 80])
@pytest.mark.parametrize("topic", ["orders", "a-topic-with-a-very-long-name-that-fills-the-terminal-by-itself"])
@pytest.mark.parametrize("age_ms", [1500, 700_000])
def test_a_narrow_table_keeps_the_owner_and_the_queues_number(width: int, topic: str, age_ms: int) -> None:
    """No line is wider than the terminal; the owner is there in full, on two lines if need be."""
    screen = io.StringIO()
    owner = "192.168.100.200@4711#1234567890123"
    held = lock(owner, age_ms=age_ms)._replace(queue=MessageQueue(topic, "broker-a", 17))
    with LiveLocks(Console(file=screen, width=width, force_terminal=False)) as live:
        live.show([held], [Change(ChangeKind.ACQUIRED, held)], 0)
    lines = screen.getvalue().splitlines()
    assert max(map(len, lines)) <= width
    header = next(at for at, line in enumerate(lines) if "owner" in line and "queue" in line)
    first = lines[header + 1].split()
    assert first[0].endswith(":17")
    assert ("58.5" in first, "expired" in first) == (age_ms == 1500, age_ms != 1500)
    column = lines[header].index("owner")
    end = lines[header].index("left")
    assert "".join(line[column:end].strip() for line in lines[header + 1 :]) == owner
    assert "acquired" in lines[header + 1]


def test_the_live_table_shows_owner_age_and_time_left() -> None:
    """A row per lock, the change beside it for ten seconds, and expired ones marked."""
    screen = io.StringIO()
    live = LiveLocks(Console(file=screen, width=140, force_terminal=False))
    with live:
        moved = lock("client-b", age_ms=1500, held_ms=1500)
        live.show([moved], [Change(ChangeKind.MOVED, moved, "client-a")], 0)
    assert all(
        text in screen.getvalue() for text in ("1 lock, 1 owner", "orders@broker-a:0", "client-b", "58.5 s", "moved")
    )
    screen = io.StringIO()
    live = LiveLocks(Console(file=screen, width=140, force_terminal=False))
    with live:
        live.show([moved], [Change(ChangeKind.MOVED, moved, "client-a")], 0)
        live.show([lock("client-b", age_ms=60_500)], [], 10_001)
    assert "expired 0.5 s ago" in screen.getvalue()
    assert "moved" not in screen.getvalue()


def test_the_rate_of_progress_is_that_since_the_line_before(capsys: pytest.CaptureFixture[str]) -> None:
    """One since the start would hide that nothing moves any more."""

    async def story(world: World) -> None:
        sent = 1000
        async with progress(world.host("a"), lambda: sent, "sent"):
            await world.sleep_ms(2_100)
            sent = 5000
            await world.sleep_ms(4_000)

    simulate(story)
    told = capsys.readouterr().err.splitlines()
    assert told == [f"lockstep: {line}" for line in ("1,000 sent, 500/s", "5,000 sent, 2,000/s", "5,000 sent, 0/s")]
