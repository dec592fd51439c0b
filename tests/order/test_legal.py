"""No false alarm: what RocketMQ's rules allow is a duplicate with a cause, or nothing at all."""

import json
from pathlib import Path

import pytest

from lockstep.order import Cause, Verdict, check_files
from tests.order.stories import SUSPEND, Story, kinds, owned


def test_a_plain_takeover() -> None:
    """A new owner that begins at the last stored commit repeats what was handled after it: a takeover's duplicates."""
    story = Story()
    story.sent(*range(5))
    story.own("a", 1, 0)
    story.handle("a", 1, 0, 1)
    story.commit("a", 1, 2)
    story.handle("a", 1, 2, 3)
    story.now_ms += 10_000
    story.own("b", 1, 2)
    story.handle("b", 1, 2, 3, 4)
    report = story.report()
    assert kinds(report) == []
    assert report.duplicates == {Cause.TAKEOVER: 2}
    assert (report.sent, report.handled, report.attempts, report.lost) == (5, 5, 7, 0)
    assert report.in_order


def test_the_handover_lasts_from_the_last_sign_of_life_to_the_first_position() -> None:
    """A killed owner and a lock of 10 s make a handover of 10 s, and the report names the queue and both owners."""
    story = owned()
    story.handle("a", 1, 0)
    story.now_ms += 10_000
    story.own("b", 1, 0)
    handover = story.report().longest_handover
    assert handover is not None
    assert handover.duration_ms == pytest.approx(10_002)
    assert (handover.from_client_id, handover.to_client_id, handover.queue.queue_id) == ("a", "b", 0)


def test_a_killed_owner_whose_last_commit_never_left() -> None:
    """A commit recorded just before the death may not be stored: beginning below it is right."""
    story = owned()
    story.handle("a", 1, 0, 1, 2)
    story.record("a", "committed", period=1, offset=3)
    story.now_ms += 10_000
    story.own("b", 1, 0)
    story.handle("b", 1, 0, 1, 2)
    story.commit("b", 1, 2)
    report = story.report()
    assert kinds(report) == []
    assert report.duplicates == {Cause.TAKEOVER: 3}


def test_a_suspended_message_comes_again() -> None:
    """Repeats after a suspension are duplicates caused by it, as often as it is suspended."""
    story = owned()
    story.handle("a", 1, 0)
    story.handle("a", 1, 1, status=SUSPEND)
    story.handle("a", 1, 1, status=SUSPEND)
    story.handle("a", 1, 1, 2)
    story.commit("a", 1, 3)
    report = story.report()
    assert kinds(report) == []
    assert report.duplicates == {Cause.SUSPEND: 2}


def test_a_suspended_batch_comes_again_as_a_whole() -> None:
    """A call with several messages is suspended as one; it comes again from its first message."""
    story = owned()
    story.handle("a", 1, 0, 1, 2, batch=True)
    story.handle("a", 1, 3, 4, 5, batch=True, status=SUSPEND)
    story.handle("a", 1, 3, 4, 5, batch=True)
    story.handle("a", 1, 6, 7, batch=True)
    story.commit("a", 1, 8)
    report = story.report()
    assert kinds(report) == []
    assert report.duplicates == {Cause.SUSPEND: 3}


def test_a_rollback_brings_back_everything_since_the_last_commit() -> None:
    """Manual commit: after ROLLBACK all that was not committed comes again, and nothing else."""
    story = owned()
    story.handle("a", 1, 0)
    story.handle("a", 1, 1, status="COMMIT")
    story.handle("a", 1, 2, 3)
    story.handle("a", 1, 4, status="ROLLBACK")
    story.handle("a", 1, 2, 3)
    story.handle("a", 1, 4, status="COMMIT")
    story.commit("a", 1, 5)
    report = story.report()
    assert kinds(report) == []
    assert report.duplicates == {Cause.SUSPEND: 3}


def test_a_dead_letter_is_handled() -> None:
    """A poison message that went to the dead-letter topic is not lost."""
    story = Story()
    story.sent(0, 1)
    story.own("a", 1, 0)
    story.handle("a", 1, 0, status=SUSPEND)
    story.handle("a", 1, 0, status=SUSPEND)
    story.record("a", "dead_lettered", offset=0, key="K", msg_id="id-0")
    story.handle("a", 1, 1)
    story.commit("a", 1, 2)
    report = story.report()
    assert (kinds(report), report.lost, report.dead_lettered) == ([], 0, 1)


