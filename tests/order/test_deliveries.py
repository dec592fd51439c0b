"""Groups that pop: what their deliveries may do raises no alarm, and what they may not is found."""

from typing import Any

import pytest
from hypothesis import given

from lockstep.order import Cause, Kind
from tests.order.pop_stories import INVISIBLE_MS, PopStory, pop_histories
from tests.order.stories import SUSPEND, first_handlings, kinds


@given(pop_histories())
def test_legal_histories_raise_no_alarm(story: PopStory) -> None:
    """Whatever is handled again has a cause, and nothing is lost."""
    report = story.report()
    assert [violation.sentence for violation in (*report.violations, *report.undecided)] == []
    assert (report.lost, report.before_start, report.handled) == (0, 0, report.sent)
    assert sum(report.duplicates.values()) == report.attempts - len(first_handlings(story))


@given(pop_histories())
def test_a_call_behind_the_end_of_its_delivery_is_found(story: PopStory) -> None:
    """Whichever call it is: the one whose invisible time was over a moment before it began."""
    (first, *_) = first_handlings(story)
    (delivered,) = [
        record
        for record in story.traces[first["client_id"]]
        if record["event"] == "delivered" and (record["offset"], record["pop_ms"]) == (first["offset"], first["pop_ms"])
    ]
    trace = story.traces[first["client_id"]]
    trace[:] = [record for record in trace if record["event"] != "renewed"]
    delivered["invisible_ms"] = (first["begin_mono_ns"] - delivered["mono_ns"]) // 1_000_000 - 1
    assert Kind.STALE_OWNER in kinds(story.report())


def test_a_zombie_beside_the_new_owner_of_its_key() -> None:
    """a handles on while b has begun. With fenced deliveries the broker refuses a's answer: it is counted alone."""
    for fenced in (False, True):
        story = PopStory()
        for pop_ms, client in ((1, "a"), (2, "b")):
            epoch: dict[str, Any] = {"epoch": pop_ms} if fenced else {}
            story.deliver(client, 0, 2, pop_ms=pop_ms, **epoch)
            story.now_ms += INVISIBLE_MS
        story.call("b", 0, pop_ms=2)
        late = story.call("a", 0, pop_ms=1)
        late["begin_mono_ns"] = 20_000_000  # in time
        report = story.report()
        assert kinds(report) == ([] if fenced else [Kind.OVERLAP])
        assert any("1 calls ran on beyond" in sentence for sentence in report.unseen) == fenced


@pytest.mark.parametrize(
    ("acked", "found"),
    [("before", [Kind.OVERLAP]), ("behind", [Kind.OVERLAP]), ("later only", []), ("no", [])],
)
def test_a_fence_that_let_two_holders_of_a_key_in(acked: str, found: list[Kind]) -> None:
    """a has offset 0, and b gets offset 2 of the key beside it. If the broker takes a's answer, nothing was fenced."""
    story = PopStory()
    story.deliver("a", 0, pop_ms=1, epoch=1)
    story.deliver("b", 2, pop_ms=2, epoch=2)
    late = story.call("a", 0, pop_ms=1)
    if acked == "before":
        story.answer("acked", "a", 0, pop_ms=1)
    story.call("b", 2, pop_ms=2)["begin_mono_ns"] = late["begin_mono_ns"]
    if acked == "behind":
        story.answer("acked", "a", 0, pop_ms=1)
    if acked != "no":
        story.answer("acked", "b", 2, pop_ms=2)
    report = story.report()
    assert kinds(report) == found
    assert any("1 calls ran on beyond" in sentence for sentence in report.unseen) == (not found)
    for violation in report.violations:
        assert [(one["client_id"], one["offset"]) for one in violation.evidence] == [("a", 0), ("b", 2)]


