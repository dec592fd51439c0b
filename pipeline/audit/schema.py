"""The columns of what the audit reads and of the tables it gives, as Spark's DDL.

A *history* is what is judged together. Traces of one run are one history, named "" unless a column says otherwise.
Times that end in `_ms` are of the wall clock of the process that wrote the record.
"""

from typing import Final

__all__ = ["RECORD_COLUMNS", "TABLES", "TRACE_COLUMNS"]

RECORD_COLUMNS: Final = """
    event string, wall_ms long, mono_ns long, host string, client_id string, group string, topic string,
    broker string, queue_id int, period int, offset long, key string, msg_id string, begin_wall_ms long,
    begin_mono_ns long, status string, ordering string, reconsume_times int, outcome string
"""
"""One trace record (`lockstep.order.rules` says what each event carries); the rest is null."""

TRACE_COLUMNS: Final = f"""
    history string not null, file string not null, line_block long not null, line_row long not null,
    {RECORD_COLUMNS}, broken string
"""
"""What `read_traces` gives: blocks of a file stand in the order of `line_block`, in each of which `line_row` counts the
lines up by one from any number; `broken` is a line's text."""

_QUEUE: Final = "group string, topic string, broker string, queue_id int"

TABLES: Final[dict[str, str]] = {
    # One row a broken rule. rule: "a" to "d" of docs/order.md; kind: `lockstep.order.Kind`.
    # offsets, processes, times_ms and places ("file:line") are of the records that prove it, the offender's first.
    "violations": f"history string, kind string, rule string, {_QUEUE}, key string, offsets array<long>, "
    "processes array<string>, times_ms array<long>, places array<string>, evidence string",
    # Messages handled again, by `lockstep.order.Cause`; a producer's retry is counted without a queue.
    "duplicates": f"history string, {_QUEUE}, cause string, messages long",
    # From the old owner's last sign of life to the new one's first position.
    "handovers": f"history string, {_QUEUE}, from_client_id string, to_client_id string, at_ms long, "
    "duration_ms double",
    # A bar a period of ownership: from its first record to its last.
    "owners": f"history string, {_QUEUE}, client_id string, period int, from_ms long, to_ms long, "
    "first_offset long, last_offset long, attempts long, overlaps long",
    # measure: "handling" (a listener's call) or "lag" (stored until handled for the first time).
    "latency": f"history string, {_QUEUE}, measure string, messages long, p50_ms double, p90_ms double, "
    "p99_ms double, max_ms double",
    # What happened in each second of the wall clock.
    "rates": "history string, group string, topic string, second_ms long, attempts long, repeats long",
    # One row a history.
    "summary": "history string, sent long, handled long, attempts long, dead_lettered long, duplicates long, "
    "lost long, before_start long, skipped long, emptied long, queues long, keys long, handovers long, "
    "violations long, torn_lines long, broken_lines long, in_order boolean",
    # Lines that are no records: torn is what a killed process leaves at the end of its file.
    "broken_lines": "history string, file string, line long, torn boolean, text string",
}
