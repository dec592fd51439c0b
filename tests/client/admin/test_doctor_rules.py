"""Each rule of `lockstep doctor` fires on a bad case, and the good case is silent in all rules."""

from dataclasses import replace
from typing import Any

import pytest

from lockstep.client.diagnosis.facts import ClusterFacts, GroupFacts, KeySpread, MemberFacts, QueueFacts, TopicFacts
from lockstep.client.diagnosis.gather import without_cut_ones
from lockstep.client.diagnosis.rules import RULES, examine
from lockstep.protocol.bodies.client import POPS, Connection, ConsumeStatus, ProcessQueueInfo
from lockstep.protocol.bodies.lock_changes import LockChange
from lockstep.protocol.bodies.locks import LockTableRow
from lockstep.protocol.bodies.pop import DeliveryRow, DeliveryTableBody
from lockstep.protocol.codes import LanguageCode
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import TRACE_TOPIC
from tests.rows import by_row

NOW_MS = 1_700_000_000_000
TOPIC, GROUP = "orders", "shop"
QUEUES = [MessageQueue(TOPIC, "broker-a", number) for number in range(4)]
ORDERLY = {"PROP_CONSUMEORDERLY": "true", "maxReconsumeTimes": "-1"}


def member(client_id: str, queues: list[MessageQueue], **changes: Any) -> MemberFacts:
    info = ProcessQueueInfo(locked=True, last_lock_timestamp=NOW_MS - 5000, last_consume_timestamp=NOW_MS - 100)
    status = ConsumeStatus(consume_rt=12.0, consume_ok_tps=80.0)
    facts = MemberFacts(
        client_id, "127.0.0.1:50000", "JAVA", ORDERLY, {TOPIC: "*"}, dict.fromkeys(queues, info), {TOPIC: status}
    )
    return replace(facts, **changes)


def row(queue: MessageQueue, client_id: str, age_ms: int = 5000) -> LockTableRow:
    return LockTableRow(GROUP, queue, client_id, age_ms, 60_000 - age_ms, 100_000)


A, B = member("a", QUEUES[:2]), member("b", QUEUES[2:], address="127.0.0.1:50001")
LOCKS = {queue: row(queue, "a" if queue in A.process_queues else "b") for queue in QUEUES}
SHOP = GroupFacts(
    GROUP, (A, B), from_last_offset=True, queues=dict.fromkeys(QUEUES, QueueFacts(90, 100)), locks=LOCKS, changes=()
)
HEALTHY = ClusterFacts(
    NOW_MS,
    topics={TOPIC: TopicFacts({"broker-a": (4, 4)}), TRACE_TOPIC: TopicFacts({"broker-a": (1, 1)})},
    groups=(SHOP,),
    clocks={"broker 127.0.0.1:10911": 30},
)


def cluster(**changes: Any) -> ClusterFacts:
    """The healthy cluster with another group."""
    return replace(HEALTHY, groups=(replace(SHOP, **changes),))


def with_a(**changes: Any) -> ClusterFacts:
    return cluster(members=(replace(A, **changes), B))


def with_topic(**queues: tuple[int, int]) -> ClusterFacts:
    named = {name.replace("_", "-"): of for name, of in queues.items()}
    return replace(HEALTHY, topics={**HEALTHY.topics, TOPIC: TopicFacts(named)})


def owners(count: int) -> tuple[LockChange, ...]:
    return tuple(
        LockChange(n, NOW_MS - 60_000 + n, GROUP, QUEUES[0], None, "ab"[n % 2], None, "granted") for n in range(count)
    )


def short(epoch: int | None, life_ms: int = 30_000) -> LockTableRow:
    """A lock of a that lives no longer than its client trusts it."""
    return row(QUEUES[0], "a")._replace(remaining_ms=life_ms - 5000, epoch=epoch)


def again(cause: str, count: int) -> tuple[LockChange, ...]:
    """One client loses a queue and gets it again, each second."""
    ends = [LockChange(n, NOW_MS - 60_000 + n, GROUP, QUEUES[0], "a", None, None, cause) for n in range(count)]
    return tuple(
        one
        for end in ends
        for one in (end, end._replace(at_ms=end.at_ms + 1, old=None, new="a", cause="granted again", rest_ms=1))
    )


