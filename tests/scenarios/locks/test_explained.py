"""Each rebalance that changed something explains itself: members, strategy, share, and each queue with its reason."""

import json
from typing import Any

from lockstep.client import AllocateByConfig, MessageModel, MessageQueue, PushConsumer
from lockstep.client.admin.client import AdminClient
from lockstep.client.consumer.ownership.explained import PROPERTY
from lockstep.order import Cause
from tests.scenarios.cluster import BROKER, GROUP, TOPIC, Cluster, take_all
from tests.scenarios.scenario import scenario

ROUND_MS = 20_000
FIRST = "the first rebalance of this member"


def told(cluster: Cluster, host: str, *, since_ms: int = 0, topic: str = TOPIC) -> list[dict[str, Any]]:
    """The events `rebalanced` of a host, without empty fields."""
    lines = cluster.events("rebalanced", host=host, topic=topic, since_ms=since_ms)
    return [{name: value for name, value in line.fields.items() if value != ""} for line in lines]


def client_id(cluster: Cluster, host: str) -> str:
    member = cluster.client(host)
    assert isinstance(member, PushConsumer)
    return member.client_id


async def subscribe(member: PushConsumer, topic: str, *, no_more: bool = False) -> None:
    if no_more:
        member.unsubscribe(topic)
    else:
        member.subscribe(topic)


def without_epochs(text: object) -> str:
    """`b:0=1-7 b:1=1-8 (why)` as `b:0 b:1 (why)`."""
    return " ".join(word.partition("=")[0] for word in str(text).split(" "))


async def explained(cluster: Cluster, host: str) -> list[dict[str, Any]]:
    """What a member answers to GET_CONSUMER_RUNNING_INFO, of the topic: its queues."""
    admin = cluster.world.host("admin")
    member, found = client_id(cluster, host), list[dict[str, Any]]()

    async def ask() -> None:
        async with AdminClient(name_server=cluster.name_server, runtime=admin) as client:
            info = await client.running_info(GROUP, member)
            found.extend(json.loads(info.properties[PROPERTY]))

    await admin.run(ask())
    return [row for topic in found if topic["topic"] == TOPIC for row in topic["queues"]]


@scenario(also_fenced=True)
async def test_a_joiner_is_named_with_its_queues(cluster: Cluster) -> None:
    """The owner says which member joined and gets the queue, and when its own period is over; the joiner has it."""
    await cluster.broker(queues=2)
    await cluster.consumer("c1")
    await cluster.at(5_000)
    await cluster.consumer("c2")
    await cluster.at(30_000)
    c1, c2 = client_id(cluster, "c1"), client_id(cluster, "c2")
    first, *later = told(cluster, "c1")
    assert (first["strategy"], first["members"], first["share_after"]) == ("AVG", c1, f"{BROKER}:0 {BROKER}:1")
    assert without_epochs(first["locked"]) == f"{BROKER}:0 {BROKER}:1 ({FIRST})"
    assert ("=" in first["locked"]) == cluster.fenced
    gave = later[0]
    assert (gave["joined"], gave["kept"], gave["share_after"]) == (c2, f"{BROKER}:0", f"{BROKER}:0")
    reason = f"{BROKER}:1 (allocated to {c2}: {c2} joined)"
    assert [one.get("draining") for one in later] == ([reason, None] if cluster.fenced else [None])
    assert later[-1]["dropped"] == reason
    got = told(cluster, "c2")[-1]
    assert got["share_after"] == f"{BROKER}:1"
    assert got["locked"].startswith(f"{BROKER}:1")


@scenario(also_fenced=True)
async def test_a_busy_queue_is_refused_first(cluster: Cluster) -> None:
    """While a call runs the owner is draining, and the joiner is refused. Then the lock is free."""
    cluster.expected.possible = {Cause.TAKEOVER}
    await cluster.broker_and_producer(queues=2)
    await cluster.consumer("c1", work_ms=6_000)
    await cluster.send(1, queue_id=1)
    await cluster.at(2_000)
    await cluster.consumer("c2")
    await cluster.at(60_000)
    c1, c2 = client_id(cluster, "c1"), client_id(cluster, "c2")
    reason = f"{BROKER}:1 (allocated to {c2}: {c2} joined)"
    ends = [(one.get("draining"), one.get("dropped", one.get("unlocked_later"))) for one in told(cluster, "c1")[1:]]
    assert ends == [(reason, None), (None, reason)]
    refused, got = told(cluster, "c2")
    if cluster.fenced:
        assert f"locked by another client, by {c1}" in refused["refused"]
        assert "ms at most" in refused["refused"]
    else:
        assert refused["refused"] == f"{BROKER}:1 (locked by another client, which the broker does not name)"
    free = "its last owner released it" if cluster.fenced else "its lock is free now"
    assert without_epochs(got["locked"]) == f"{BROKER}:1 ({free})"
    assert (got["share_before"], got.get("joined")) == (f"{BROKER}:1", None)


