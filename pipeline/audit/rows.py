"""The rows of the tables that are made from the reports of the histories."""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from lockstep.order.judge.queue_judge import QueueResult
from lockstep.order.kinds import RULES, Cause
from lockstep.order.report import OrderReport, Violation
from lockstep.order.traces.clocks import Clocks
from lockstep.order.traces.reader import Record
from lockstep.pipeline.audit.crossing import Crossing
from lockstep.pipeline.audit.placing import FileCounts
from lockstep.pipeline.audit.survey import LINE, TIME, History

__all__ = ["Judged", "Row", "rows_of"]

_FILES_NAMED: Final = 8  # in the command that shows a story
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Judged:
    """One history that was judged."""

    history: History
    report: OrderReport
    results: list[QueueResult]
    crossing: Crossing
    files: list[FileCounts]


def rows_of(judged: Judged) -> dict[str, list[Row]]:
    """Rows by table; those of owners, latency and rates come from the judges."""
    report, history = judged.report, judged.history
    name = {"history": history.name}
    words = {id(found): word for word, found in report.examples()}
    return {
        "violations": [_finding(found, words, history) for found in report.violations],
        "undecided": [_finding(found, words, history) for found in report.undecided],
        "kinds": [
            {**name, "kind": kind, "rule": RULES[kind].letter, "undecided": undecided, "findings": findings}
            for undecided, counts in ((False, report.violation_counts), (True, report.undecided_counts))
            for kind, findings in counts.items()
        ],
        "duplicates": _duplicates(judged),
        "handovers": [
            {
                **name, "group": one.group, **_queue(one.queue.topic, one.queue.broker_name, one.queue.queue_id),
                "from_client_id": one.from_client_id, "to_client_id": one.to_client_id,
                "at_ms": one.at_ns // 1_000_000, "duration_ms": one.duration_ms,
                "begin_ms": one.at_ns / 1e6 - one.duration_ms, "end_ms": one.at_ns / 1e6,
            }
            for one in report.handovers
        ],
        "summary": [{**name, **_summary(report)}],
        "broken_lines": [
            {**name, "file": file.file, "line": number, "torn": why is None, "text": text, "why": why}
            for file in judged.files
            for number, why, text in file.broken
        ],
        "unseen": [{**name, "sentence": sentence} for sentence in report.unseen],
        "clocks": [{**name, **row} for row in _clocks(history.facts.clocks)],
    }  # fmt: skip


def _queue(topic: str, broker: str, queue_id: int) -> Row:
    return {"topic": topic, "broker": broker, "queue_id": queue_id}


def _summary(report: OrderReport) -> Row:
    counted = ("sent", "handled", "attempts", "dead_lettered", "lost", "before_start", "skipped", "emptied", "queues")
    return {
        **{
            name: getattr(report, name)
            for name in (*counted, "keys", "copies", "torn_lines", "broken_lines", "in_order")
        },
        "duplicates": sum(report.duplicates.values()),
        "handovers": len(report.handovers),
        "violations": sum(report.violation_counts.values()),
        "undecided": sum(report.undecided_counts.values()),
        "verdict": str(report.verdict),
    }


def _duplicates(judged: Judged) -> list[Row]:
    name = judged.history.name
    rows: list[Row] = []
    for one in judged.results:
        for group, result in one.groups.items():
            counts: Mapping[Cause, int] = Counter(result.findings.duplicates)
            place = {"history": name, "group": group, **_queue(*one.queue)}
            rows += [{**place, "cause": cause, "messages": messages} for cause, messages in counts.items() if messages]
    for (group, topic), messages in judged.crossing.retries.items():
        rows.append({
            "history": name, "group": group, "topic": topic, "cause": Cause.PRODUCER_RETRY, "messages": messages,
        })  # fmt: skip
    return rows


def _clocks(clocks: Clocks) -> list[Row]:
    return [
        {
            "clock": bounds.name, "least_ms": bounds.least_ms, "most_ms": bounds.most_ms,
            "by_causes": bounds.by_causes, "sentence": clocks.sentence(bounds) if number else None,
        }
        for number, bounds in enumerate(clocks.bounds())
    ]  # fmt: skip


def _finding(found: Violation, words: Mapping[int, str], history: History) -> Row:
    """A row of the tables `violations` and `undecided`."""
    record = found.evidence[-1] if found.evidence else {}
    ends = [one[TIME] / 1e6 for one in found.evidence]
    begins = [one[TIME] / 1e6 - _took_ms(one) for one in found.evidence]
    return {
        "history": history.name,
        "kind": found.kind,
        "rule": RULES[found.kind].letter,
        "group": record.get("group"),
        **_queue(*(record.get(name) for name in ("topic", "broker", "queue_id"))),  # type: ignore[arg-type]
        "key": record.get("key"),
        "offsets": [one["offset"] for one in found.evidence if "offset" in one],
        "processes": [one["client_id"] for one in found.evidence if "client_id" in one],
        "times_ms": [one[TIME] // 1_000_000 for one in found.evidence],
        "places": [_place(one, history) for one in found.evidence],
        "evidence": found.sentence,
        "confidence": found.confidence,
        "size": float(found.size),
        "begin_ms": min([*begins, *ends], default=None),
        "end_ms": max(ends, default=None),
        "word": words.get(id(found)),
        "records": [json.dumps(_as_written(one), ensure_ascii=False) for one in found.evidence],
        "story": found.story_command(_names(history)),
    }


def _took_ms(record: Record) -> float:
    begin, end = record.get("begin_mono_ns"), record.get("mono_ns")
    return (end - begin) / 1e6 if begin is not None and end is not None else 0.0


def _place(record: Record, history: History) -> str:
    source, line = history.place_of(record)
    return f"{history.files[source]}:{line}"


def _as_written(record: Record) -> Record:
    """The record without what executors have added."""
    return {name: value for name, value in record.items() if name not in (LINE, TIME)}


def _names(history: History) -> tuple[str, ...]:
    """The files of a history, if they are few."""
    if len(history.files) > _FILES_NAMED:
        return ("FILE...",)
    return tuple(unquote(urlsplit(file).path) if file.startswith("file:") else file for file in history.files)
