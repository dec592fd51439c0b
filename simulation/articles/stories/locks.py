"""Stories of the broker's lock table: how locks are granted, renewed, refused, and lost."""

from lockstep.simulation.articles.narration import number
from lockstep.simulation.lab.cluster import BROKER
from lockstep.simulation.lab.cluster_log import LogLine
from lockstep.simulation.lab.recorded_cluster import RecordedCluster, take_all

__all__ = [
    "belief",
    "cut_off_holder_stops",
    "expiry",
    "granted_again",
    "holder_is_killed",
    "holder_renews",
    "late_answer_is_ignored",
    "lateness",
    "refusal_and_grant",
    "renewals",
    "second_member_waits",
]

LOCK_LIFE_MS = 60_000


def _events_of_q0(cluster: RecordedCluster, event: str, *, host: str | None = None) -> list[LogLine]:
    return cluster.events(event, host=host, queue=f"{cluster.topic}@{BROKER}:0")


async def holder_renews(cluster: RecordedCluster) -> None:
    """A starts at 500 ms, locks two queues, and renews their locks while it lives."""
    await cluster.broker(queues=2, log_debug=True)
    await cluster.at(500)
    await cluster.consumer("A")
    await cluster.at(62_000)


def renewals(cluster: RecordedCluster) -> str:
    lines, [granted] = _events_of_q0(cluster, "lock_renewed"), _events_of_q0(cluster, "lock_granted")
    times = ", ".join(number(line.at_ms) for line in lines)
    ages = ", ".join(number(line.fields["age_ms"]) for line in lines)
    return f"A got the lock of q0 at {granted.at_ms} ms and renewed it at {times} ms: after {ages} ms."


async def holder_is_killed(cluster: RecordedCluster) -> None:
    """A locks q0, renews the lock, and is killed. B asks 60 000 ms after the last renewal, and 1 ms later."""
    await cluster.broker(queues=1, log_debug=True)
    await cluster.consumer("A")
    await cluster.at(30_000)
    renewed_ms = cluster.world.elapsed_ms - cluster.locks()[0].age_ms
    cluster.crash("A")
    for asked_ms in (31_000, renewed_ms + LOCK_LIFE_MS, renewed_ms + LOCK_LIFE_MS + 1):
        await cluster.at(asked_ms)
        await cluster.lock("B")


def expiry(cluster: RecordedCluster) -> str:
    refused = _events_of_q0(cluster, "lock_refused", host=BROKER)[-1]
    [taken] = _events_of_q0(cluster, "lock_taken_over")
    return (
        f"B was refused {number(refused.fields['age_ms'])} ms after A's last renewal, and got the lock "
        f"{number(taken.fields['age_ms'])} ms after it, at {number(taken.at_ms)} ms."
    )


async def second_member_waits(cluster: RecordedCluster) -> None:
    """A and B both want q0. B is refused at each rebalance, until A shuts down and gives the lock back."""
    await cluster.broker(queues=1)
    await cluster.consumer("A", strategy=take_all)
    await cluster.at(2_000)
    await cluster.consumer("B", strategy=take_all)
    await cluster.at(15_000)
    await cluster.leave("A")
    await cluster.at(24_000)


def refusal_and_grant(cluster: RecordedCluster) -> str:
    refused = sorted({line.at_ms for line in _events_of_q0(cluster, "lock_refused", host="B")})
    [released] = _events_of_q0(cluster, "lock_released")
    granted = _events_of_q0(cluster, "lock_granted")[-1]
    return (
        f"B was refused at {', '.join(map(number, refused))} ms. A gave the lock back at {number(released.at_ms)} ms, "
        f"and {cluster.who(granted.fields['client_id'])} got it at {number(granted.at_ms)} ms."
    )


async def cut_off_holder_stops(cluster: RecordedCluster) -> None:
    """A has work for a minute, and is cut off from the broker for 40 s: it trusts its lock for 30 s, and then stops."""
    await cluster.broker(queues=1, log_debug=True)
    await cluster.producer()
    await cluster.consumer("A", work_ms=1_000)
    await cluster.send(60, queue_id=0)
    await cluster.at(22_050)
    cluster.cut_off("A")
    await cluster.at(62_050)
    cluster.reconnect("A")
    await cluster.at(68_500)


def belief(cluster: RecordedCluster) -> str:
    calls = cluster.seen.of("A")
    before = max(call.begin_ms for call in calls if call.begin_ms < 62_050)
    after = min(call.begin_ms for call in calls if call.begin_ms > before)
    renewed = max(line.at_ms for line in _events_of_q0(cluster, "lock_renewed") if line.at_ms < before)
    return (
        f"A renewed its lock at {number(renewed)} ms and began its last call {number(before - renewed)} ms later. "
        f"The next call began at {number(after)} ms, when the broker had answered again."
    )


def granted_again(cluster: RecordedCluster) -> str:
    calls = cluster.seen.of("A")
    first = next(call for call in calls if call.begin_ms > 62_050)
    asked = max(at for at in cluster.request_log.times_ms("A", "LOCK_BATCH_MQ") if at <= first.begin_ms)
    failed = [line.at_ms for line in cluster.events("lock_request_failed") if line.at_ms > 51_000]
    return (
        f"Requests for the lock failed at {', '.join(map(number, failed))} ms. That of {number(asked)} ms was granted; "
        f"the next call began {first.begin_ms - asked} ms later, with offset {first.offset}."
    )


async def late_answer_is_ignored(cluster: RecordedCluster) -> None:
    """The broker's answers reach A 1 500 ms late while A renews its lock, and A waits 1 000 ms for an answer."""
    await cluster.broker(queues=1, log_debug=True)
    await cluster.consumer("A")
    await cluster.at(20_500)
    cluster.hold_answers("A")
    await cluster.at(22_500)
    cluster.release_answers("A")
    await cluster.at(23_000)


def lateness(cluster: RecordedCluster) -> str:
    [failed], [late] = cluster.events("lock_request_failed"), cluster.events("lock_answered_late")
    return (
        f"A gave the request up at {number(failed.at_ms)} ms; its answer came at {number(late.at_ms)} ms, "
        f"{number(late.fields['took_ms'])} ms after the request, and was matched with it by its opaque."
    )