CONCURRENT = {**ORDERLY, "PROP_CONSUMEORDERLY": "false"}
FREE = {queue: of for queue, of in LOCKS.items() if queue != QUEUES[0]}
IDLE = ProcessQueueInfo(locked=True, last_lock_timestamp=NOW_MS, last_consume_timestamp=NOW_MS - 300_000)
HELD = DeliveryRow(QUEUES[0], 7, NOW_MS - 90_000, NOW_MS + 30_000, 0, None, "p1")
BAD: dict[str, ClusterFacts] = {
    "mixed-order": with_a(properties=CONCURRENT),
    "pops-beside-owners": cluster(members=(A, B, member("p", [], properties={**ORDERLY, POPS: "true"}))),
    "same-client-id": with_a(others=("127.0.0.1:50009",), others_live=True),
    "unequal-subscriptions": with_a(subscriptions={TOPIC: "paid"}),
    "no-owner": cluster(locks=FREE),
    "key-in-several-queues": cluster(spreads=(KeySpread(TOPIC, "1001", (QUEUES[0], QUEUES[2])),)),
    "queues-changed": with_topic(broker_a=(4, 8)),
    "queues-differ-over-brokers": with_topic(broker_a=(4, 4), broker_b=(2, 2)),
    "slow-listener": with_a(statuses={TOPIC: ConsumeStatus(consume_rt=31_000.0, consume_ok_tps=0.1)}),
    "late-renewals": cluster(locks={**LOCKS, QUEUES[0]: row(QUEUES[0], "a", 45_000)}),
    "short-locks": cluster(locks={**LOCKS, **dict.fromkeys(QUEUES[:2], short(None))}),
    "flapping": cluster(changes=owners(8)),
    "blocked-head": with_a(statuses={TOPIC: ConsumeStatus(consume_failed_tps=0.9)}),
    "idle-owner": with_a(process_queues={QUEUES[0]: IDLE, QUEUES[1]: A.process_queues[QUEUES[1]]}),
    "more-members-than-queues": cluster(members=(A, B, *(member(f"c{n}", []) for n in range(3)))),
    "from-last-offset": cluster(queues={**SHOP.queues, QUEUES[3]: QueueFacts(-1, 100)}),
    "unequal-settings": with_a(properties={**ORDERLY, "maxReconsumeTimes": "16"}),
    "dead-letters": cluster(dead_letter_ms=NOW_MS - 60_000, dead_letter_count=2),
    "retry-without-members": cluster(members=(), retry_lag=3),
    "limits-met": replace(HEALTHY, limits={"broker b": {"held_pulls_max": (3, NOW_MS - 60_000)}}),
    "clocks-apart": replace(HEALTHY, clocks={"broker 10.0.0.2:10911": -4000}),
    "group-not-ordered": cluster(ordered_at_broker=False),
    "fifo-without-order": replace(
        cluster(members=(replace(A, properties=CONCURRENT),), locks={}), fifo_topics={TOPIC, "other"}
    ),
    "delivery-holds-queue": cluster(deliveries=DeliveryTableBody((HELD,))),
    "stale-answers": cluster(deliveries=DeliveryTableBody((), stale=2, stale_ms=NOW_MS - 60_000)),
    "trace-topic-missing": replace(
        with_a(properties={**ORDERLY, "enableMsgTrace": "true"}), topics={TOPIC: HEALTHY.topics[TOPIC]}
    ),
}


def test_a_healthy_cluster_is_silent() -> None:
    """Also without the calls that only Lockstep's brokers have, and with a member that tells nothing."""
    assert examine(HEALTHY) == []
    assert examine(cluster(locks=None, changes=None)) == []
    assert examine(cluster(members=(A, MemberFacts("go", "127.0.0.1:5", "GO", has_info=False)), locks=None)) == []
    assert examine(cluster(members=(), locks={})) == []


@by_row("rule", RULES)
def test_each_rule_fires_on_its_bad_case(rule: str) -> None:
    """With evidence that names the group, topic or broker; other rules may see the same trouble."""
    found = [finding for finding in examine(BAD[rule]) if finding.rule == rule]
    assert len(found) == 1
    (finding,) = found
    assert finding.severity == RULES[rule].severity
    assert finding.evidence
    assert finding.where.split()[0] in ("group", "topic", "broker")


