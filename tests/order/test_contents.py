"""Commits, stored offsets, ids and keys: what (d) finds, and what a report says that its traces cannot show."""

import json
from pathlib import Path
from typing import Any

import pytest

from lockstep.order import Cause, Kind, Verdict, check_files, check_traces
from lockstep.order.report import Findings
from tests.order.stories import Story, kinds, owned


def test_members_of_a_concurrent_group_may_repeat_and_commit_back_in_a_rebalance() -> None:
    """Both own the queue for a moment; in one period a repeat of what succeeded is still found."""
    story = owned()
    story.handle("a", 1, 0, 1, 2, 3, ordering="none")
    story.own("b", 1, 2)
    story.handle("b", 1, 2, 3, 4, ordering="none")
    story.record("b", "committed", period=1, offset=5)
    story.handle("a", 1, 4, ordering="none")
    story.record("a", "committed", period=1, offset=4)
    assert kinds(story.report()) == []
    story.handle("a", 1, 4, ordering="none")
    assert kinds(story.report()) == [Kind.UNEXPLAINED_REPEAT]


def test_commits_into_a_partition_are_no_rewind() -> None:
    """The old owner lives on, cut off, and loses the queue without giving it up: its last commits never arrived."""
    story = owned()
    story.handle("a", 1, 0, 1)
    story.commit("a", 1, 2)
    story.handle("a", 1, 2, 3)
    story.commit("a", 1, 4)
    story.now_ms += 60_000
    story.own("b", 1, 2)
    story.handle("b", 1, 2, 3, 4)
    assert story.report().verdict is Verdict.UNDECIDED  # the old owner may have died, its commits stored
    story.record("a", "lock_lost", period=1)
    report = story.report()
    assert (kinds(report), report.verdict, report.duplicates) == ([], Verdict.IN_ORDER, {Cause.TAKEOVER: 2})


def test_a_brokers_reset_to_the_beginning_does_not_move_its_clock() -> None:
    """A queue without commits was begun at 0 long before: its owner did not read that from the broker's record."""
    story = Story()
    story.sent(*range(5))
    story.record("a", "acquired", period=2, queue_id=1)
    story.record("a", "positioned", period=2, queue_id=1, offset=0)
    story.own("a", 1, 0)
    story.now_ms += 20_000
    story.handle("a", 1, 0, 1, 2)
    story.commit("a", 1, 3)
    story.now_ms += 5_000
    resets = [story.record("broker", "reset", offset=1), story.record("broker", "reset", queue_id=1, offset=0)]
    story.own("b", 1, 1)
    story.handle("b", 1, 1, 2, 3, 4)
    story.now_ms += 1_000
    story.commit("b", 1, 5)
    for reset in resets:
        del reset["client_id"], reset["mono_ns"]
    report = story.report()
    assert (kinds(report), report.lost) == ([], 0)


def test_a_message_that_waited_for_its_time_was_sent() -> None:
    """Nobody knows its offset before it is handled; its send did not fail."""
    story = owned()
    story.sent(0, 1, 3)
    later = story.record("producer", "send_failed", outcome="later", key="K", msg_id="id-2", group="p")
    story.handle("a", 1, 0, 1, 2, 3)
    report = story.report()
    assert (kinds(report), report.send_failures) == ([], {})
    later["msg_id"] = "id-9"
    assert kinds(story.report()) == [Kind.NEVER_SENT]


def test_a_report_says_what_its_traces_cannot_show() -> None:
    """No producer, no grants, no word of the broker: a sentence each."""
    story = Story()
    story.handle("a", 1, 0, 1)
    story.record("a", "committed", period=1, offset=2)
    report = story.report()
    text = " ".join(report.unseen)
    assert report.in_order
    for part in ("no producer trace of orders", "no record of a grant in group g", "no record of what brokers stored"):
        assert part in text