@scenario(also_fenced=True)
async def test_a_member_that_left_is_named(cluster: Cluster) -> None:
    """The one that stays takes its queue at once, because it left."""
    await cluster.broker(queues=2)
    await cluster.consumer("c1")
    await cluster.consumer("c2")
    await cluster.at(30_000)
    c2 = client_id(cluster, "c2")
    await cluster.leave("c2")
    await cluster.at(31_000)
    [one] = told(cluster, "c1", since_ms=30_000)
    assert (one["left"], one["kept"], one["share_after"]) == (c2, f"{BROKER}:0", f"{BROKER}:0 {BROKER}:1")
    assert without_epochs(one["locked"]) == f"{BROKER}:1 ({c2} left)"


@scenario(also_fenced=True)
async def test_a_crashed_member_leaves_its_lock(cluster: Cluster) -> None:
    """Until the lock is over the queue is refused: it names the member that had it, and that it is gone."""
    await cluster.broker(queues=2)
    await cluster.consumer("c1")
    await cluster.consumer("c2")
    await cluster.at(30_000)
    c2 = client_id(cluster, "c2")
    cluster.crash("c2")
    await cluster.at(120_000)
    gone, *_, got = told(cluster, "c1", since_ms=30_000)
    assert gone["left"] == c2
    if cluster.fenced:
        assert f"by {c2}, which is no member now: its lease or its lock delay runs, 2" in gone["refused"]
    else:
        assert f"which the broker does not name; {c2} had it in the last allocation" in gone["refused"]
    assert got["locked"].startswith(f"{BROKER}:1")
    assert len(told(cluster, "c1", since_ms=30_000)) == 2, "the rounds between them changed nothing"


@scenario(also_fenced=True)
async def test_an_unchanged_round_says_nothing(cluster: Cluster) -> None:
    """In ten minutes of rounds: one event for each topic, no refusal twice, and as many records in the trace."""
    await cluster.broker(queues=2)
    await cluster.consumer("c1", strategy=take_all)
    await cluster.consumer("c2", strategy=take_all)
    await cluster.at(600_000)
    [_, has], [waits] = told(cluster, "c1"), told(cluster, "c2")
    assert (has["strategy"], has["joined"]) == ("take_all", client_id(cluster, "c2"))
    assert has["kept"] == has["share_after"] == f"{BROKER}:0 {BROKER}:1"
    assert waits["refused"].startswith(f"{BROKER}:0 {BROKER}:1 (locked by another client")
    refusals = [one for one in cluster.events("lock_refused", host="c2") if one.level == "info"]
    assert len(refusals) == 3, "two queues of the topic, and the retry topic's"
    for host in ("c1", "c2"):
        records = [one for one in cluster.records(host) if one["event"] == "rebalanced" and one["topic"] == TOPIC]
        did = [[(row["queue_id"], row["did"]) for row in record["queues"]] for record in records]
        first = [(0, "locked"), (1, "locked")]
        assert did == ([first, []] if host == "c1" else [[(0, "refused"), (1, "refused")]])
        members = {*records[0]["members"], *records[-1]["joined"]}
        assert members == {client_id(cluster, one) for one in ("c1", "c2")}
        assert records[-1]["share_after"] == [f"{BROKER}:0-1"]


@scenario()
async def test_a_fenced_owner_says_how_its_period_ended(cluster: Cluster) -> None:
    """Its process stood still beyond its lease, and another member has the queue: the reason is the lease's end, and it
    is refused."""
    await cluster.broker(queues=1, lock_mode="fenced")
    await cluster.consumer("c1", strategy=take_all, fenced=True)
    await cluster.at(5_000)
    await cluster.consumer("c2", strategy=take_all, fenced=True)
    await cluster.at(20_000)
    c2 = client_id(cluster, "c2")
    cluster.world.stall("c1", 70_000)
    await cluster.at(120_000)
    lost = told(cluster, "c1", since_ms=85_000)[0]
    assert lost["refused"].startswith(f"{BROKER}:0 (locked by another client, by {c2}")
    [dropped] = cluster.events("queue_dropped", host="c1", queue=f"{TOPIC}@{BROKER}:0")
    assert "lease" in dropped.fields["why"] or "FENCED" in dropped.fields["why"]
    [got] = [one for one in told(cluster, "c2", since_ms=20_000) if "locked" in one]
    assert without_epochs(got["locked"]) in (
        f"{BROKER}:0 (its lock is free now)",
        f"{BROKER}:0 (its last owner released it)",
    )