def test_what_was_seen_is_named() -> None:
    """Queues, members, keys and times stand in the evidence."""
    seen = {rule: next(one.evidence for one in examine(facts) if one.rule == rule) for rule, facts in BAD.items()}
    assert seen["no-owner"] == "messages wait in orders@broker-a:0, and none of 2 members has the lock"
    assert seen["key-in-several-queues"] == "key '1001' of orders in orders@broker-a:0, orders@broker-a:2"
    assert seen["pops-beside-owners"] == "they pop: p; they own queues: a, b"
    assert seen["unequal-settings"] == "maxReconsumeTimes: -1 at b; 16 at a"
    assert seen["short-locks"] == (
        "of its locks: a renews it each 20.0 s and trusts it for 30.0 s, and it lives 30.0 s"
    )
    assert seen["flapping"] == "queues got another owner within 15 minutes: orders@broker-a:0 (7 times)"
    assert seen["fifo-without-order"] == (
        "it consumes orders, made for messages in order, and consumeMessageOrderly is not set"
    )
    assert seen["delivery-holds-queue"] == "deliveries are held: orders@broker-a:0 at offset 7 by p1 for 90.0 s"
    assert seen["stale-answers"] == "2 answers came after another delivery had begun, the last one 60.0 s ago"
    assert seen["limits-met"] == "held_pulls_max was reached 3 times since its start, the last one 60.0 s ago"
    assert seen["clocks-apart"] == "its clock is 4.0 s behind this machine's"


def test_a_cure_can_be_pasted() -> None:
    """It has the group's name where a command needs it."""
    found = [finding for facts in BAD.values() for finding in examine(facts)]
    cures = {finding.rule: finding.cure for finding in found}
    assert cures["dead-letters"] == f"`lockstep message tail -t '%DLQ%{GROUP}'` shows them."
    assert cures["group-not-ordered"] == f"`lockstep group update {GROUP} --fifo`."
    assert not any("GROUP" in finding.cure for finding in found)


EXPIRED = tuple(LockChange(n, NOW_MS - n, GROUP, QUEUES[0], "a", "a", None, "granted again") for n in range(9, 0, -1))
OLD = tuple(one._replace(at_ms=NOW_MS - 900_001) for one in owners(9))


def all_short(epoch: int | None, life_ms: int = 30_000) -> dict[MessageQueue, LockTableRow]:
    return dict.fromkeys(QUEUES[:2], short(epoch, life_ms)) | {q: row(q, "b") for q in QUEUES[2:]}


OWN: dict[str, Any] = {name: str(ms) for name, ms in (
    ("rocketmq.client.rebalance.lockInterval", 5000), ("rocketmq.client.rebalance.lockMaxLiveTime", 10_000),
)}  # fmt: skip
LIVES: list[tuple[str, ClusterFacts, list[str]]] = [
    ("six changes of the owner", cluster(changes=owners(7)), []),
    ("seven", cluster(changes=owners(8)), ["flapping"]),
    ("seven, long ago", cluster(changes=OLD), []),
    ("one owner, whose lock expired", cluster(changes=EXPIRED), []),
    (
        "one owner, whose lock expired, and short locks",
        cluster(changes=EXPIRED, locks=all_short(None)),
        ["short-locks"],
    ),
    ("one owner that gives its queue back", cluster(changes=again("unlocked", 9)), []),
    ("refused clients", cluster(changes=tuple(c._replace(cause="refused", old="a", new="b") for c in owners(9))), []),
    ("a millisecond longer than it is trusted", cluster(locks=all_short(None, 30_001)), []),
    ("shorter, and fenced", cluster(locks=all_short(7, 20_000)), []),
    (
        "shorter, fenced, and it ran out",
        cluster(locks=all_short(7, 20_000), changes=again("lease ended", 7)),
        ["short-locks"],
    ),
    ("shorter, fenced, and it ran out six times", cluster(locks=all_short(7), changes=again("lease ended", 6)), []),
    (
        "short, and renewed more often",
        cluster(locks=all_short(None, 20_000), members=(replace(A, properties={**ORDERLY, **OWN}), B)),
        [],
    ),
    (
        "short, and renewed late",
        cluster(locks=all_short(None, 9000), members=(replace(A, properties={**ORDERLY, **OWN}), B)),
        ["short-locks"],
    ),
]


