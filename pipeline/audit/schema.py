"""The columns of what the audit reads and of the tables it gives, as Spark's DDL.

A *history* is what is judged together. Traces of one run are one history, named "" unless a column says otherwise.
Times are epoch milliseconds on the common axis of all clocks of a history (order/traces/clocks.py): begin_ms and
end_ms with fractions, the others as whole numbers.
"""

from typing import Final

__all__ = ["TABLES", "TRACE_COLUMNS"]

TRACE_COLUMNS: Final = "history string, file string, line binary"
"""What `read_traces` gives: the lines of each file are in one partition, in their order."""

_QUEUE: Final = "group string, topic string, broker string, queue_id int"

_FINDING: Final = f"""
    history string, kind string, rule string, {_QUEUE}, key string, offsets array<long>, processes array<string>,
    times_ms array<long>, places array<string>, evidence string, confidence string, size double, begin_ms double,
    end_ms double, word string, records array<string>, story string
"""

TABLES: Final[dict[str, str]] = {
    # The findings that keep their evidence: of each kind the first ones, the worst and the last; `kinds` counts all.
    # rule: "a" to "d" of docs/order.md; kind: `lockstep.order.Kind`; confidence: "certain" or "likely".
    # evidence: a sentence. records: the records that prove it, as JSON, oldest first; offsets, processes, times_ms and
    # places ("file:line") are of the same records. begin_ms to end_ms: the time of all of them, on the common axis.
    # word: "first", "worst", "last", "first and last", "the only one"; null: one of many.
    # story: the command that prints what happened around it. size: messages or milliseconds, larger is worse.
    "violations": _FINDING,
    # Findings that the records neither prove nor exclude; confidence is "undecided".
    "undecided": _FINDING,
    # The number of findings of each kind.
    "kinds": "history string, kind string, rule string, undecided boolean, findings long",
    # Messages handled again, by `lockstep.order.Cause`; a producer's retry is counted without a queue.
    "duplicates": f"history string, {_QUEUE}, cause string, messages long",
    # From the old owner's last sign of life (begin_ms) to the new one's first position (end_ms, at_ms).
    "handovers": f"history string, {_QUEUE}, from_client_id string, to_client_id string, at_ms long, "
    "duration_ms double, begin_ms double, end_ms double",
    # One row a period of ownership: from its first record to its last. clock: the name of the clock that timed it.
    "owners": f"history string, {_QUEUE}, client_id string, period int, from_ms long, to_ms long, "
    "first_offset long, last_offset long, attempts long, overlaps long, begin_ms double, end_ms double, clock string",
    # measure: "handling" (a listener's call) or "lag" (stored until handled for the first time).
    "latency": f"history string, {_QUEUE}, measure string, messages long, p50_ms double, p90_ms double, "
    "p99_ms double, max_ms double",
    # What happened in each second of the wall clock.
    "rates": "history string, group string, topic string, second_ms long, attempts long, repeats long",
    # One row a history. verdict: "in order", "not in order", "undecided"; undecided: the number of such findings.
    # copies: records that were delivered again, and are counted once.
    "summary": "history string, sent long, handled long, attempts long, dead_lettered long, duplicates long, "
    "lost long, before_start long, skipped long, emptied long, queues long, keys long, handovers long, "
    "violations long, copies long, torn_lines long, broken_lines long, in_order boolean, verdict string, "
    "undecided long",
    # Lines that are no records, the first of each file: torn is what a killed process leaves at the end of its file.
    # why: the reason, as `lockstep trace check` prints it; null for a torn line.
    "broken_lines": "history string, file string, line long, torn boolean, text string, why string",
    # What these traces cannot show, a sentence a row, as `lockstep trace check` prints it after "not seen:".
    "unseen": "history string, sentence string",
    # What is known of each clock against the first one: its wall clock is least_ms to most_ms ahead. by_causes:
    # whether causes alone set the bounds. The first clock has 0, 0. sentence: as `trace check` prints it.
    "clocks": "history string, clock string, least_ms double, most_ms double, by_causes boolean, sentence string",
}