def test_another_key_is_nobody_elses_business() -> None:
    """b has the messages of K, and a goes on with L in its own time."""
    story = PopStory()
    story.deliver("a", 1, 3, pop_ms=1)
    story.deliver("b", 0, 2, pop_ms=2)
    story.call("b", 0, pop_ms=2)
    story.call("a", 1, pop_ms=1)["begin_mono_ns"] -= 3_000_000
    story.call("a", 3, pop_ms=1)
    story.call("b", 2, pop_ms=2)
    assert kinds(story.report()) == []


@pytest.mark.parametrize("newer_first", [False, True])
def test_a_call_after_another_client_got_the_message(newer_first: bool) -> None:
    """Also when the two answers crossed on their way. The invisible time was long, and the broker gave it up before."""
    story = PopStory()
    if newer_first:
        story.deliver("b", 0, pop_ms=2)
    story.deliver("a", 0, pop_ms=1, invisible_ms=100_000)
    if not newer_first:
        story.deliver("b", 0, pop_ms=2)
    story.now_ms += 1
    story.call("a", 0, pop_ms=1)
    report = story.report()
    assert kinds(report) == [Kind.STALE_OWNER]
    assert "b (delivery 2) got the message" in report.violations[0].sentence


@pytest.mark.parametrize(
    ("event", "fields", "why"),
    [
        ("acked", {}, "it had acknowledged"),
        ("refused", {}, "the broker had refused"),
        ("renewed", {"invisible_ms": 0}, "it had given the message back"),
    ],
)
def test_a_call_after_the_answer(event: str, fields: dict[str, int], why: str) -> None:
    """The client itself has ended the delivery, or knows that it has ended."""
    story = PopStory()
    story.deliver("a", 0, pop_ms=1)
    story.answer(event, "a", 0, pop_ms=1, **fields)
    story.now_ms += 1
    story.call("a", 0, pop_ms=1)
    report = story.report()
    assert kinds(report) == [Kind.STALE_OWNER]
    assert why in report.violations[0].sentence


def test_a_longer_time_is_the_new_end() -> None:
    """A renewed delivery is handled in its time, and not behind it."""
    story = PopStory()
    story.deliver("a", 0, 1, pop_ms=1)
    story.now_ms += INVISIBLE_MS - 10
    for offset in (0, 1):
        story.answer("renewed", "a", offset, pop_ms=1, invisible_ms=INVISIBLE_MS)
    story.now_ms += INVISIBLE_MS - 10
    story.call("a", 0, pop_ms=1)
    assert kinds(story.report()) == []
    story.now_ms += 10
    story.call("a", 1, pop_ms=1)
    assert kinds(story.report()) == [Kind.STALE_OWNER]


def test_repeats_have_their_causes() -> None:
    """Acknowledged, given back, failed, and taken over from a client that said nothing."""
    story = PopStory()
    story.deliver("a", 0, 1, 2, 3, pop_ms=1, keys="KLMN")
    for offset, status in enumerate(("SUCCESS", SUSPEND, SUSPEND, "SUCCESS")):
        story.call("a", offset, pop_ms=1, status=status, keys="KLMN")
    story.answer("acked", "a", 0, pop_ms=1)
    story.answer("renewed", "a", 1, pop_ms=1, invisible_ms=0)
    story.now_ms += INVISIBLE_MS
    story.deliver("b", 0, 1, 2, 3, pop_ms=2, keys="KLMN")
    for offset in range(4):
        story.call("b", offset, pop_ms=2, keys="KLMN")
    report = story.report()
    assert kinds(report) == []
    assert report.duplicates == {Cause.REDELIVERED: 1, Cause.SUSPEND: 2, Cause.TAKEOVER: 1}
    assert [(one.from_client_id, one.to_client_id) for one in report.handovers] == [("a", "b")]


