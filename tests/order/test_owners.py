"""Who owned a queue when: replaced owners, two calls at once, grants, epochs, and clocks of several machines."""

from typing import Any

import pytest

from lockstep.order import Cause, Confidence, Kind, Verdict, check_traces
from tests.order.stories import Story, kinds, owned


class Machines(Story):
    """As `Story`, but each client is on a machine with its own clock; `skew_ms` is what its wall clock is ahead."""

    def __init__(self, **skew_ms: int) -> None:
        super().__init__()
        self.skew_ms = skew_ms

    def record(self, client: str, event: str, **fields: Any) -> dict[str, Any]:
        record = super().record(client, event, **fields)
        if client in self.skew_ms:
            boot_ms = 1000 * (1 + sorted(self.skew_ms).index(client))
            record |= {"machine": client, "boot": f"boot-{client}", "v": 2}
            record["wall_ms"] += self.skew_ms[client]
            record["mono_ns"] += boot_ms * 1_000_000
            if "begin_mono_ns" in record:
                record["begin_mono_ns"] += boot_ms * 1_000_000
                record["begin_wall_ms"] += self.skew_ms[client]
        return record


def test_a_call_after_the_drop_is_found_however_short() -> None:
    """The period was dropped; a call of a microsecond begins a microsecond later, of a message new to everybody."""
    story = owned()
    story.handle("a", 1, 0)
    dropped = story.record("a", "dropped", period=1, why="rebalance")
    late = story.handle("a", 1, 1)[0]
    late["begin_mono_ns"] = dropped["mono_ns"] + 1000
    late["mono_ns"] = dropped["mono_ns"] + 2000
    report = story.report()
    assert kinds(report) == [Kind.STALE_OWNER]
    assert report.violations[0].evidence == (dropped, late)


def test_a_replaced_owner_that_handles_new_messages_is_found() -> None:
    """It was not told. Its call is the first of its message, and overlaps with none of the successor's."""
    story = owned()
    story.handle("a", 1, 0)
    story.own("b", 1, 1)
    story.handle("a", 1, 1)
    story.handle("b", 1, 1, 2)
    report = story.report()
    assert kinds(report) == [Kind.STALE_OWNER]
    assert "was granted the queue" in report.violations[0].sentence


@pytest.mark.parametrize(
    ("skew_ms", "verdict"), [(-500, Verdict.UNDECIDED), (-15, Verdict.IN_ORDER), (500, Verdict.IN_ORDER)]
)
def test_a_handover_of_20_ms_between_machines_is_proved_by_its_commit(skew_ms: int, verdict: Verdict) -> None:
    """The new owner read the offset that the old one committed behind its last call: that is the order of both.

    But where wall clocks show two owners at once, the cause alone does not exclude it: it stands on a release.
    """
    story = Machines(a=0, b=skew_ms)
    story.own("a", 1, 0)
    story.handle("a", 1, 0, 1)
    story.record("a", "dropped", period=1, why="rebalance")
    story.record("a", "committed", period=1, offset=2)
    story.now_ms += 20
    story.own("b", 1, 2)
    story.handle("b", 1, 2, 3)
    report = story.report()
    assert (kinds(report), report.verdict) == ([], verdict)
    for found in report.undecided:
        assert "by the wall clocks" in found.sentence
        assert "only offsets that one owner committed and another one read say that it did not" in found.sentence


def test_a_replaced_owner_on_another_machine_is_found_beyond_the_bounds() -> None:
    """It begins a call 3 s after the successor's start, on clocks that are at most 1 s apart."""
    story = Machines(a=0, b=-500)
    story.own("a", 1, 0)
    story.handle("a", 1, 0)
    story.now_ms += 2_000
    story.own("b", 1, 0)
    story.handle("b", 1, 0)
    story.now_ms += 3_000
    story.handle("a", 1, 1)
    assert Kind.STALE_OWNER in kinds(story.report())


def test_a_replaced_owner_within_the_bounds_is_undecided_and_says_them() -> None:
    """200 ms after the successor's start, on clocks that may be a second apart: neither a violation nor a pass."""
    story = Machines(a=0, b=-500)
    story.own("a", 1, 0)
    story.own("b", 1, 0)
    story.now_ms += 200
    story.handle("a", 1, 0)
    story.handle("b", 1, 0)
    report = story.report()
    assert (kinds(report), report.verdict) == ([], Verdict.UNDECIDED)
    assert report.undecided_counts == {Kind.STALE_OWNER: 1}
    assert "between" in report.undecided[0].sentence
    assert any("ms ahead" in line for line in report.clocks)


def test_two_owners_at_once_on_two_machines_are_found_beyond_the_bounds() -> None:
    """Calls of 3 s overlap by nearly that, on clocks that are at most 1 s apart."""
    story = Machines(a=0, b=-500)
    story.own("a", 1, 0)
    story.own("b", 1, 0)
    for client, offset in (("a", 0), ("b", 1)):
        (record,) = story.handle(client, 1, offset)
        record["wall_ms"] += 3_000
        record["mono_ns"] += 3_000_000_000
    assert Kind.OVERLAP in kinds(story.report())