@pytest.mark.parametrize(("facts", "rules"), [row[1:] for row in LIVES], ids=[row[0] for row in LIVES])
def test_owners_are_counted_and_not_grants(facts: ClusterFacts, rules: list[str]) -> None:
    """A member whose lock runs out and that gets it again is one owner: the setting is wrong, and nothing flaps."""
    assert [one.rule for one in examine(facts)] == rules


def test_a_queue_that_is_handed_over_has_no_owner_for_a_while() -> None:
    """A change of owners within the life of a lock is no finding yet."""
    freed = LockChange(0, NOW_MS - 5000, GROUP, QUEUES[0], "a", None, None, "unlocked")
    assert examine(cluster(locks=FREE, changes=(freed,))) == []
    assert examine(cluster(locks=FREE, changes=(freed._replace(at_ms=NOW_MS - 61_000),))) != []


def connection(address: str, joined_ago_ms: int | None, heard_ago_ms: int | None) -> Connection:
    return Connection("a", address, LanguageCode.PYTHON, 409, joined_ago_ms, heard_ago_ms)


def test_a_connection_that_was_cut_is_no_second_client() -> None:
    """It sent no heartbeat since its client joined again. Two clients send both; of RocketMQ's broker both count."""
    cut, again = connection("h:1", 500_000, 20_000), connection("h:2", 15_000, 15_000)
    assert without_cut_ones([cut, again]) == [again]
    twin = connection("h:1", 500_000, 14_000)
    assert without_cut_ones([twin, again]) == [twin, again]
    unknown = [connection("h:1", None, None), connection("h:2", None, None)]
    assert without_cut_ones(unknown) == unknown
    (finding,) = examine(with_a(others=("127.0.0.1:50009",)))
    assert finding.evidence.endswith("; one may have been cut, and be gone within two minutes")


def test_a_listener_is_slow_on_average_or_at_times_or_at_this_moment() -> None:
    """Above half the life of a lock: the mean, more than one call of a hundred, or the call that runs."""
    some = {**ORDERLY, "listenerCalls": "300", "listenerCallsSlow": "3"}
    assert examine(with_a(properties=some)) == []
    (finding,) = examine(with_a(properties={**some, "listenerCallsSlow": "4"}))
    assert finding.evidence == "4 of 300 calls of a took longer than half the life of a lock"
    running = ProcessQueueInfo(
        locked=True, last_lock_timestamp=NOW_MS, last_consume_timestamp=NOW_MS - 31_000, transaction_msg_count=1
    )
    assert examine(with_a(process_queues={QUEUES[0]: running, QUEUES[1]: A.process_queues[QUEUES[1]]})) == []
    stuck = {QUEUES[0]: running._replace(cached_msg_count=9), QUEUES[1]: A.process_queues[QUEUES[1]]}
    (finding,) = examine(with_a(process_queues=stuck))
    assert finding.rule == "slow-listener"
    assert finding.evidence == "a call of a for orders@broker-a:0 runs since 31.0 s, and messages wait"


def test_which_deliveries_are_a_finding() -> None:
    """Those that hold a queue for long now, and those that were made again and again; stale answers of late."""
    for row, is_found in (
        (HELD._replace(pop_ms=NOW_MS - 59_000), False),
        (HELD._replace(visible_ms=NOW_MS), False),
        (HELD._replace(visible_ms=NOW_MS, times_before=2), False),
        (HELD._replace(visible_ms=NOW_MS, times_before=3, client_id=None), True),
    ):
        assert bool(examine(cluster(deliveries=DeliveryTableBody((row,))))) is is_found
    assert not examine(cluster(locks=FREE, deliveries=DeliveryTableBody((), topics=(TOPIC,))))
    assert not examine(cluster(deliveries=DeliveryTableBody((), late=9, stale=2, stale_ms=NOW_MS - 900_001)))


