"""Histories for the auditor and the checker alike: legal ones, bent ones, and those of the checker's own tests."""

import copy
import inspect
import itertools
import json
import random
from collections.abc import Callable, Iterable
from types import ModuleType
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from lockstep.order import OrderReport, check_traces
from tests.order.legal_histories import histories
from tests.order.stories import Story

Records = list[dict[str, Any]]
Traces = list[Records]


class History(NamedTuple):
    """The traces of some processes, and where they come from."""

    name: str
    traces: Traces


def legal_histories(count: int) -> list[History]:
    """So many of the generator's, the same ones in each run."""
    found: list[History] = []

    @settings(
        max_examples=count,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        deadline=None,
    )
    @given(histories())
    def collect(story: Story) -> None:
        found.append(History(f"legal {len(found)}", copy.deepcopy(list(story.traces.values()))))

    collect()
    return found


def told_histories(*modules: ModuleType) -> list[History]:
    """The histories that the checker's tests tell: each story at the moment its report is asked for."""
    found: list[History] = []
    for module in modules:
        for name, test in inspect.getmembers(module, inspect.isfunction):
            if name.startswith("test_") and not inspect.signature(test).parameters:
                found += _stories_of(name, test)
    return found


def _stories_of(name: str, test: Callable[[], None]) -> list[History]:
    found: list[History] = []

    def report(story: Story) -> OrderReport:
        traces = list(story.traces.values())
        found.append(History(f"{name} {len(found)}", copy.deepcopy(traces)))
        return check_traces(traces)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Story, "report", report)
        test()
    return found


def bent_histories(legal: Iterable[History], seed: int) -> list[History]:
    """Each legal history with one to three small wrongs, by chance."""
    rng = random.Random(seed)
    bent = []
    for history in legal:
        traces = copy.deepcopy(history.traces)
        names = [rng.choice(sorted(BENDS)) for _ in range(rng.randint(1, 3))]
        for name in names:
            BENDS[name](traces, rng)
        bent.append(History(f"{history.name} with {', '.join(names)}", [trace for trace in traces if trace]))
    return bent


def _pick(traces: Traces, rng: random.Random, *events: str) -> tuple[Records, int] | None:
    places = [
        (t, i)
        for t, i in itertools.chain(*[[(t, i) for i in range(len(t))] for t in traces])
        if t[i]["event"] in events
    ]
    return rng.choice(places) if places else None


def _swap(traces: Traces, rng: random.Random) -> None:
    found = _pick(traces, rng, "handled"), _pick(traces, rng, "handled")
    if found[0] and found[1]:
        one, other = (trace[place] for trace, place in found if trace)  # type: ignore[misc]
        for name in ("offset", "msg_id", "key"):
            one[name], other[name] = other[name], one[name]


def _drop(traces: Traces, rng: random.Random) -> None:
    found = _pick(traces, rng, "handled", "committed", "positioned", "acquired", "sent", "dropped")
    if found:
        del found[0][found[1]]


def _repeat(traces: Traces, rng: random.Random) -> None:
    found = _pick(traces, rng, "handled")
    if found:
        trace, place = found
        trace.insert(place + 1, {**trace[place], "mono_ns": trace[place]["mono_ns"] + 1})


def _overlap(traces: Traces, rng: random.Random) -> None:
    found = _pick(traces, rng, "handled")
    if found:
        found[0][found[1]]["begin_mono_ns"] -= rng.randrange(60_000_000)


def _move(event: str) -> Callable[[Traces, random.Random], None]:
    def move(traces: Traces, rng: random.Random) -> None:
        found = _pick(traces, rng, event)
        if found:
            record = found[0][found[1]]
            record["offset"] = max(0, record["offset"] + rng.randint(-4, 4))

    return move


def _late(traces: Traces, rng: random.Random) -> None:
    """A record written by a process that was held up: at another place among the others' records."""
    found = _pick(traces, rng, "handled", "committed", "positioned")
    if found:
        record = found[0][found[1]]
        record["mono_ns"] += rng.randrange(20_000_000)


def _status(traces: Traces, rng: random.Random) -> None:
    found = _pick(traces, rng, "handled")
    if found:
        found[0][found[1]]["status"] = rng.choice(["SUCCESS", "SUSPEND_CURRENT_QUEUE_A_MOMENT", "COMMIT", "ROLLBACK"])


def _other(event: str) -> Callable[[Traces, random.Random], None]:
    """One record more, of the process and the time of another."""

    def insert(traces: Traces, rng: random.Random) -> None:
        found = _pick(traces, rng, "handled", "committed")
        if found:
            trace, place = found
            near = trace[place]
            names = ("wall_ms", "mono_ns", "host", "client_id", "group", "topic", "broker", "queue_id")
            extra = {name: near[name] for name in names}
            offset = max(0, near["offset"] + rng.randint(-3, 3))
            trace.insert(place + 1, {**extra, "event": event, "offset": offset, "key": "K", "msg_id": f"id-{offset}"})

    return insert


def _restart(traces: Traces, rng: random.Random) -> None:
    found = _pick(traces, rng, "handled")
    if found:
        near = found[0][found[1]]
        marker: dict[str, Any] = {"event": "broker_restarted", "client_id": "test", "host": near["host"]}
        marker |= {"wall_ms": near["wall_ms"], "mono_ns": near["mono_ns"]}
        if rng.random() < 0.5:
            marker["broker"] = near["broker"]
        traces.append([marker])


def _stale(traces: Traces, rng: random.Random) -> None:
    """Calls of one process are told again later, as if it had not noticed that its time was over."""
    calls = [record for trace in traces for record in trace if record["event"] == "handled"]
    if len(calls) > 2:
        first = rng.randrange(len(calls) - 1)
        later = rng.choice(calls)["mono_ns"]
        trace = next(trace for trace in traces if any(record is calls[first] for record in trace))
        for place, record in enumerate(calls[first : first + rng.randint(1, 8)]):
            if record["client_id"] == calls[first]["client_id"]:
                again = {**record, "mono_ns": later + place * 1_000_000, "begin_mono_ns": later + place * 1_000_000 - 1}
                trace.append({**again, "offset": record["offset"] + rng.choice([0, 0, 0, 1])})
        trace.sort(key=lambda record: record["mono_ns"])


BENDS: dict[str, Callable[[Traces, random.Random], None]] = {
    "a swap": _swap,
    "a drop": _drop,
    "a repeat": _repeat,
    "an overlap": _overlap,
    "a commit moved": _move("committed"),
    "a position moved": _move("positioned"),
    "a handling moved": _move("handled"),
    "a late record": _late,
    "another status": _status,
    "a reset": _other("reset"),
    "a stored record": _other("stored"),
    "a dead letter": _other("dead_lettered"),
    "a restart": _restart,
    "a stale owner": _stale,
}


def lines_of(history: History) -> str:
    """A history as JSON lines, to look at when a test fails."""
    records = sorted(itertools.chain(*history.traces), key=lambda record: record["mono_ns"])
    return "\n".join(json.dumps(record) for record in records)