def test_records_of_wrong_types_are_named_and_nothing_else_is_harmed() -> None:
    """Every field of a known event is checked before the rules see it."""
    story = owned()
    good = story.handle("a", 1, 0)[0]
    wrong: list[dict[str, Any]] = [
        {"offset": "0"},
        {"offset": -1},
        {"queue_id": 1.5},
        {"wall_ms": None},
        {"key": 5},
        {"mono_ns": True},
        {"mono_ns": 10**25},
        {"begin_mono_ns": -(10**400)},
        {"wall_ms": 10**13},
        {"offset": 1 << 63},
        {"event": "stored", "begin_mono_ns": "0"},
    ]
    strange: list[Any] = [[], "text", {"event": 3}]
    report = check_traces([story.traces["a"] + [{**good, **one} for one in wrong] + strange])
    assert (report.broken_lines, report.attempts, kinds(report)) == (14, 1, [])
    assert report.verdict is Verdict.UNDECIDED
    assert [line.why for line in report.broken[:2]] == [
        "offset must be integer",
        "offset is -1, and must not be negative",
    ]


@pytest.mark.parametrize(("name", "value"), [("mono_ns", 10**25), ("wall_ms", 10**13)])
def test_lines_with_times_of_no_clock_are_counted(tmp_path: Path, name: str, value: int) -> None:
    """Also behind lines that differ in their times alone, which are not decoded at the first reading."""
    story = owned()
    records = story.handle("a", 1, 0, 1, 2, 3)
    clock = {"v": 2, "machine": "m", "boot": "b", "client_id": "a", "group": "g"}
    times = [{"event": one["event"], "wall_ms": one["wall_ms"], "mono_ns": one["mono_ns"]} for one in records]
    lines = [time | clock | one for time, one in zip(times, records, strict=True)]
    lines[2][name] = value
    path = tmp_path / "trace.jsonl"
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines), encoding="utf-8")
    report = check_files([path])
    assert [(line.number, line.why.partition(" from")[0]) for line in report.broken] == [(3, f"{name} must be")]
    assert report.attempts == 3


def test_lines_of_any_bytes_are_counted(tmp_path: Path) -> None:
    """Bytes that are no UTF-8, deep nesting, a number too long, two records in a line."""
    story = owned()
    story.handle("a", 1, 0)
    records = [json.dumps(record).encode() for record in story.traces["a"]]
    strange = [
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"event":"handled","wall_ms":' + b"9" * 5_000 + b"}",
        b"",
        b"{} {}",
        b"null",
    ]
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"\n".join([records[0], *strange, *records[1:]]) + b"\n")
    report = check_files([path])
    assert (report.broken_lines, report.handled) == (len(strange), 1)


def test_each_kind_keeps_its_first_its_worst_and_its_last() -> None:
    """300 findings of one kind do not hide another one, and each has the command that shows its story."""
    story = owned()
    story.handle("a", 1, *reversed(range(300)))
    story.record("a", "dropped", period=1, why="rebalance")
    story.now_ms += 1
    story.handle("a", 1, 300)
    report = story.report()
    examples = report.examples()
    assert [(word, found.kind) for word, found in examples] == [
        ("first", Kind.NONMONOTONIC_POLL),
        ("worst and last", Kind.NONMONOTONIC_POLL),
        ("the only one", Kind.STALE_OWNER),
    ]
    assert examples[1][1].story_command(["a b"]) == "lockstep trace show 'a b' --queue orders/b/0 --group g --around 0"


@pytest.mark.parametrize("worst", [0, 50, 98, 99, 100, 200, 299])
def test_the_worst_finding_is_kept_wherever_it_is(worst: int) -> None:
    """300 findings of a kind keep 100 with their evidence: the first ones, the worst and the last."""
    findings = Findings()
    for number in range(300):
        findings.violation(Kind.OVERLAP, f"{number}", size=2 if number == worst else 1)
    kept = [int(found.sentence) for found in findings.kept(undecided=False)]
    assert (len(kept), kept[0], kept[-1], worst in kept) == (100, 0, 299, True)
    assert findings.violation_counts[Kind.OVERLAP] == 300