def test_a_new_period_of_the_same_client() -> None:
    """Dropped and won back: a new period may begin at the stored commit, and it is no handover."""
    story = owned()
    story.handle("a", 1, 0, 1)
    story.record("a", "lock_lost", period=1)
    story.record("a", "dropped", period=1, why="rebalance")
    story.own("a", 2, 0)
    story.handle("a", 2, 0, 1, 2)
    report = story.report()
    assert (kinds(report), report.handovers) == ([], ())


def test_an_old_owner_may_finish_its_own_rewind() -> None:
    """Repeats that a period's own takeover explains stay explained when a newer period is already born."""
    story = owned()
    story.handle("a", 1, 0, 1, 2)
    story.own("b", 1, 0)
    story.handle("b", 1, 0)
    story.record("a", "acquired", period=2)
    story.handle("b", 1, 1)
    assert kinds(story.report()) == []


def test_a_reset_back_explains_repeats_and_a_lower_commit() -> None:
    """Offsets moved back on purpose: repeats are caused by the reset, and the commit may go back to it."""
    story = owned()
    story.handle("a", 1, 0, 1, 2)
    story.commit("a", 1, 3)
    story.record("a", "dropped", period=1, why="reset")
    story.record("a", "reset", offset=1)
    story.record("a", "committed", period=1, offset=1)
    story.own("a", 2, 1)
    story.handle("a", 2, 1, 2, 3)
    story.commit("a", 2, 4)
    report = story.report()
    assert kinds(report) == []
    assert report.duplicates == {Cause.RESET: 2}


def test_a_reset_forward_skips_and_loses_nothing() -> None:
    """Messages passed over by a reset are counted as skipped."""
    story = Story()
    story.sent(*range(6))
    story.own("a", 1, 0)
    story.handle("a", 1, 0)
    story.commit("a", 1, 1)
    story.record("a", "reset", offset=4)
    story.own("a", 2, 4)
    story.handle("a", 2, 4, 5)
    story.commit("a", 2, 6)
    report = story.report()
    assert (kinds(report), report.lost, report.skipped) == ([], 0, 3)


def test_a_producers_retry_is_one_message_at_two_offsets() -> None:
    """Two offsets with one msg_id are a duplicate caused by the producer."""
    story = owned()
    for record in story.handle("a", 1, 0, 1):
        record["msg_id"] = "same"
    report = story.report()
    assert (kinds(report), report.duplicates) == ([], {Cause.PRODUCER_RETRY: 1})


def test_an_emptied_store_begins_a_new_history() -> None:
    """After a restart offset 0 is another message: no repeat, no regress, and the old store's unhandled are counted."""
    story = Story()
    story.sent(0, 1, 2)
    story.own("a", 1, 0)
    story.handle("a", 1, 0, 1)
    story.commit("a", 1, 2)
    story.record("test", "broker_restarted", broker="b")
    story.sent(0, 1)
    story.record("a", "dropped", period=1, why="offset illegal")
    story.record("a", "reset", offset=0)
    story.own("a", 2, 0)
    for record in story.handle("a", 2, 0, 1):
        record["msg_id"] += "-new"
    story.commit("a", 2, 1)
    report = story.report()
    assert kinds(report) == []
    assert (report.sent, report.handled, report.lost, report.emptied, report.duplicates) == (5, 4, 0, 1, {})


def test_a_reset_by_a_period_that_outlived_the_store_passes_over_the_new_one() -> None:
    """The broker's rule sets it to the new store's end: what nobody had handled up to there is skipped, not lost."""
    story = Story()
    story.sent(*range(8))
    story.own("a", 1, 0)
    story.handle("a", 1, *range(8))
    story.commit("a", 1, 8)
    story.record("test", "broker_restarted", broker="b")
    story.sent(*range(4))
    story.own("b", 1, 0)
    for record in story.handle("b", 1, 0):
        record["msg_id"] += "-new"
    story.commit("b", 1, 1)
    story.record("b", "dropped", period=1, why="allocated to another consumer")
    story.record("a", "reset", period=1, offset=4)
    story.record("a", "committed", period=1, offset=4)
    story.own("a", 2, 4)
    story.sent(4)
    for record in story.handle("a", 2, 4):
        record["msg_id"] += "-new"
    story.commit("a", 2, 5)
    report = story.report()
    assert kinds(report) == []
    assert (report.sent, report.handled, report.lost, report.skipped) == (13, 10, 0, 3)


def test_what_lies_before_the_groups_start_is_not_its_loss() -> None:
    """A group that begins at offset 2 owes nothing for what came before; the report counts it."""
    story = Story()
    story.sent(0, 1, 2)
    story.own("a", 1, 2)
    story.handle("a", 1, 2)
    report = story.report()
    assert (report.lost, report.before_start) == (0, 2)


