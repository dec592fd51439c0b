"""Calls that keep order by key, or none: what they may do raises no alarm, and what they may not is found."""

from hypothesis import given

from lockstep.order import Cause, Kind
from tests.order.key_histories import key_histories
from tests.order.stories import SUSPEND, Story, kinds


def of_a_period() -> Story:
    story = Story()
    story.sent(*range(6))
    story.own("a", 1, 0)
    return story


def test_a_parked_key_comes_again_alone() -> None:
    """Offset 0 of K fails while L goes on; its retry after theirs is a suspension's, in whatever queue order."""
    story = of_a_period()
    story.handle("a", 1, 0, keys="KL", status=SUSPEND, ordering="key")
    story.handle("a", 1, 1, 3, 5, keys="KL", ordering="key")
    story.handle("a", 1, 0, keys="KL", status=SUSPEND, ordering="key")
    story.handle("a", 1, 0, 2, 4, keys="KL", ordering="key")
    story.commit("a", 1, 6)
    report = story.report()
    assert (kinds(report), report.duplicates, report.lost) == ([], {Cause.SUSPEND: 2}, 0)


def test_a_failed_call_of_several_comes_again_as_a_whole() -> None:
    """Other keys' calls between its two attempts are none of its business."""
    story = of_a_period()
    story.handle("a", 1, 0, 2, 4, keys="KL", status=SUSPEND, batch=True, ordering="key")
    story.handle("a", 1, 1, 3, keys="KL", batch=True, ordering="key")
    story.handle("a", 1, 0, 2, 4, keys="KL", batch=True, ordering="key")
    report = story.report()
    assert (kinds(report), report.duplicates) == ([], {Cause.SUSPEND: 3})


def test_a_takeover_repeats_what_lay_above_the_commit() -> None:
    """Of each key from the commit on, those with holes between them too."""
    story = of_a_period()
    story.handle("a", 1, 1, 3, 5, keys="KL", ordering="key")
    story.handle("a", 1, 0, keys="KL", ordering="key")
    story.commit("a", 1, 2)
    story.now_ms += 60_000
    story.own("b", 1, 2)
    story.handle("b", 1, 3, 2, 5, 4, keys="KL", ordering="key")
    report = story.report()
    assert (kinds(report), report.duplicates, report.lost) == ([], {Cause.TAKEOVER: 2}, 0)


def test_a_call_that_overlaps_with_another_owners_behind_a_newer_call_is_found() -> None:
    """By key the newer calls of its own owner may have ended before it: the last one of the other owner counts."""
    story = of_a_period()
    (last,) = story.handle("a", 1, 0, keys="KL", ordering="key")
    story.own("b", 1, 1)
    story.handle("b", 1, 1, keys="KL", ordering="key")
    (slow,) = story.handle("b", 1, 2, keys="KL", ordering="key")
    assert kinds(story.report()) == []
    slow["begin_mono_ns"] = last["mono_ns"] - 1
    report = story.report()
    assert Kind.OVERLAP in kinds(report)
    found = next(one for one in report.violations if one.kind is Kind.OVERLAP)
    assert found.evidence == (last, slow)


def test_a_repeat_of_a_key_needs_a_failure_of_its_own() -> None:
    """That another key failed is no reason."""
    story = of_a_period()
    story.handle("a", 1, 0, keys="KL", ordering="key")
    story.handle("a", 1, 1, keys="KL", status=SUSPEND, ordering="key")
    story.handle("a", 1, 0, keys="KL", ordering="key")
    report = story.report()
    assert (kinds(report), report.duplicates) == ([Kind.UNEXPLAINED_REPEAT], {Cause.UNEXPLAINED: 1})


def test_a_new_period_below_the_commit_is_found() -> None:
    """Each message of it, for each key begins for itself; what lies above the commit is a takeover's."""
    story = of_a_period()
    story.handle("a", 1, 0, 1, 3, keys="KL", ordering="key")
    story.commit("a", 1, 2)
    story.own("b", 1, 0)
    story.handle("b", 1, 1, 0, 3, keys="KL", ordering="key")
    report = story.report()
    assert report.violation_counts == {Kind.REWIND_BELOW_COMMIT: 2}
    assert report.duplicates == {Cause.UNEXPLAINED: 2, Cause.TAKEOVER: 1}


def test_without_order_every_message_is_its_own() -> None:
    """A key's messages in any order, overlapping owners, a retry after others; but no repeat of a success."""
    story = of_a_period()
    story.handle("a", 1, 4, 2, ordering="none")
    story.handle("a", 1, 0, status="RECONSUME_LATER", ordering="none")
    story.handle("a", 1, 1, ordering="none")
    story.handle("a", 1, 0, ordering="none")
    report = story.report()
    assert (kinds(report), report.duplicates) == ([], {Cause.SUSPEND: 1})
    story.handle("a", 1, 4, ordering="none")
    assert kinds(story.report()) == [Kind.UNEXPLAINED_REPEAT]


def test_what_is_sent_back_is_taken_care_of() -> None:
    """It lies in the retry topic: a commit above it is no loss."""
    story = of_a_period()
    story.handle("a", 1, 0, status="RECONSUME_LATER", ordering="none")
    story.record("a", "sent_back", period=1, offset=0, key="K", msg_id="id-0")
    story.handle("a", 1, *range(1, 6), ordering="none")
    story.commit("a", 1, 6)
    report = story.report()
    assert (kinds(report), report.lost) == ([], 0)


# Random ------------------------------------------------------------------------------------------------------


@given(key_histories())
def test_legal_histories_by_key_raise_no_alarm(story: Story) -> None:
    """Whatever repeats has a cause, and nothing is lost."""
    report = story.report()
    assert [violation.sentence for violation in report.violations] == []
    assert (report.lost, report.handled) == (0, report.sent)
    assert sum(report.duplicates.values()) == report.attempts - report.handled
