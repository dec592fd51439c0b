"""Commits, stored offsets, ids and keys: what (d) finds, and what a report says that its traces cannot show."""

import json
from pathlib import Path
from typing import Any

import pytest

from lockstep.order import Cause, Kind, Verdict, check_files, check_traces
from lockstep.order.report import Findings
from tests.order.stories import Story, kinds


def owned(client: str = "a") -> Story:
    story = Story()
    story.own(client, 1, 0)
    return story


def test_a_stored_offset_that_goes_back_is_found_and_after_a_reset_is_not() -> None:
    """The broker's own word."""
    for reset in (False, True):
        story = owned()
        story.handle("a", 1, 0, 1)
        story.record("broker", "stored", offset=2)
        if reset:
            story.record("a", "reset", offset=1)
        story.record("broker", "stored", offset=1)
        assert kinds(story.report()) == ([] if reset else [Kind.STORED_REGRESS])


def test_a_commit_beyond_the_end_of_the_queue_is_found() -> None:
    """Producers sent three messages, and offset 9 is committed."""
    story = Story()
    story.sent(0, 1, 2)
    story.own("a", 1, 0)
    story.handle("a", 1, 0, 1, 2)
    story.commit("a", 1, 9)
    assert kinds(story.report()) == [Kind.COMMIT_BEYOND_END]


def test_a_commit_before_the_handling_is_found() -> None:
    """The messages are handled later: had the process died between, they would be lost."""
    story = owned()
    story.handle("a", 1, 0)
    story.record("a", "committed", period=1, offset=3)
    story.handle("a", 1, 1, 2)
    assert kinds(story.report()) == [Kind.COMMIT_UNHANDLED]


def test_one_id_at_two_offsets_is_a_retry_only_if_nothing_of_its_key_is_between() -> None:
    """A producer that tries again lets no message of the key pass; nor does a retry change the key."""
    story = owned()
    records = story.handle("a", 1, 0, 1, 2)
    records[2]["msg_id"] = records[1]["msg_id"]
    assert (kinds(story.report()), story.report().duplicates) == ([], {Cause.PRODUCER_RETRY: 1})
    records[2]["msg_id"] = records[0]["msg_id"]
    assert kinds(story.report()) == [Kind.REPEATED_ID]
    records[1]["msg_id"], records[2]["msg_id"] = "one", "one"
    records[2]["key"] = "L"
    assert kinds(story.report()) == [Kind.REPEATED_ID]


def test_two_answered_sends_with_one_id_are_no_retry() -> None:
    """The producer had an answer for both."""
    story = Story()
    story.sent(0, 1)
    story.own("a", 1, 0)
    for record in [*story.traces["producer"], *story.handle("a", 1, 0, 1)]:
        record["msg_id"] = "same"
    assert kinds(story.report()) == [Kind.REPEATED_ID]


def test_another_message_than_was_sent_is_found() -> None:
    """The id handled at an offset is not the one that was sent there."""
    story = Story()
    story.sent(*range(8))
    story.own("a", 1, 0)
    story.handle("a", 1, *range(8))[3]["msg_id"] = "stranger"
    assert kinds(story.report()) == [Kind.WRONG_MESSAGE]


def test_a_message_that_was_never_sent_is_found_and_at_the_end_it_is_undecided() -> None:
    """Behind the last answered send it may be a killed producer's; far behind it, or between, it is nobody's."""
    for offset, expected, undecided in ((3, [], 1), (7, [Kind.NEVER_SENT], 0)):
        story = Story()
        story.sent(0, 1, 2)
        story.own("a", 1, 0)
        story.handle("a", 1, 0, 1, 2, offset)
        report = story.report()
        assert (kinds(report), len(report.undecided)) == (expected, undecided)


def test_one_key_in_two_queues_is_found_and_a_new_queue_explains_it() -> None:
    """The number of queues did not change, or it did: queue 1 is first seen ten seconds later."""
    for later_ms, expected in ((0, [Kind.KEY_IN_TWO_QUEUES]), (10_000, [])):
        story = owned()
        if not later_ms:
            story.record("a", "acquired", period=2, queue_id=1)
        story.handle("a", 1, 0)
        story.now_ms += later_ms
        if later_ms:
            story.record("a", "acquired", period=2, queue_id=1)
        story.record("a", "positioned", period=2, queue_id=1, offset=0)
        record = story.handle("a", 2, 0)[0]
        record |= {"queue_id": 1, "msg_id": "other"}
        assert kinds(story.report()) == expected


def test_members_of_a_concurrent_group_may_repeat_and_commit_back_in_a_rebalance() -> None:
    """Both own the queue for a moment; in one period a repeat of what succeeded is still found."""
    story = Story()
    story.own("a", 1, 0)
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


def test_a_call_across_two_resets_is_no_violation() -> None:
    """It began before the offset was moved forward and back, and ends after both."""
    story = owned()
    story.handle("a", 1, 0, 1, 2)
    story.commit("a", 1, 3)
    begin_ms = story.now_ms
    story.record("a", "dropped", period=1, why="reset")
    story.record("a", "reset", offset=6)
    story.record("a", "reset", offset=1)
    call = story.handle("a", 1, 3)[0]
    call["begin_mono_ns"] = begin_ms * 1_000_000
    story.own("a", 2, 1)
    story.handle("a", 2, 1, 2, 3, 4, 5, 6)
    story.commit("a", 2, 7)
    report = story.report()
    assert (kinds(report), report.lost) == ([], 0)


def test_a_brokers_reset_counts_around_its_wall_clock() -> None:
    """It has no other clock, and that one is 500 ms ahead: the new owner seems to have begun before the crash."""
    story = Story()
    story.sent(*range(5))
    story.own("a", 1, 0)
    story.handle("a", 1, 0, 1, 2)
    story.commit("a", 1, 3)
    reset = story.record("broker", "reset", offset=1)
    del reset["client_id"], reset["mono_ns"]
    reset["wall_ms"] += 500
    story.own("b", 1, 1)
    story.handle("b", 1, 1, 2, 3, 4)
    story.now_ms += 1_000
    story.commit("b", 1, 5)
    report = story.report()
    assert (kinds(report), report.lost) == ([], 0)


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
