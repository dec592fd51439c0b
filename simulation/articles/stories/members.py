"""Stories of the members of a group: how they start, share the queues, hand them over, and end."""

from lockstep.simulation.articles.narration import number
from lockstep.simulation.lab.cluster import BROKER
from lockstep.simulation.lab.recorded_cluster import RecordedCluster

__all__ = [
    "call_keeps_the_lock",
    "consumer_ends",
    "consumer_starts",
    "goodbye",
    "handover",
    "last_pull",
    "member_is_missed",
    "members_share",
    "queue_changes_hands",
    "shares",
    "silence",
    "start_order",
    "unlock_after_the_call",
]


async def consumer_starts(cluster: RecordedCluster) -> None:
    """A starts, alone in its group, and gets both queues of its topic. 30 s later its timers have come round."""
    await cluster.broker(queues=2)
    await cluster.at(1_000)
    await cluster.consumer("A")
    await cluster.at(32_000)


def start_order(cluster: RecordedCluster) -> str:
    names = cluster.request_log.firsts("A")
    beats = sorted(set(cluster.request_log.times_ms("A", "HEART_BEAT")))
    return (
        f"A's first requests were, in this order, {', '.join(names)}. Heartbeats left at "
        f"{', '.join(map(number, beats))} ms."
    )


async def members_share(cluster: RecordedCluster) -> None:
    """A has five queues alone; B joins, C joins, and B leaves: at each change the queues are shared out like pages."""
    await cluster.broker(queues=5)
    await cluster.consumer("A")
    for at_ms, name in ((5_000, "B"), (30_000, "C")):
        await cluster.at(at_ms)
        await cluster.consumer(name)
    await cluster.at(55_000)
    await cluster.leave("B")
    await cluster.at(75_000)


def shares(cluster: RecordedCluster) -> str:
    lines = [line for line in cluster.events("rebalanced") if line.fields["topic"] == cluster.topic]
    texts = []
    for until_ms, members in ((5_000, "A"), (30_000, "AB"), (55_000, "ABC"), (cluster.world.elapsed_ms, "AC")):
        counts = {line.host: line.fields["queues"] for line in lines if line.at_ms < until_ms}
        texts.append(f"{', '.join(f'{name} {counts[name]}' for name in members)} (until {number(until_ms)} ms)")
    return f"Queues of each member: {'; '.join(texts)}."


async def queue_changes_hands(cluster: RecordedCluster) -> None:
    """A works on q1, with messages in its ProcessQueue, when B joins: A drops the queue, and B gets it later."""
    await cluster.broker(queues=2)
    await cluster.producer()
    await cluster.consumer("A", work_ms=300)
    await cluster.at(2_000)
    await cluster.send(40, queue_id=1)
    await cluster.at(6_000)
    await cluster.consumer("B", work_ms=10)
    await cluster.at(38_000)


def handover(cluster: RecordedCluster) -> str:
    [dropped] = cluster.events("queue_dropped", host="A")
    [released] = cluster.events("lock_released", queue=f"{cluster.topic}@{BROKER}:1")
    last, first = cluster.seen.of("A")[-1], cluster.seen.of("B")[0]
    return (
        f"A dropped q1 at {number(dropped.at_ms)} ms and unlocked it {number(released.at_ms - dropped.at_ms)} ms later."
        f" A's last call was offset {last.offset}; B began with offset {first.offset} at {number(first.begin_ms)} ms."
    )


async def call_keeps_the_lock(cluster: RecordedCluster) -> None:
    """A's listener works on a message of q1 for 30 s, and B joins meanwhile. A may not unlock q1 during the call."""
    await cluster.broker(queues=2)
    await cluster.producer()
    await cluster.consumer("A", work_ms=30_000)
    await cluster.at(2_000)
    await cluster.send(3, queue_id=1)
    await cluster.at(10_000)
    await cluster.consumer("B", work_ms=10)
    await cluster.at(65_000)


def unlock_after_the_call(cluster: RecordedCluster) -> str:
    [slow] = cluster.seen.of("A")
    tries = cluster.events("unlock_waits_for_listener", host="A")
    [released] = cluster.events("lock_released", queue=f"{cluster.topic}@{BROKER}:1")
    first = cluster.seen.of("B")[0]
    return (
        f"A wanted to give q1 up at {', '.join(number(line.at_ms) for line in tries)} ms, while its call ran. The call "
        f"ended at {number(slow.end_ms)} ms, the unlock came at {number(released.at_ms)} ms, and B's first call at "
        f"{number(first.begin_ms)} ms."
    )


async def member_is_missed(cluster: RecordedCluster) -> None:
    """A's machine vanishes without a word. B and the broker learn of it when A has been silent for 120 s."""
    await cluster.broker(queues=2, log_debug=True)
    await cluster.consumer("A")
    await cluster.consumer("B")
    await cluster.at(35_000)
    cluster.crash("A", silently=True)
    await cluster.at(165_000)


def silence(cluster: RecordedCluster) -> str:
    [missed] = cluster.events("heartbeat_expired", host=BROKER)
    [taken] = cluster.events("lock_taken_over", queue=f"{cluster.topic}@{BROKER}:0")
    beat_ms = max(cluster.request_log.times_ms("A", "HEART_BEAT"))
    return (
        f"The last heartbeat of A came at {number(beat_ms)} ms. The broker dropped A at {number(missed.at_ms)} ms; A's "
        f"lock of q0 was {number(taken.fields['age_ms'])} ms old, and B got it at {number(taken.at_ms)} ms."
    )


async def consumer_ends(cluster: RecordedCluster) -> None:
    """A shuts down during a call. It stores its offsets, unlocks its queues and unregisters, in this order."""
    await cluster.broker(queues=1)
    await cluster.producer()
    await cluster.consumer("A", work_ms=2_000)
    await cluster.consumer("B", work_ms=10)
    await cluster.at(3_000)
    await cluster.send(5, queue_id=0)
    await cluster.at(4_000)
    await cluster.leave("A")
    await cluster.at(7_000)


def goodbye(cluster: RecordedCluster) -> str:
    last = cluster.request_log.of("A", since_ms=4_000)
    names = list(dict.fromkeys(request.name for request in last if request.name != "PULL_MESSAGE"))
    [only], first = cluster.seen.of("A"), cluster.seen.of("B")[0]
    return (
        f"A waited for its call of '{only.text}' until {number(only.end_ms)} ms, and then sent {', '.join(names)}. B "
        f"began with '{first.text}' at {number(first.begin_ms)} ms."
    )


def last_pull(cluster: RecordedCluster) -> str:
    [only] = cluster.seen.of("A")
    pulls = cluster.request_log.times_ms("A", "PULL_MESSAGE")
    first_of_b = cluster.request_log.times_ms("B", "PULL_MESSAGE")[-1]
    return (
        f"A's last pull was at {number(pulls[-1])} ms, and its last call ended at {number(only.end_ms)} ms. B's first "
        f"pull of q0 was at {number(first_of_b)} ms."
    )
