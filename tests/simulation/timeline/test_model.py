"""The model of a timeline: lanes, moments and violations from the evidence of a run."""

from itertools import pairwise

from lockstep.simulation.lab.cluster_log import LogLine
from lockstep.simulation.lab.experiment import LOCKING
from lockstep.simulation.lab.findings import Finding
from lockstep.simulation.lab.runner import run_seed
from lockstep.simulation.machine.host import HostEvent
from lockstep.simulation.stories.takeover import zombie
from lockstep.simulation.timeline.build import timeline_of
from lockstep.simulation.timeline.evidence import Evidence, LockChange, LockEvent
from lockstep.simulation.timeline.model import Kind, LaneKind, Moment, Timeline
from lockstep.simulation.timeline.output import runs_of_modes
from lockstep.simulation.worlds.experiment import WORLDS
from tests.simulation.timeline.runs import change, client, host, queue, record, started, takeover, wide


def of(timeline: Timeline, *kinds: Kind) -> list[Moment]:
    return [moment for moment in timeline.moments if moment.kind in kinds]


def spans(timeline: Timeline, *kinds: Kind) -> list[tuple[str, float, float | None]]:
    return [(moment.who, moment.at_ms, moment.end_ms) for moment in of(timeline, *kinds)]


def locks(*changes: LockChange, elapsed_ms: int = 200_000) -> Timeline:
    """The timeline of changes of locks alone."""
    addresses = {"10.0.0.1": "c1", "10.0.0.2": "c2"}
    return timeline_of(Evidence("", elapsed_ms=elapsed_ms, addresses=addresses, locks=list(changes)))


# Owners of queues --------------------------------------------------------------------------------------------


def test_an_owner_has_a_queue_until_its_lock_expires() -> None:
    """A period ends a lease after its last renewal, not when the next owner comes."""
    timeline = timeline_of(takeover())
    assert spans(timeline, Kind.OWN) == [("c1", 1_000, 64_000), ("c2", 66_000, 95_000)]
    (expired,) = of(timeline, Kind.EXPIRE)
    assert (expired.at_ms, expired.who, expired.why) == (64_000, "c1", "it expired")
    (released,) = of(timeline, Kind.RELEASE)
    assert (released.at_ms, released.who, released.why) == (95_000, "c2", "unlocked")
    assert [moment.at_ms for moment in of(timeline, Kind.RENEW)] == [4_000]


def test_a_refusal_names_the_owner() -> None:
    """A client that asks for the queue of another is refused, and the step says who has it."""
    (refused,) = of(timeline_of(takeover()), Kind.REFUSE)
    assert (refused.at_ms, refused.text, refused.why) == (20_000, "c2 is refused queue 0", "c1 has it")


def test_a_lock_delay_ends_a_period_early() -> None:
    """A queue that drains is still its owner's; at the end of the delay nobody has it."""
    timeline = locks(
        change(0, LockEvent.GRANTED, "c1", number=1),
        change(5_000, LockEvent.DRAINING, "c1", number=1, ends_ms=8_000),
        change(9_000, LockEvent.GRANTED, "c2", number=2),
    )
    assert spans(timeline, Kind.OWN) == [("c1", 0, 8_000), ("c2", 9_000, 69_000)]
    assert spans(timeline, Kind.DRAIN) == [("c1", 5_000, 8_000)]
    assert [moment.why for moment in of(timeline, Kind.EXPIRE)] == ["the lock delay was over", "it expired"]


def test_a_renewal_ends_a_lock_delay() -> None:
    """A renewal over a new connection keeps the queue: the period goes on without a drain."""
    timeline = locks(
        change(0, LockEvent.GRANTED, "c1", number=1),
        change(5_000, LockEvent.DRAINING, "c1", number=1, ends_ms=8_000),
        change(7_000, LockEvent.RENEWED, "c1", number=1),
        elapsed_ms=60_000,
    )
    assert spans(timeline, Kind.OWN) == [("c1", 0, 60_000)]
    assert not of(timeline, Kind.DRAIN, Kind.EXPIRE)


def test_renewals_of_one_request_are_one_step() -> None:
    """A member renews all its queues at once; the lanes of all of them show it."""
    timeline = locks(*[change(at_ms, event, "c1", queue_id=number) for at_ms, event in
                       [(0, LockEvent.GRANTED), (20_000, LockEvent.RENEWED)] for number in range(3)])  # fmt: skip
    (renewed,) = of(timeline, Kind.RENEW)
    assert renewed.text == "c1 renewed its locks of 3 queues"
    assert [lane.key for lane in timeline.lanes if lane.kind is LaneKind.QUEUE] == list(renewed.lanes)


def test_epochs_are_short() -> None:
    """Epochs are counted in each start of the broker; from the second on its number stands before."""
    first, second = ((7 << 21) + 3, (9 << 21) + 1)
    timeline = locks(
        LockChange(0, "shop", queue(), LockEvent.GRANTED, client("c1"), first, 10_000),
        LockChange(20_000, "shop", queue(), LockEvent.GRANTED, client("c2"), second, 90_000),
    )
    assert [moment.text.partition("under ")[2] for moment in of(timeline, Kind.OWN)] == ["epoch 3", "epoch 2.1"]


