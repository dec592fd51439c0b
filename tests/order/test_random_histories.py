"""Legal histories raise no alarm, and one small wrong in any of them is found."""

from itertools import pairwise

from hypothesis import assume, given
from hypothesis import strategies as st

from lockstep.order import Kind
from tests.order.legal_histories import histories
from tests.order.stories import SUCCESS, Story, first_handlings, handled, kinds, swap_two_of_a_key


@given(histories())
def test_legal_histories_raise_no_alarm(story: Story) -> None:
    """Whatever a legal history repeats has a cause, and nothing is lost."""
    report = story.report()
    assert [violation.sentence for violation in report.violations] == []
    assert (report.lost, report.before_start, report.handled) == (0, 0, report.sent)
    assert sum(report.duplicates.values()) == report.attempts - len(first_handlings(story))


@given(histories(), st.data())
def test_two_messages_swapped_are_found(story: Story, data: st.DataObject) -> None:
    """Two first handlings of one key in the wrong order are out of order."""
    swap_two_of_a_key(story, data)
    assert Kind.NONMONOTONIC_POLL in kinds(story.report())


@given(histories(), st.data())
def test_a_message_dropped_is_found(story: Story, data: st.DataObject) -> None:
    """A message whose only handling is taken out is lost."""
    offsets = [record["offset"] for record in handled(story)]
    once = [offset for offset in offsets if offsets.count(offset) == 1]
    assume(once)
    victim = data.draw(st.sampled_from(once))
    for trace in story.traces.values():
        trace[:] = [record for record in trace if not (record["event"] == "handled" and record["offset"] == victim)]
    report = story.report()
    assert report.lost == 1
    assert kinds(report) in ([], [Kind.LOST_WRITE])  # a violation too where a commit passed it by


@given(histories(), st.data())
def test_a_message_repeated_is_found(story: Story, data: st.DataObject) -> None:
    """A success that is handled again at once, in the same period, is a repeat without a reason."""
    successes = [record for record in handled(story) if record["status"] == SUCCESS]
    assume(successes)
    victim = data.draw(st.sampled_from(successes))
    trace = story.traces[victim["client_id"]]
    place = next(place for place, record in enumerate(trace) if record is victim)
    again = {**victim, "begin_mono_ns": victim["mono_ns"], "mono_ns": victim["mono_ns"] + 1}
    trace.insert(place + 1, again)
    assert Kind.UNEXPLAINED_REPEAT in kinds(story.report())


@given(histories(), st.data())
def test_two_owners_at_once_are_found(story: Story, data: st.DataObject) -> None:
    """A call that begins before another owner's call has ended is an overlap."""
    calls = handled(story)
    changes = [(one, other) for one, other in pairwise(calls) if one["period"] != other["period"]]
    assume(changes)
    one, other = data.draw(st.sampled_from(changes))
    other["begin_mono_ns"] = one["mono_ns"] - 1
    assert Kind.OVERLAP in kinds(story.report())


@given(histories(), st.data())
def test_a_commit_moved_back_is_found(story: Story, data: st.DataObject) -> None:
    """A commit below the one before it, or below the position that its period began at, went back."""
    marks = sorted(
        (
            record
            for trace in story.traces.values()
            for record in trace
            if record["event"] in ("positioned", "committed")
        ),
        key=lambda record: record["mono_ns"],
    )
    pairs = [
        (before, commit)
        for before, commit in pairwise(marks)
        if commit["event"] == "committed" and before["offset"] > 0
    ]
    assume(pairs)
    before, commit = data.draw(st.sampled_from(pairs))
    commit["offset"] = data.draw(st.integers(0, before["offset"] - 1))
    assert {Kind.COMMIT_REGRESS, Kind.STALE_COMMIT} & set(kinds(story.report()))