def test_a_fifo_topic_is_in_order_by_locks_or_by_its_groups_setting() -> None:
    assert examine(replace(HEALTHY, fifo_topics={TOPIC})) == []
    offline = cluster(members=(), locks={}, ordered_at_broker=True)
    assert examine(replace(offline, fifo_topics={TOPIC})) == []


def test_limits_of_long_ago_are_no_finding() -> None:
    """A limit that was reached once this morning says nothing of now."""
    assert examine(replace(HEALTHY, limits={"broker b": {"held_pulls_max": (3, NOW_MS - 900_001)}})) == []


def test_clocks_of_clients() -> None:
    """A producer is ahead when its messages are stored before they are sent, a consumer when it pulls in the future."""
    assert examine(replace(HEALTHY, producers_ahead={"10.0.0.7": 900})) == []
    (finding,) = examine(replace(HEALTHY, producers_ahead={"10.0.0.7": 4000}))
    assert finding[2:4] == ("producer 10.0.0.7", "its messages were stored 4.0 s before they were sent")
    pulled = A.process_queues[QUEUES[0]]._replace(last_pull_timestamp=NOW_MS + 5000)
    (finding,) = examine(with_a(process_queues={**A.process_queues, QUEUES[0]: pulled}))
    assert finding[2:4] == ("client a", "its clock is 5.0 s ahead of this machine's")


def test_strategies_are_compared_by_what_they_do() -> None:
    """Java shows an object with a hash of its own, our client a name."""
    name, java = "allocateMessageQueueStrategy", "org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueue"
    same = [f"{java}Averagely@1b2c", f"{java}Averagely@77aa", "AVG"]
    members = tuple(member(text, [], properties={**ORDERLY, name: text}) for text in same)
    assert examine(cluster(members=members)) == []
    other = member("c", [], properties={**ORDERLY, name: f"{java}ConsistentHash@1b2c"})
    (finding,) = examine(cluster(members=(members[2], other)))
    assert finding.evidence == "allocateMessageQueueStrategy: AVG at AVG; CONSISTENT_HASH at c"


def test_apaches_members_say_which_locks_they_have() -> None:
    """Without a lock table a queue that no member believes to have locked has no owner."""
    believed = {queue: info._replace(locked=False) for queue, info in A.process_queues.items()}
    facts = cluster(locks=None, changes=None, members=(replace(A, process_queues=believed), B))
    assert [finding.rule for finding in examine(facts)] == ["no-owner"]


def test_members_that_pop_have_no_locks() -> None:
    """More of them than queues share the messages of a queue, and a slow call outlives no lock, at Apache's too."""
    popping = {**ORDERLY, POPS: "true", "listenerCalls": "9", "listenerCallsSlow": "9"}
    slow = {TOPIC: ConsumeStatus(consume_rt=31_000.0, consume_ok_tps=0.1)}
    members = tuple(member(f"c{number}", [], properties=popping, statuses=slow) for number in range(5))
    assert examine(cluster(locks=None, changes=None, members=members)) == []
    plain = tuple(member(f"c{number}", []) for number in range(5))
    popped = DeliveryTableBody((), topics=(TOPIC,))
    assert examine(cluster(locks=None, members=plain, deliveries=popped)) == []


def test_fenced_locks_keep_pops_away() -> None:
    """A queue that has an owner is not popped, so members of both kinds break nothing."""
    (*_, popping) = BAD["pops-beside-owners"].groups[0].members
    fenced = {queue: of._replace(epoch=7) for queue, of in LOCKS.items()}
    assert examine(cluster(members=(A, B, popping), locks=fenced)) == []


@pytest.mark.parametrize("text", ["9" * 5000, "\u00b2", "-1", "", "1.5"])
def test_a_member_may_write_anything_as_a_number(text: str) -> None:
    """What is no number counts as 0, and the other rules go on."""
    strange = member("a", QUEUES, properties={**ORDERLY, "listenerCalls": text, "listenerCallsSlow": text})
    assert (strange.count("listenerCalls"), strange.count("absent")) == (0, 0)
    assert examine(cluster(members=(strange,), locks=None)) == examine(
        cluster(members=(member("a", QUEUES),), locks=None)
    )
