"""Histories as short scripts: one statement a record or two, read by `traces_of`.

a own 1 @0; a call 1 0-2 KL 5ms; +2000; a commit 1 @3; a drop 1; broker stored @3; producer sent 0-9

A statement is `WHO WHAT words`, or `+N`: N milliseconds pass. Every record takes a millisecond of its own. Words: a
plain number is the period, then offsets (`3`, `0-4`); `@N` an offset, stored or asked for; `q1` a queue; `KL` keys
in turn by offset, `null` no key; `5ms`, `20us` how long a call takes; `begin-7ms` a call begins so much earlier;
`backwards` it ends before its begin; `fail`, `rollback`, `manual`, `later` its status; `batch` one call for all;
`by-key`, `concurrent` its ordering; `e7` an epoch; `id=x` a message id; `broker=x`, `topic=x`, `group=x`; `wall` no
monotonic clock, `wall_ms=-500` a wall clock that is behind. The event `breath` is only a sign of life.
"""

import re
from collections.abc import Callable
from typing import Any

__all__ = ["EPOCH_MS", "Records", "Traces", "traces_of"]

Records = list[dict[str, Any]]
Traces = dict[str, Records]
EPOCH_MS = 1_700_000_000_000
MS = 1_000_000
STATUSES = {
    "fail": "SUSPEND_CURRENT_QUEUE_A_MOMENT", "rollback": "ROLLBACK", "manual": "COMMIT", "later": "RECONSUME_LATER",
}  # fmt: skip
EVENTS = {
    "grant": "acquired", "pos": "positioned", "commit": "committed", "drop": "dropped", "lost": "lock_lost",
    "dead": "dead_lettered", "back": "sent_back", "restarted": "broker_restarted", "failed": "send_failed",
}  # fmt: skip
UNITS = {"ms": MS, "us": 1000, "ns": 1}


class _Words:
    """The words of one statement."""

    def __init__(self, words: list[str]) -> None:
        self.numbers: list[int] = []
        self.fields: dict[str, Any] = {}
        self.keys: str | None = "K"
        self.took_ns, self.earlier_ns = 5 * MS, 0
        self.flags: set[str] = set()
        self.at: int | None = None
        self.wall_ms = 0  # how far the wall clock is ahead
        for word in words:
            self._take(word)

    def _take(self, word: str) -> None:
        if match := re.fullmatch(r"(\d+)-(\d+)", word):
            self.numbers += range(int(match[1]), int(match[2]) + 1)
        elif word.isdigit():
            self.numbers.append(int(word))
        elif word.startswith("@"):
            self.at = int(word[1:])
        elif match := re.fullmatch(r"(begin-)?(\d+)(ms|us|ns)", word):
            span = int(match[2]) * UNITS[match[3]]
            self.took_ns, self.earlier_ns = (self.took_ns, span) if match[1] else (span, self.earlier_ns)
        elif match := re.fullmatch(r"q(\d+)", word):
            self.fields["queue_id"] = int(match[1])
        elif match := re.fullmatch(r"e(\d+)", word):
            self.fields["epoch"] = int(match[1])
        elif word.startswith("wall_ms="):
            self.wall_ms = int(word[8:])
        elif "=" in word:
            name, _, value = word.partition("=")
            self.fields[{"id": "msg_id"}.get(name, name)] = value
        elif word.isupper():
            self.keys = word
        else:
            self.flags.add(word)


def traces_of(text: str) -> Traces:
    """The records of a script, by who wrote them, on one clock."""
    traces: Traces = {}
    now_ns = 0
    for statement in re.split(r"[;\n]", text):
        words = statement.split()
        if not words:
            continue
        if words[0].startswith("+"):
            now_ns += int(words[0][1:]) * MS
            continue
        who, what, found = words[0], words[1], _Words(words[2:])
        write = _Writer(traces.setdefault(who, []), who)
        now_ns = _SHAPES.get(what, _plain)(write, EVENTS.get(what, what), found, now_ns)
    return traces


class _Writer:
    """Writes the records of one process."""

    def __init__(self, trace: Records, who: str) -> None:
        self._trace = trace
        self._who = who

    def record(self, event: str, now_ns: int, words: _Words, **fields: Any) -> None:
        head: dict[str, Any] = {"event": event, "wall_ms": EPOCH_MS + now_ns // MS + words.wall_ms, "mono_ns": now_ns}
        head |= {"v": 2, "machine": "m", "boot": "b", "host": "127.0.0.1", "client_id": self._who}
        head |= {"group": "g", "topic": "orders", "broker": "b", "queue_id": 0}
        if self._who.startswith("broker"):
            del head["client_id"]
        if "wall" in words.flags:
            for name in ("mono_ns", "machine", "boot", "v"):
                del head[name]
        if event in ("broker_restarted", "closed"):
            for name in ("topic", "queue_id"):
                del head[name]
        self._trace.append({**head, **fields, **words.fields})


def _plain(write: _Writer, event: str, words: _Words, now_ns: int) -> int:
    fields: dict[str, Any] = {"period": words.numbers[0]} if words.numbers else {}
    if words.at is not None:
        fields["offset"] = words.at
    if event == "send_failed":
        fields["outcome"] = "unknown"
    write.record(event, now_ns + MS, words, **fields)
    return now_ns + MS


def _own(write: _Writer, _: str, words: _Words, now_ns: int) -> int:
    write.record("acquired", now_ns + MS, words, period=words.numbers[0])
    write.record("positioned", now_ns + 2 * MS, words, period=words.numbers[0], offset=words.at)
    return now_ns + 2 * MS


def _sent(write: _Writer, _: str, words: _Words, now_ns: int) -> int:
    for offset in words.numbers:
        now_ns += MS
        write.record("sent", now_ns, words, offset=offset, **_message(words, offset))
    return now_ns


def _message(words: _Words, offset: int) -> dict[str, Any]:
    key = words.keys[offset % len(words.keys)] if words.keys else None
    return {"key": None if "null" in words.flags else key, "msg_id": f"id-{words.fields.get('queue_id', 0)}-{offset}"}


def _call(write: _Writer, _: str, words: _Words, now_ns: int) -> int:
    period, *offsets = words.numbers
    status = next((STATUSES[flag] for flag in words.flags if flag in STATUSES), "SUCCESS")
    ordering = {"by-key": "key", "concurrent": "none"}.get(next(iter(words.flags & {"by-key", "concurrent"}), ""))
    fields: dict[str, Any] = {"period": period, "status": status} | ({"ordering": ordering} if ordering else {})
    begin_ns = now_ns - words.earlier_ns
    for place, offset in enumerate(offsets):
        if place == 0 or "batch" not in words.flags:
            begin_ns = now_ns - words.earlier_ns
            now_ns = max(now_ns, begin_ns + words.took_ns)
            begin_ns = now_ns + MS if "backwards" in words.flags else begin_ns
        times = {"begin_mono_ns": begin_ns, "begin_wall_ms": EPOCH_MS + begin_ns // MS, "reconsume_times": 0}
        write.record("handled", now_ns, words, offset=offset, **fields, **_message(words, offset), **times)
    return now_ns


_SHAPES: dict[str, Callable[[_Writer, str, _Words, int], int]] = {"own": _own, "sent": _sent, "call": _call}