def test_causes_in_both_directions_make_the_bounds_narrow() -> None:
    """Two queues that change hands both ways bound the clocks to milliseconds: 200 ms late is a violation then."""
    story = Machines(a=0, b=-500)
    for owner, other, queue_id in (("a", "b", 1), ("b", "a", 2)):
        story.record(owner, "acquired", period=queue_id + 10, queue_id=queue_id)
        story.record(owner, "committed", period=queue_id + 10, offset=5, queue_id=queue_id)
        story.record(owner, "dropped", period=queue_id + 10, queue_id=queue_id, why="rebalance")
        story.record(other, "acquired", period=queue_id + 20, queue_id=queue_id)
        story.record(other, "positioned", period=queue_id + 20, offset=5, queue_id=queue_id)
    story.own("a", 31, 0)
    story.now_ms += 50
    story.own("b", 31, 0)
    story.now_ms += 200
    story.handle("a", 31, 0)
    report = story.report()
    assert (kinds(report), report.undecided) == ([Kind.STALE_OWNER], ())


def test_one_address_on_two_machines_is_not_one_clock() -> None:
    """Old records know `host` alone. Both are 127.0.0.1, booted at different times: no overlap is made up."""
    story = owned()
    story.handle("a", 1, 0, 1)
    story.record("a", "dropped", period=1, why="rebalance")
    story.record("a", "committed", period=1, offset=2)
    story.now_ms += 20
    story.own("b", 1, 2)
    story.handle("b", 1, 2, 3)
    for record in story.traces["b"]:
        record["mono_ns"] -= 10_000_000_000
        if "begin_mono_ns" in record:
            record["begin_mono_ns"] -= 10_000_000_000
    report = story.report()
    assert (kinds(report), report.verdict) == ([], Verdict.IN_ORDER)


@pytest.mark.parametrize("appended", [True, False])
def test_a_reboot_begins_a_new_clock(appended: bool) -> None:
    """The monotonic clock begins anew; the new process writes to a new file, or behind the old records."""
    story = owned()
    story.handle("a", 1, 0, 1)
    story.commit("a", 1, 2)
    story.handle("a", 1, 2)
    before = story.traces.pop("a")
    story.now_ms += 60_000
    story.own("a", 1, 2)
    story.handle("a", 1, 2, 3)
    after = story.traces.pop("a")
    for record in after:
        record["client_id"] = "a2"
        record["mono_ns"] -= 61_000_000_000
        if "begin_mono_ns" in record:
            record["begin_mono_ns"] -= 61_000_000_000
    report = check_traces([before + after] if appended else [after, before])
    assert (kinds(report), report.duplicates, report.verdict) == ([], {Cause.TAKEOVER: 1}, Verdict.IN_ORDER)


@pytest.mark.parametrize("epochs", [(7, 8), ("3-7", "3-8"), ("3-9", "4-1")])
def test_what_comes_under_an_old_epoch_is_found(epochs: tuple[Any, Any]) -> None:
    """A commit under an epoch after a later one was granted."""
    story = Story()
    old, new = epochs
    story.record("a", "acquired", period=1, epoch=old)
    story.record("a", "positioned", period=1, offset=0, epoch=old)
    story.handle("a", 1, 0)
    story.record("b", "acquired", period=1, epoch=new)
    story.record("a", "committed", period=1, offset=1, epoch=old)
    report = story.report()
    assert kinds(report) == [Kind.STALE_EPOCH]
    assert report.violations[0].confidence is Confidence.CERTAIN


def test_two_processes_with_one_client_id_are_found_and_rotation_is_not() -> None:
    """Two files of one client id that overlap in time, or that follow each other."""
    story = owned()
    story.handle("a", 1, 0)
    first = story.traces.pop("a")
    story.handle("a", 1, 1, 2)
    second = story.traces.pop("a")
    assert kinds(check_traces([first, second])) == []
    both = [*first, second[1]], [first[0] | {"queue_id": 1}, second[0]]
    assert Kind.SHARED_CLIENT_ID in kinds(check_traces(both))


@pytest.mark.parametrize(
    ("epochs", "outlived", "found"),
    [
        ((7, 8), True, []),
        ((7, 8), False, [Kind.OVERLAP, Kind.STALE_REPEAT]),
        ((None, None), True, [Kind.OVERLAP, Kind.STALE_REPEAT]),
    ],
    ids=["outlived its lease", "without a word of its lease", "outlived, without epochs"],
)
def test_a_call_that_outlives_its_lease_is_no_overlap(
    epochs: tuple[int | None, int | None], outlived: bool, found: list[Kind]
) -> None:
    """It began in time, and the next owner has a later epoch: the fence refuses its commit and its guarded effects."""
    story = owned()
    late = story.handle("a", 1, 0)[0]
    story.traces["a"].pop()
    story.now_ms += 60_000
    story.own("b", 1, 0)
    story.handle("b", 1, 0)
    end_ms = story.now_ms
    late |= {"mono_ns": end_ms * 1_000_000 + 1, "wall_ms": late["wall_ms"] + 60_000}
    late |= {"outlived_ms": 5} if outlived else {}
    story.traces["a"].append(late)
    for client, epoch in zip("ab", epochs, strict=True):
        for record in story.traces[client]:
            record |= {"epoch": epoch} if epoch else {}
    report = story.report()
    assert kinds(report) == found
    assert any("beyond the lease" in sentence for sentence in report.unseen) is outlived