def test_twice_in_one_delivery() -> None:
    """After a failure the client may try again; after a success it may not."""
    story = PopStory()
    story.deliver("a", 0, pop_ms=1)
    story.call("a", 0, pop_ms=1, status=SUSPEND)
    story.call("a", 0, pop_ms=1)
    assert (kinds(story.report()), story.report().duplicates) == ([], {Cause.SUSPEND: 1})
    story.call("a", 0, pop_ms=1)
    assert kinds(story.report()) == [Kind.UNEXPLAINED_REPEAT]


def test_a_message_below_the_stored_offset_comes_again() -> None:
    """The broker had stored an offset behind it, long before; a reset would explain it."""
    for reset in (False, True):
        story = PopStory()
        story.deliver("a", 0, pop_ms=1)
        story.call("a", 0, pop_ms=1)
        story.answer("acked", "a", 0, pop_ms=1)
        story.stored(1)
        if reset:
            story.stored(0)
            story.traces["broker"][-1]["event"] = "reset"
        sent_ns = (story.now_ms + 1) * 1_000_000
        story.now_ms += 2
        story.deliver("b", 0, pop_ms=3, begin_mono_ns=sent_ns)
        story.call("b", 0, pop_ms=3)
        report = story.report()
        assert kinds(report) == ([] if reset else [Kind.REWIND_BELOW_COMMIT])
        assert report.duplicates == {Cause.RESET if reset else Cause.UNEXPLAINED: 1}


def test_an_offset_stored_while_the_answer_was_under_way_proves_nothing() -> None:
    """The pop may have been before it: a late acknowledgement is taken after a crash."""
    story = PopStory()
    story.deliver("a", 0, pop_ms=1)
    story.call("a", 0, pop_ms=1)
    sent_ns = story.now_ms * 1_000_000
    story.stored(1)
    story.deliver("b", 0, pop_ms=2, begin_mono_ns=sent_ns)
    story.call("b", 0, pop_ms=2)
    assert kinds(story.report()) == []


def test_what_was_stored_and_never_handled_is_lost() -> None:
    """Rule (d) needs what the broker stored."""
    story = PopStory()
    story.deliver("a", 0, 1, pop_ms=1)
    story.call("a", 0, pop_ms=1)
    story.stored(2)
    assert kinds(story.report()) == [Kind.LOST_WRITE]


def test_one_client_handles_a_key_twice_at_once() -> None:
    """Two deliveries of one key; but the messages of one call may be several."""
    story = PopStory()
    story.deliver("a", 0, 2, pop_ms=1)
    first = story.call("a", 0, pop_ms=1)
    second = story.call("a", 2, pop_ms=1)
    second["begin_mono_ns"] = first["begin_mono_ns"]
    assert kinds(story.report()) == []
    second["begin_mono_ns"] += 1_000_000
    assert kinds(story.report()) == [Kind.CONCURRENT_CALLS]


def test_a_call_without_a_delivery_is_undecided() -> None:
    """The trace may begin behind it."""
    story = PopStory()
    story.deliver("a", 0, pop_ms=1)
    story.call("a", 1, pop_ms=1)
    report = story.report()
    assert (kinds(report), list(report.undecided_counts)) == ([], [Kind.NO_GRANT])


def test_keys_keep_their_order() -> None:
    """A group without the flag gets two messages of a key at once, and the later one is handled first."""
    story = PopStory()
    story.deliver("a", 0, pop_ms=1)
    story.deliver("b", 2, pop_ms=2)
    story.call("b", 2, pop_ms=2)
    story.call("a", 0, pop_ms=1)
    assert kinds(story.report()) == [Kind.NONMONOTONIC_POLL]


def test_a_group_that_pulled_and_popped_at_once() -> None:
    """A call without a delivery is one of a pull. The judge says that it looks at deliveries alone."""
    story = PopStory()
    story.own("a", 1, 0)
    story.handle("a", 1, 0)
    story.deliver("b", 1, pop_ms=5)
    story.call("b", 1, pop_ms=5)
    report = story.report()
    assert (kinds(report), report.undecided_counts) == ([], {})
    assert any("pulled and popped" in sentence for sentence in report.unseen)