def test_wall_clocks_may_jump_within_a_machine() -> None:
    """Histories of one machine merge by its monotonic clock; an adjusted wall clock changes nothing."""
    story = owned()
    story.handle("a", 1, 0, 1)
    story.commit("a", 1, 2)
    story.own("b", 1, 2)
    story.handle("b", 1, 2, 3)
    for record in story.traces["b"]:
        record["wall_ms"] -= 3_600_000
    assert kinds(story.report()) == []


def write(path: Path, records: list[dict[str, object]], tail: str = "") -> Path:
    path.write_text("".join(json.dumps(record) + "\n" for record in records) + tail, encoding="utf-8")
    return path


def test_a_torn_last_line_is_counted(tmp_path: Path) -> None:
    """A killed process tears its last line; the rest of its file counts in full."""
    story = owned()
    story.handle("a", 1, 0, 1)
    report = check_files([write(tmp_path / "a.jsonl", story.traces["a"], '{"event":"handled","offs')])
    assert (report.torn_lines, report.handled, kinds(report)) == (1, 2, [])


def test_a_broken_line_is_counted_and_named(tmp_path: Path) -> None:
    """A broken line that others follow is not torn: file, number and reason are named, and nothing counts as proved."""
    story = owned()
    story.handle("a", 1, 0)
    tail = '{"event":\n{"event":"handled","wall_ms":1}\n{"event":"breath","wall_ms":1,"mono_ns":1}\n'
    path = write(tmp_path / "a.jsonl", story.traces["a"], tail)
    report = check_files([path])
    assert [(line.path, line.number) for line in report.broken] == [(str(path), 4), (str(path), 5)]
    assert [line.why for line in report.broken] == ["not JSON", "group is missing"]
    assert (report.broken_lines, report.torn_lines, report.verdict) == (2, 0, Verdict.UNDECIDED)


def test_a_record_behind_a_torn_line_is_read(tmp_path: Path) -> None:
    """A killed process tore its last line, and its successor went on in the same file."""
    story = owned()
    story.handle("a", 1, 0)
    path = write(tmp_path / "a.jsonl", story.traces["a"], '{"event":"handled","offs')
    with path.open("a", encoding="utf-8") as file:
        file.writelines(json.dumps(record, separators=(",", ":")) + "\n" for record in story.handle("a", 1, 1))
    report = check_files([path])
    assert (report.torn_lines, report.broken_lines, report.handled, report.in_order) == (1, 0, 2, True)


def test_an_empty_file_is_no_pass(tmp_path: Path) -> None:
    """A process that was killed before its first record left an empty file: there is nothing to judge."""
    report = check_files([str(write(tmp_path / "a.jsonl", []))])
    assert (report.handled, report.verdict) == (0, Verdict.UNDECIDED)
    assert any("nothing to judge" in sentence for sentence in report.unseen)


def test_the_report_reads_as_a_table() -> None:
    """A person reads counts with causes, and a sentence for each violation."""
    story = owned()
    story.handle("a", 1, 0, 0)
    text = "\n".join(story.report().lines())
    assert "unexplained-repeat: a (period 1) went back from offset 1 to 0" in text
    assert "keys checked" in text


def _told_by_the_broker(story: Story, offset: int, group: str = "g") -> None:
    """After a crash: no client, no clock but the wall's."""
    record = story.record("broker", "reset", offset=offset, group=group)
    del record["client_id"], record["mono_ns"]


def test_commits_that_a_killed_broker_lost_are_no_violation() -> None:
    """It says where the group stands when it is back: what is handled again from there on has a cause."""
    story = Story()
    story.sent(*range(6))
    story.own("a", 1, 0)
    story.handle("a", 1, 0, 1, 2, 3)
    story.commit("a", 1, 4)
    _told_by_the_broker(story, 1)
    story.own("b", 1, 1)
    story.handle("b", 1, 1, 2, 3, 4, 5)
    story.commit("b", 1, 6)
    report = story.report()
    assert (kinds(report), report.lost, report.duplicates) == ([], 0, {Cause.RESET: 3})


def test_a_group_that_a_broker_alone_knows_takes_no_part() -> None:
    """It tells of all its groups, and who is judged it does not know: nothing is missed by those without a trace."""
    story = Story()
    story.sent(*range(3))
    story.own("a", 1, 0)
    _told_by_the_broker(story, 1, group="another")
    story.handle("a", 1, 0, 1, 2)
    story.commit("a", 1, 3)
    report = story.report()
    assert (kinds(report), report.lost, report.handled, report.queues) == ([], 0, 3, 1)
