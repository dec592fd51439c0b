"""Each kind of violation is found in a minimal trace, by its name, with the records that prove it."""

from lockstep.order import Kind
from tests.order.stories import SUSPEND, Story, kinds, owned


def test_a_key_handled_out_of_order_is_found() -> None:
    """A first handling of offset 1 after offset 2 of one key breaks rule (a); both records are the evidence."""
    story = owned()
    records = story.handle("a", 1, 0, 2, 1)
    report = story.report()
    assert kinds(report) == [Kind.NONMONOTONIC_POLL]
    assert report.violations[0].evidence == (records[1], records[2])
    assert "offset 1" in report.violations[0].sentence
    assert not report.in_order


def test_3_2_1_2_3_is_not_in_order() -> None:
    """The other history that a subsequence test lets pass."""
    story = Story()
    story.own("a", 1, 1)
    story.handle("a", 1, 3, 2, 1, 2, 3)
    report = story.report()
    assert report.violation_counts[Kind.NONMONOTONIC_POLL] == 2


def test_different_keys_owe_each_other_nothing() -> None:
    """Rule (a) is by key: offset 1 of one key may come after offset 2 of another."""
    story = owned()
    story.handle("a", 1, 0, 2, 1, 3, keys="XY")
    assert kinds(story.report()) == []


def test_a_repeat_without_a_failure_is_found() -> None:
    """In one period a repeat after a success is a violation."""
    story = owned()
    records = story.handle("a", 1, 0, 1, 1)
    report = story.report()
    assert kinds(report) == [Kind.UNEXPLAINED_REPEAT]
    assert report.violations[0].evidence == (records[1], records[2])


def test_a_takeover_below_the_stored_commit_is_found() -> None:
    """A new period that begins below what was stored repeats what nobody may repeat; the commit is the evidence."""
    story = owned()
    story.handle("a", 1, 0, 1, 2, 3)
    commit = story.commit("a", 1, 3)
    story.own("b", 1, 1)
    repeat = story.handle("b", 1, 1, 2, 3, 4)[0]
    report = story.report()
    assert kinds(report) == [Kind.REWIND_BELOW_COMMIT]
    assert report.violations[0].evidence == (commit, repeat)


def test_a_stored_record_outweighs_the_grace() -> None:
    """Where the broker's own word exists, a commit counts from that record on, and only then."""
    for is_stored, expected in ((True, [Kind.REWIND_BELOW_COMMIT]), (False, [])):
        story = owned()
        story.handle("a", 1, 0, 1, 2)
        story.record("broker", "stored", offset=0)
        story.record("a", "committed", period=1, offset=3)
        if is_stored:
            story.record("broker", "stored", offset=3)
        story.own("b", 1, 1)
        story.handle("b", 1, 1, 2, 3)
        assert kinds(story.report()) == expected


def test_a_stale_owner_that_repeats_is_found() -> None:
    """An owner that was replaced and repeats what its successor handled has no right to."""
    story = owned()
    story.handle("a", 1, 0, 1)
    story.own("b", 1, 2)
    story.handle("b", 1, 2, 3)
    story.handle("a", 1, 2, 3)
    report = story.report()
    assert kinds(report) == [Kind.STALE_REPEAT]
    assert report.violations[0].evidence[-1]["client_id"] == "a"


def test_two_owners_at_once_are_found() -> None:
    """A listener that still runs when the new owner's begins is an overlap, whoever ends first."""
    story = owned()
    slow = story.handle("a", 1, 0)[0]
    story.own("b", 1, 0)
    quick = story.handle("b", 1, 0)[0]
    slow["mono_ns"] = quick["begin_mono_ns"] + 1  # a's call ended inside b's
    story.traces["a"].sort(key=lambda record: record["mono_ns"])
    report = story.report()
    assert kinds(report) == [Kind.OVERLAP]
    assert report.violations[0].evidence == (slow, quick)

    slow["mono_ns"] = quick["mono_ns"] + 1  # and now after b's
    report = story.report()
    assert Kind.OVERLAP in kinds(report)


def test_overlap_is_not_judged_across_machines() -> None:
    """Monotonic clocks of two machines have nothing to say about each other."""
    story = Story()
    story.hosts["b"] = "other"
    story.own("a", 1, 0)
    story.handle("a", 1, 0)
    story.own("b", 1, 1)
    story.handle("b", 1, 1)[0]["begin_mono_ns"] = 0
    assert kinds(story.report()) == []


def test_a_message_below_a_commit_that_nobody_handled_is_lost() -> None:
    """A commit of 3 with offset 1 never handled is a loss, with or without a producer's trace."""
    for with_producer in (True, False):
        story = Story()
        if with_producer:
            story.sent(0, 1, 2)
        story.own("a", 1, 0)
        story.handle("a", 1, 0, 2, keys="XYZ")
        commit = story.commit("a", 1, 3)
        report = story.report()
        assert kinds(report) == [Kind.LOST_WRITE]
        assert report.violations[0].evidence == (commit,)
        assert report.lost == 1


def test_a_message_whose_attempts_all_failed_is_lost_when_committed() -> None:
    """A suspended attempt is no handling: going on behind it loses the message."""
    story = owned()
    story.handle("a", 1, 0, status=SUSPEND)
    story.handle("a", 1, 1)
    story.commit("a", 1, 2)
    report = story.report()
    assert kinds(report) == [Kind.LOST_WRITE]
    assert "attempts that failed" in report.violations[0].sentence


def test_a_commit_that_goes_back_is_found() -> None:
    """Without a reset a commit never goes back; both commits are the evidence."""
    story = owned()
    story.handle("a", 1, 0, 1)
    commits = story.commit("a", 1, 2), story.commit("a", 1, 1)
    report = story.report()
    assert kinds(report) == [Kind.COMMIT_REGRESS]
    assert report.violations[0].evidence == commits