@scenario(also_fenced=True)
async def test_more_queues_are_a_reason(cluster: Cluster) -> None:
    """The route changed, not the members."""
    server = await cluster.broker(queues=2)
    await cluster.consumer("c1")
    await cluster.at(10_000)
    server.create_topic(TOPIC, 3)
    await cluster.at(90_000)
    [_, one] = told(cluster, "c1")
    reason = "the route changed: the topic has 3 queues, had 2"
    assert without_epochs(one["locked"]) == f"{BROKER}:2 ({reason})"
    assert (one["kept"], one["of"]) == (f"{BROKER}:0 {BROKER}:1", 3)


@scenario(also_fenced=True)
async def test_each_ordering_explains_itself(cluster: Cluster) -> None:
    """By key with locks, without order and in broadcasting without any."""
    await cluster.broker(queues=2)
    await cluster.consumer("c1", ordering="key")
    await cluster.consumer("c2", ordering="key")
    await cluster.at(60_000)
    shares = sorted(told(cluster, host)[-1]["share_after"] for host in ("c1", "c2"))
    assert shares == [f"{BROKER}:0", f"{BROKER}:1"]
    await cluster.leave("c1")
    await cluster.leave("c2")
    await cluster.consumer("c3", ordering="none")
    await cluster.at(70_000)
    await cluster.consumer("c4", ordering="none")
    await cluster.at(100_000)
    c4 = client_id(cluster, "c4")
    first, gave = told(cluster, "c3")
    assert first["locked"] == f"{BROKER}:0 {BROKER}:1 ({FIRST})"
    assert gave["dropped"] == f"{BROKER}:1 (allocated to {c4}: {c4} joined)"
    await cluster.consumer("c5", message_model=MessageModel.BROADCASTING)
    await cluster.at(110_000)
    [every] = told(cluster, "c5")
    assert (every["strategy"], every.get("members")) == ("all queues: broadcasting", None)
    assert every["share_after"] == f"{BROKER}:0 {BROKER}:1"


@scenario(also_fenced=True)
async def test_several_topics_and_one_that_is_left(cluster: Cluster) -> None:
    """Each topic has an event of its own; one that is not subscribed any more gives its queues up."""
    server = await cluster.broker(queues=1)
    server.create_topic("Gates", 1)
    member = await cluster.consumer("c1")
    await cluster.world.host("c1").run(subscribe(member, "Gates"))
    await cluster.at(30_000)
    assert told(cluster, "c1", topic="Gates")[-1]["locked"].startswith(f"{BROKER}:0")
    await cluster.world.host("c1").run(subscribe(member, "Gates", no_more=True))
    await cluster.at(60_000)
    left = told(cluster, "c1", topic="Gates", since_ms=30_000)
    assert left[-1]["dropped"] == f"{BROKER}:0 (the topic is not subscribed any more)"
    assert (left[0]["share_before"], left[-1].get("share_after")) == (f"{BROKER}:0", None)
    assert len(told(cluster, "c1")) == 1


@scenario(also_fenced=True)
async def test_a_strategy_that_changes_its_mind(cluster: Cluster) -> None:
    """CONFIG gives every member the same queues: no owner is reckoned, and the reason is the allocation alone."""
    await cluster.broker(queues=2)
    config = AllocateByConfig([MessageQueue(TOPIC, BROKER, 0), MessageQueue(TOPIC, BROKER, 1)])
    await cluster.consumer("c1", strategy=config)
    await cluster.at(5_000)
    config.queues = [MessageQueue(TOPIC, BROKER, 0)]
    await cluster.at(60_000)
    one = told(cluster, "c1")[-1]
    assert (one["strategy"], one["dropped"]) == ("CONFIG", f"{BROKER}:1 (allocated to another member)")


@scenario(also_fenced=True)
async def test_a_member_answers_why(cluster: Cluster) -> None:
    """GET_CONSUMER_RUNNING_INFO has each queue with its last change, also when the last round changed nothing."""
    await cluster.broker(queues=3)
    await cluster.consumer("c1")
    await cluster.at(5_000)
    await cluster.consumer("c2")
    await cluster.at(300_000)
    c2 = client_id(cluster, "c2")
    rows = await explained(cluster, "c1")
    assert [(row["queue_id"], row["did"], row["why"]) for row in rows] == [
        (0, "locked", FIRST),
        (1, "locked", FIRST),
        (2, "dropped", f"allocated to {c2}: {c2} joined"),
    ]
    assert rows[0]["since_ms"] < rows[2]["since_ms"] < cluster.world.now_ms - 250_000
    assert rows[2]["owner"] == c2
    assert ["epoch" in row for row in rows] == [cluster.fenced, cluster.fenced, False]