# Processes ---------------------------------------------------------------------------------------------------


def test_a_process_lives_stops_and_dies() -> None:
    """A life lasts from the start to the crash; a stop has its length; what begins again is the next process."""
    evidence = takeover()
    evidence.hosts += [host(92_000, "c1", HostEvent.STARTED), host(93_000, "c1", HostEvent.SLEPT)]
    timeline = timeline_of(evidence)
    lives = [span for span in spans(timeline, Kind.LIFE) if span[0] == "c1"]
    assert lives == [("c1", 0, 90_000), ("c1", 92_000, 100_000)]
    assert spans(timeline, Kind.STOP) == [("c1", 5_100, 85_400)]
    assert spans(timeline, Kind.SLEEP) == [("c1", 93_000, 100_000)]  # it sleeps still when the run ends
    assert [moment.text for moment in of(timeline, Kind.CRASH)] == ["c1 is killed (SIGKILL)"]
    assert "as process 2" in of(timeline, Kind.LIFE)[-1].text


def test_a_call_is_in_the_lanes_of_its_process_and_its_queue() -> None:
    """All records of a batch are one call, from its begin to its end; one that is repeated later is a failed call."""
    evidence = takeover()
    batch = [record("handled", "c2", 81_000, begin_ms=80_000, offset=offset, status="SUSPEND") for offset in (4, 5)]
    evidence.records["c2"] += batch
    timeline = timeline_of(evidence)
    assert [(call.who, call.at_ms, call.end_ms) for call in of(timeline, Kind.CALL)] == [
        ("c1", 5_000, 85_500),
        ("c2", 70_000, 70_500),
    ]
    (failed,) = of(timeline, Kind.FAILED)
    assert failed.lanes == ("c2", "shop orders@broker:0")
    assert (failed.text, failed.why) == ("c2 handled offsets 4 to 5 of queue 0", "took 1,000 ms, answered SUSPEND")


def test_lanes_are_in_the_order_of_causes() -> None:
    """Faults, brokers, members, other clients, then queues; a host on which nothing ran has no lane."""
    evidence = takeover()
    evidence.hosts += started("unused", "producer")
    evidence.log.append(LogLine(0, "producer", "info", "connected", {}))
    del evidence.roles["c2"]  # made by the application itself: its records say what it is
    lanes = timeline_of(evidence).lanes
    assert [lane.name for lane in lanes] == ["faults", "broker", "c1", "c2", "producer", "queue 0"]
    assert [lane.note for lane in lanes] == ["", "", "consumer", "consumer", "", ""]


def test_queues_are_named_without_what_they_share() -> None:
    """One topic and broker: the number alone; retry topics are the last."""
    evidence = takeover()
    retry = queue()._replace(topic="%RETRY%shop")
    evidence.locks.append(LockChange(2_000, "shop", retry, LockEvent.GRANTED, client("c1"), 0, 62_000))
    names = [lane.name for lane in timeline_of(evidence).lanes if lane.kind is LaneKind.QUEUE]
    assert names == ["queue 0", "retry queue 0"]
    evidence.locks.append(LockChange(3_000, "shop", queue()._replace(topic="x"), LockEvent.GRANTED, client("c1")))
    names = [lane.name for lane in timeline_of(evidence).lanes if lane.kind is LaneKind.QUEUE]
    assert names == ["orders queue 0", "x queue 0", "retry queue 0"]


# Violations --------------------------------------------------------------------------------------------------


def test_a_violation_is_linked_to_its_two_records() -> None:
    """The steps of a violation of the judge are the calls whose records are its evidence."""
    timeline = timeline_of(takeover())
    (wrong,) = timeline.wrongs
    linked = [moment for moment in timeline.moments if moment.number in wrong.steps]
    assert [(moment.who, moment.kind) for moment in linked] == [("c1", Kind.CALL), ("c2", Kind.CALL)]
    assert (wrong.kind, wrong.at_ms, wrong.lane, wrong.around) == ("overlap", 85_500, "shop orders@broker:0", False)


def test_a_record_without_a_shape_gets_one() -> None:
    """A finding of the lab names records by client and number; a commit has a mark of its own then."""
    evidence = takeover()
    evidence.records["c2"].append(record("committed", "c2", 71_000, offset=4))
    evidence.findings.append(Finding("commit-back", 72_000, "too low", evidence=((client("c2"), 1), (client("c2"), 9))))
    timeline = timeline_of(evidence)
    wrong = next(wrong for wrong in timeline.wrongs if wrong.kind == "commit-back")
    (mark,) = of(timeline, Kind.RECORD)
    assert wrong.steps == (mark.number,)
    assert (mark.at_ms, mark.text) == (71_000, "c2 recorded: committed offset 4, queue 0")


