"""Stories of the broker's lock table: how locks are granted, renewed, refused, and lost."""

from lockstep.simulation.articles.stage import Stage, take_all
from lockstep.simulation.articles.told import number
from lockstep.simulation.lab.cluster import BROKER
from lockstep.simulation.lab.cluster_log import LogLine

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


def _events_of_q0(stage: Stage, event: str, *, host: str | None = None) -> list[LogLine]:
    return stage.events(event, host=host, queue=f"{stage.topic}@{BROKER}:0")


async def holder_renews(stage: Stage) -> None:
    """A starts at 500 ms, locks two queues, and renews their locks while it lives."""
    await stage.broker(queues=2, log_debug=True)
    await stage.at(500)
    await stage.consumer("A")
    await stage.at(62_000)


def renewals(stage: Stage) -> str:
    lines, [granted] = _events_of_q0(stage, "lock_renewed"), _events_of_q0(stage, "lock_granted")
    times = ", ".join(number(line.at_ms) for line in lines)
    ages = ", ".join(number(line.fields["age_ms"]) for line in lines)
    return f"A got the lock of q0 at {granted.at_ms} ms and renewed it at {times} ms: after {ages} ms."


async def holder_is_killed(stage: Stage) -> None:
    """A locks q0, renews the lock, and is killed. B asks 60 000 ms after the last renewal, and 1 ms later."""
    await stage.broker(queues=1, log_debug=True)
    await stage.consumer("A")
    await stage.at(30_000)
    renewed_ms = stage.world.elapsed_ms - stage.locks()[0].age_ms
    stage.crash("A")
    for asked_ms in (31_000, renewed_ms + LOCK_LIFE_MS, renewed_ms + LOCK_LIFE_MS + 1):
        await stage.at(asked_ms)
        await stage.lock("B")


def expiry(stage: Stage) -> str:
    refused = _events_of_q0(stage, "lock_refused", host=BROKER)[-1]
    [taken] = _events_of_q0(stage, "lock_taken_over")
    return (
        f"B was refused {number(refused.fields['age_ms'])} ms after A's last renewal, and got the lock "
        f"{number(taken.fields['age_ms'])} ms after it, at {number(taken.at_ms)} ms."
    )


async def second_member_waits(stage: Stage) -> None:
    """A and B both want q0. B is refused at each rebalance, until A shuts down and gives the lock back."""
    await stage.broker(queues=1)
    await stage.consumer("A", strategy=take_all)
    await stage.at(2_000)
    await stage.consumer("B", strategy=take_all)
    await stage.at(15_000)
    await stage.leave("A")
    await stage.at(24_000)


def refusal_and_grant(stage: Stage) -> str:
    refused = sorted({line.at_ms for line in _events_of_q0(stage, "lock_refused", host="B")})
    [released] = _events_of_q0(stage, "lock_released")
    granted = _events_of_q0(stage, "lock_granted")[-1]
    return (
        f"B was refused at {', '.join(map(number, refused))} ms. A gave the lock back at {number(released.at_ms)} ms, "
        f"and {stage.who(granted.fields['client_id'])} got it at {number(granted.at_ms)} ms."
    )


async def cut_off_holder_stops(stage: Stage) -> None:
    """A has work for a minute, and is cut off from the broker for 40 s: it trusts its lock for 30 s, and then stops."""
    await stage.broker(queues=1, log_debug=True)
    await stage.producer()
    await stage.consumer("A", work_ms=1_000)
    await stage.send(60, queue_id=0)
    await stage.at(22_050)
    stage.cut_off("A")
    await stage.at(62_050)
    stage.reconnect("A")
    await stage.at(68_500)


def belief(stage: Stage) -> str:
    calls = stage.seen.of("A")
    before = max(call.begin_ms for call in calls if call.begin_ms < 62_050)
    after = min(call.begin_ms for call in calls if call.begin_ms > before)
    renewed = max(line.at_ms for line in _events_of_q0(stage, "lock_renewed") if line.at_ms < before)
    return (
        f"A renewed its lock at {number(renewed)} ms and began its last call {number(before - renewed)} ms later. "
        f"The next call began at {number(after)} ms, when the broker had answered again."
    )


def granted_again(stage: Stage) -> str:
    calls = stage.seen.of("A")
    first = next(call for call in calls if call.begin_ms > 62_050)
    asked = max(at for at in stage.heard.times_ms("A", "LOCK_BATCH_MQ") if at <= first.begin_ms)
    failed = [line.at_ms for line in stage.events("lock_request_failed") if line.at_ms > 51_000]
    return (
        f"Requests for the lock failed at {', '.join(map(number, failed))} ms. That of {number(asked)} ms was granted; "
        f"the next call began {first.begin_ms - asked} ms later, with offset {first.offset}."
    )


async def late_answer_is_ignored(stage: Stage) -> None:
    """The broker's answers reach A 1 500 ms late while A renews its lock, and A waits 1 000 ms for an answer."""
    await stage.broker(queues=1, log_debug=True)
    await stage.consumer("A")
    await stage.at(20_500)
    stage.hold_answers("A")
    await stage.at(22_500)
    stage.release_answers("A")
    await stage.at(23_000)


def lateness(stage: Stage) -> str:
    [failed], [late] = stage.events("lock_request_failed"), stage.events("lock_answered_late")
    return (
        f"A gave the request up at {number(failed.at_ms)} ms; its answer came at {number(late.at_ms)} ms, "
        f"{number(late.fields['took_ms'])} ms after the request, and was matched with it by its opaque."
    )
