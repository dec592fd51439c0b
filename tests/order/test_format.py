"""The trace format: one table for the reader and the writer."""

import json
from pathlib import Path

from lockstep.order.kinds import RULES, Kind
from lockstep.order.traces.format import EVENTS, FIELDS, Event, why_broken
from tests.client.messages import message_at
from tests.client.stage import queue_at
from tests.order.test_trace import Tracing
from tests.rows import by_row


def test_every_event_names_fields_of_the_table() -> None:
    """And every field is in some event or common to all."""
    names = {field.name for field in FIELDS}
    used = {name for event in EVENTS for name in (*event.must, *event.may)}
    assert used <= names
    assert names - used == {"event", "wall_ms", "mono_ns", "v", "machine", "boot", "host"}


@by_row("event", EVENTS)
def test_a_record_with_all_it_must_have_is_one_and_with_less_it_is_none(event: Event) -> None:
    """Each field is asked for by name."""
    kinds = {field.name: field.kind for field in FIELDS}
    record = {
        "event": event.name,
        **{name: 1 if kinds[name] == "integer" else "x" for name in ("wall_ms", *event.must)},
    }
    assert why_broken(record) is None
    for name in ("wall_ms", *event.must):
        assert why_broken({key: value for key, value in record.items() if key != name}) == f"{name} is missing"


async def test_what_the_writer_writes_is_in_the_table(tmp_path: Path) -> None:
    """No field that the page does not explain."""
    tracing = Tracing(tmp_path / "trace.jsonl")
    begin = tracing.writer.now()
    tracing.writer.sent(queue_at(3), 1, "K", ["i"])
    tracing.writer.queue_event("committed", queue_at(3), period=2, offset=41)
    tracing.writer.handled(queue_at(3), 2, [message_at(5)], "SUCCESS", begin, ordering="none")
    tracing.writer.close()
    names = {field.name for field in FIELDS}
    for line in tracing.path.read_text("utf-8").splitlines():
        record = json.loads(line)
        assert why_broken(record) is None
        assert set(record) <= names


def test_every_kind_has_a_rule() -> None:
    """The table of order/kinds.py has a row for each."""
    assert set(RULES) == set(Kind)