def test_a_finding_without_records_shows_what_was_there() -> None:
    """It points to what ran on its queue at its time, else to the owners before, and says that these are no records."""
    evidence = takeover()
    evidence.findings = [Finding("overlap", 70_200, f"{queue()}: both"), Finding("stale", 99_000, f"{queue()}: late")]
    by_kind = {wrong.kind: wrong for wrong in timeline_of(evidence).wrongs if wrong.around}
    kinds = {moment.number: moment.kind for moment in timeline_of(evidence).moments}
    assert [kinds[step] for step in by_kind["overlap"].steps] == [Kind.CALL, Kind.CALL]
    assert [kinds[step] for step in by_kind["stale"].steps] == [Kind.OWN, Kind.OWN]


# Real runs ---------------------------------------------------------------------------------------------------


def test_a_watched_run_is_the_same_run() -> None:
    """Watching changes nothing: the hash of the trace is that of the sweep, in both modes."""
    for evidence, mode in zip(runs_of_modes(WORLDS, 5, list(LOCKING)), LOCKING, strict=True):
        assert evidence.trace_hash == run_seed(WORLDS, 5, mode).trace_hash
        timeline = timeline_of(evidence)
        seen = {moment.kind for moment in timeline.moments}
        assert {Kind.OWN, Kind.RENEW, Kind.CALL, Kind.CRASH, Kind.STOP, Kind.REFUSE, Kind.SEND} <= seen
        assert len({(moment.lanes, moment.at_ms) for moment in of(timeline, Kind.OWN)}) == len(of(timeline, Kind.OWN))


def test_owners_in_a_lane_follow_each_other() -> None:
    """By the broker's own table a queue has one owner at a time: periods of one lane never overlap."""
    for evidence in runs_of_modes(WORLDS, 7, list(LOCKING)):
        timeline = timeline_of(evidence)
        for lane in timeline.lanes:
            periods = [moment for moment in of(timeline, Kind.OWN) if moment.lanes == (lane.key,)]
            for one, other in pairwise(periods):
                assert (one.end_ms or 0) <= other.at_ms, (one, other)


# Long runs ---------------------------------------------------------------------------------------------------


def test_long_runs_are_thinned_and_say_so() -> None:
    """Renewals go first, then neighbours become one; what is left fits, and the rest is counted."""
    evidence = wide(queues=4, calls=400)
    whole = timeline_of(evidence, 10_000)
    assert not whole.thinned
    timeline = timeline_of(evidence, 300)
    assert len(timeline.moments) <= 300
    assert not of(timeline, Kind.RENEW)
    lanes = [lane for moment in of(timeline, Kind.OWN) for lane in moment.lanes]
    assert sorted(lanes) == sorted(lane for moment in of(whole, Kind.OWN) for lane in moment.lanes)
    assert "c1 got the lock of queue 0 under epoch 1, and 1 more" in {moment.text for moment in timeline.moments}
    assert sum(moment.count for moment in of(timeline, Kind.CALL)) == 1600
    assert timeline.thinned[0].startswith("800 renewals are counted")
    assert timeline.thinned[1].startswith("1,600 calls are drawn as")


def test_evidence_is_never_thinned() -> None:
    """The calls of a violation stay as they are, whatever there is room for."""
    timeline = timeline_of(takeover(), 0)
    assert [moment.kind for moment in timeline.moments] == [Kind.CALL, Kind.CALL]
    assert [len(wrong.steps) for wrong in timeline.wrongs] == [2]
    assert any("left out" in sentence for sentence in timeline.thinned)


def test_calls_of_two_processes_never_become_one() -> None:
    """Neighbours in a queue that belong to two processes stay two, so that an overlap is still seen."""
    evidence = wide(queues=1, calls=0)
    evidence.elapsed_ms, evidence.locks = 10_000_000, []
    for number in range(40):
        owner = "c1" if number % 10 < 5 else "c2"
        evidence.records[owner].append(record("handled", owner, number + 1, begin_ms=number, offset=number))
    calls = of(timeline_of(evidence, 20), Kind.CALL)
    assert [(call.who, call.count) for call in calls] == [("c1", 5), ("c2", 5)] * 4


def test_a_zombie_in_both_modes() -> None:
    """In faithful mode two members' calls overlap, and the violation is linked to both; a fence prevents it."""
    faithful, fenced = map(timeline_of, runs_of_modes(zombie, 2, list(LOCKING)))
    wrong = next(wrong for wrong in faithful.wrongs if wrong.kind == "overlap")
    linked = [moment for moment in faithful.moments if moment.number in wrong.steps]
    assert {(moment.kind, moment.who) for moment in linked} == {(Kind.CALL, "c1"), (Kind.CALL, "c2")}
    assert linked[0].at_ms <= linked[1].at_ms < (linked[0].end_ms or 0)
    (band,) = of(faithful, Kind.FAULT)
    assert (band.at_ms, band.end_ms, band.lanes) == (20_000, 170_000, ("*", "c1"))
    assert not fenced.wrongs
    epochs = [moment.text for moment in of(fenced, Kind.OWN) if "retry" not in moment.text]
    assert all("under epoch" in text for text in epochs)
