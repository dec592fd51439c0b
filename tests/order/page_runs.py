"""Runs for report pages, made up: `shared` hands queues over between machines, `at_once` corrupts a handover."""

from typing import Any

from lockstep.order.judge.rules import OrderChecker
from lockstep.order.judge.survey import survey
from lockstep.order.page import JudgedRun
from lockstep.order.page.timeline import Timeline
from lockstep.order.traces.merge import merge_traces

__all__ = ["EPOCH_MS", "Record", "judged", "records", "shared"]

EPOCH_MS = 1_790_000_000_000
Record = dict[str, Any]


def records(client: str, queue_id: int, begin_ms: float, end_ms: float, first_offset: int, calls: int) -> list[Record]:
    """A period of one client in one queue: granted at `begin_ms`, then calls one after the other until `end_ms`."""
    place = {"client_id": client, "host": "m", "group": "g", "topic": "t", "broker": "b", "queue_id": queue_id}
    period = {"period": 1 + int(begin_ms)}
    step = (end_ms - begin_ms) / (calls + 1)
    found = [_at(begin_ms, event="acquired", **place, **period)]
    found.append(_at(begin_ms, event="positioned", offset=first_offset, **place, **period))
    for number in range(calls):
        one = _at(begin_ms + (number + 2) * step, event="handled", offset=first_offset + number, **place, **period)
        one |= {"key": f"k{queue_id}", "msg_id": f"{queue_id}-{first_offset + number}", "status": "SUCCESS"}
        found.append(one | {"begin_mono_ns": int((begin_ms + (number + 1) * step) * 1e6)})
    return found


def _at(time_ms: float, **fields: Any) -> Record:
    return {"wall_ms": EPOCH_MS + int(time_ms), "mono_ns": int(time_ms * 1e6), **fields}


def shared(clients: int, queues: int, span_ms: float) -> dict[str, list[Record]]:
    """Each queue has two owners, one after the other, 20 calls each."""
    traces: dict[str, list[Record]] = {f"10.0.0.{number}@{100 + number}#1": [] for number in range(1, clients + 1)}
    names = list(traces)
    for queue_id in range(queues):
        middle = span_ms * (0.4 + 0.2 * queue_id / queues)
        traces[names[queue_id % clients]] += records(names[queue_id % clients], queue_id, 0, middle, 0, 20)
        after = names[(queue_id + 1) % clients]
        traces[after] += records(after, queue_id, middle + span_ms / 100, span_ms, 20, 20)
    for trace in traces.values():
        trace.sort(key=lambda record: record["mono_ns"])
    return traces


def judged(traces: dict[str, list[Record]], files: tuple[str, ...] = ("a.jsonl",)) -> JudgedRun:
    """The run that a page shows."""
    lists = list(traces.values())
    facts = survey(lists)
    timeline, checker = Timeline(), OrderChecker(facts)
    checker.feed_all(timeline.watch(merge_traces(lists, facts.clocks), facts.clocks))
    return timeline.run("", checker.report(), files)
