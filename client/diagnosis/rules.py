"""The doctor's rules: one table, a plain function each, from facts to findings."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from lockstep.client.diagnosis.facts import ClusterFacts, GroupFacts, MemberFacts
from lockstep.protocol.bodies.lock_changes import LockChange
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import TRACE_TOPIC
from lockstep.remoting.texts import counted, seconds

__all__ = ["RULES", "Evidence", "Finding", "Rule", "Severity", "examine", "limits_met", "not_looked_at"]

_HOUR_MS: Final = 3_600_000
_FLAP_WINDOW_MS: Final = 900_000
# Changes of the owner of one queue within 15 minutes: three rebalances give two each.
_FLAPS: Final = 6
# RocketMQ's clients renew a lock so often, and trust it for so long, when they do not say otherwise (wire.md 7.3).
_RENEWAL_MS: Final = 20_000
_TRUST_MS: Final = 30_000
_IDLE_MS: Final = 60_000
_SETTINGS: Final = (  # that all members of an ordered group should share
    "maxReconsumeTimes", "messageModel", "consumeFromWhere", "consumeMessageBatchMaxSize",
    "suspendCurrentQueueTimeMillis", "allocateMessageQueueStrategy",
)  # fmt: skip
_OF_LOCKSTEP: Final = (
    "flapping", "late-renewals", "short-locks", "clocks-apart", "delivery-holds-queue", "stale-answers",
)  # fmt: skip
_SHOWN_MAX: Final = 3
_OF_GROUP: Final = "group "
_GROUP: Final = "GROUP"  # in a cure: the name of the group
_CLOCK_WARN_MS: Final = 1000
_RECENT_MS: Final = 900_000
# A message that was delivered so often is not getting any further.
_TIMES: Final = 3
_LEASE_ENDED: Final = "lease ended"

Evidence = Iterator[tuple[str, str]]  # where, what was seen


class Severity(IntEnum):
    """The exit status of a doctor that found it."""

    WARNING = 3
    BREAKS_ORDER = 4


class Finding(NamedTuple):
    """
    Args:
        where: A group, a topic or a broker.
        evidence: What was seen, with names and numbers.
    """

    rule: str
    severity: Severity
    where: str
    evidence: str
    consequence: str
    cure: str


OfGroup = Callable[[GroupFacts, ClusterFacts], Iterator[str]]
OfCluster = Callable[[ClusterFacts], Evidence]


class Rule(NamedTuple):
    severity: Severity
    look: OfCluster
    consequence: str
    cure: str


def examine(facts: ClusterFacts) -> list[Finding]:
    """What all rules find, the worst first."""
    found = [
        Finding(name, rule.severity, where, evidence, rule.consequence, _cure(rule, where))
        for name, rule in RULES.items()
        for where, evidence in rule.look(facts)
    ]
    return sorted(found, key=lambda finding: (-finding.severity, finding.where))


def _cure(rule: Rule, where: str) -> str:
    """With the name of the group, as a command needs it."""
    return rule.cure.replace(_GROUP, where.removeprefix(_OF_GROUP))


def not_looked_at(facts: ClusterFacts) -> tuple[str, ...]:
    """The rules that need what RocketMQ's brokers do not tell."""
    is_apache = any(group.changes is None for group in facts.groups)
    return _OF_LOCKSTEP if is_apache else ()


def _each_group(look: OfGroup) -> OfCluster:
    def of_cluster(facts: ClusterFacts) -> Evidence:
        for group in facts.groups:
            for evidence in look(group, facts):
                yield f"{_OF_GROUP}{group.name}", evidence

    return of_cluster


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN_MAX} more" if len(names) > _SHOWN_MAX else ""
    return ", ".join(names[:_SHOWN_MAX]) + more


# Members -----------------------------------------------------------------------------------------------------


def _mixed(group: GroupFacts, _: ClusterFacts) -> Iterator[str]:
    orderly = [member.client_id for member in group.members if member.orderly]
    concurrent = [member.client_id for member in group.members if member.orderly is False]
    if orderly and concurrent:
        yield f"in order: {_some(orderly)}; concurrently: {_some(concurrent)}"


def _pops_beside_owners(group: GroupFacts, _: ClusterFacts) -> Iterator[str]:
    """Fenced locks keep both apart: a queue that has an owner is not popped."""
    pops = [member.client_id for member in group.members if member.pops]
    own = [m.client_id for m in group.members if not m.pops and (m.orderly or m.process_queues)]
    locks = (group.locks or {}).values()
    is_fenced = bool(locks) and all(row.epoch is not None for row in locks)
    if pops and own and not is_fenced:
        yield f"they pop: {_some(pops)}; they own queues: {_some(own)}"


def _unequal_subscriptions(group: GroupFacts, _: ClusterFacts) -> Iterator[str]:
    known = [member for member in group.members if member.has_info]
    if len({tuple(sorted(member.subscriptions.items())) for member in known}) > 1:
        yield "; ".join(f"{member.client_id} has {_subscribed(member)}" for member in known[:_SHOWN_MAX])


def _subscribed(member: MemberFacts) -> str:
    return ", ".join(f"{topic} {expression!r}" for topic, expression in sorted(member.subscriptions.items())) or "none"


def _unequal_settings(group: GroupFacts, _: ClusterFacts) -> Iterator[str]:
    for name in _SETTINGS:
        values: dict[str, list[str]] = {}
        for member in group.members:
            value = member.setting(name)
            if value is not None:
                values.setdefault(value, []).append(member.client_id)
        if len(values) > 1:
            yield f"{name}: " + "; ".join(f"{value} at {_some(members)}" for value, members in sorted(values.items()))


def _same_id(group: GroupFacts, _: ClusterFacts) -> Iterator[str]:
    for member in group.members:
        if member.others:
            perhaps = "" if member.others_live else "; one may have been cut, and be gone within two minutes"
            yield f"{member.client_id} is connected from {_some(sorted({member.address, *member.others}))}{perhaps}"


def _too_many_members(group: GroupFacts, _: ClusterFacts) -> Iterator[str]:
    ids = {member.client_id for member in group.members}
    by_topic = Counter(queue.topic for queue in group.queues)
    for topic, count in sorted(by_topic.items()):
        if group.is_ordered and not group.broadcasting and len(ids) > count and not group.is_popped(topic):
            yield f"{counted(len(ids), 'member')}, and {topic} has {counted(count, 'queue')}"


def _from_last_offset(group: GroupFacts, _: ClusterFacts) -> Iterator[str]:
    new = [str(queue) for queue, facts in group.queues.items() if facts.committed < 0 and facts.end > 0]
    if group.is_ordered and group.from_last_offset and new:
        yield f"no offset is stored of {_some(new)}, which {'has' if len(new) == 1 else 'have'} messages"


def _no_trace_topic(group: GroupFacts, facts: ClusterFacts) -> Iterator[str]:
    wants = [m.client_id for m in group.members if m.properties.get("enableMsgTrace", "").lower() == "true"]
    if wants and TRACE_TOPIC not in facts.topics:
        yield f"{_some(wants)} would send traces to {TRACE_TOPIC}, which does not exist"


# Listeners ---------------------------------------------------------------------------------------------------


def _slow_listener(group: GroupFacts, facts: ClusterFacts) -> Iterator[str]:
    limit_ms = facts.lease_ms / 2
    for member in group.members:
        if member.pops:
            continue  # it has no locks
        for topic, status in sorted(member.statuses.items()):
            if member.orderly and status.consume_rt > limit_ms:
                mean = seconds(int(status.consume_rt))
                whose = f"{member.client_id} for {topic}"
                yield f"a call of {whose} takes {mean} on average; a lock lasts {seconds(facts.lease_ms)}"
        for queue, info in member.process_queues.items():
            runs_ms = facts.now_ms - info.last_consume_timestamp
            if member.orderly and info.transaction_msg_count and info.cached_msg_count and runs_ms > limit_ms:
                yield f"a call of {member.client_id} for {queue} runs since {seconds(runs_ms)}, and messages wait"
        calls, slow = member.count("listenerCalls"), member.count("listenerCallsSlow")
        if member.orderly and slow * 100 > calls:
            yield f"{slow:,} of {counted(calls, 'call')} of {member.client_id} took longer than half the life of a lock"


def _blocked_head(group: GroupFacts, _: ClusterFacts) -> Iterator[str]:
    for member in group.members:
        for topic, status in sorted(member.statuses.items()):
            heads = [
                f"{queue} at offset {group.queues[queue].committed}"
                for queue in member.process_queues
                if queue.topic == topic and queue in group.queues and group.queues[queue].lag
            ]
            if member.orderly and status.consume_failed_tps > 0 and status.consume_ok_tps == 0 and heads:
                yield f"{member.client_id} fails again and again, and succeeds with none: {_some(heads)}"


def _idle_owner(group: GroupFacts, facts: ClusterFacts) -> Iterator[str]:
    for member in group.members:
        for queue, info in member.process_queues.items():
            known = group.queues.get(queue)
            if not (known and known.lag and member.orderly) or info.dropped or info.transaction_msg_count:
                continue
            idle_ms = facts.now_ms - info.last_consume_timestamp
            if idle_ms > _IDLE_MS:
                since = seconds(idle_ms)
                yield f"{queue} is {known.lag:,} behind, and {member.client_id} has consumed none for {since}"


# Locks -------------------------------------------------------------------------------------------------------


def _no_owner(group: GroupFacts, facts: ClusterFacts) -> Iterator[str]:
    if not group.members or not group.is_ordered or group.broadcasting:
        return
    behind = [queue for queue, known in group.queues.items() if known.lag and not group.is_popped(queue.topic)]
    moving = {one.queue for one in group.changes or () if facts.now_ms - one.at_ms <= facts.lease_ms}
    free = [str(queue) for queue in behind if queue not in moving and not _owned(queue, group, facts)]
    if free:
        yield f"messages wait in {_some(free)}, and none of {counted(len(group.members), 'member')} has the lock"


def _owned(queue: MessageQueue, group: GroupFacts, facts: ClusterFacts) -> bool:
    if group.locks is not None:
        row = group.locks.get(queue)
        return row is not None and row.is_held
    # RocketMQ lists no locks: its members say which they believe to have.
    return any(
        (info := member.process_queues.get(queue)) is not None and not info.dropped and info.locked
        for member in group.members
    ) or not all(member.has_info for member in group.members)


def _late_renewals(group: GroupFacts, facts: ClusterFacts) -> Iterator[str]:
    late = [
        f"{queue} of {row.client_id} ({seconds(row.age_ms)} ago)"
        for queue, row in (group.locks or {}).items()
        if row.is_held and row.age_ms > facts.lease_ms // 2
    ]
    if late:
        yield f"the last renewals are old: {_some(late)}"


def _short_locks(group: GroupFacts, facts: ClusterFacts) -> Iterator[str]:
    """A lock ends before its owner renews it, or before its owner stops trusting it."""
    lapses = Counter(
        change.new for last, end, change in _grants(group, facts) if last == change.new and end == _LEASE_ENDED
    )
    short = []
    for member in group.members:
        if member.pops:
            continue
        rows = [row for row in (group.locks or {}).values() if row.client_id == member.client_id and not row.draining]
        life_ms = max((row.age_ms + row.remaining_ms for row in rows), default=facts.lease_ms)
        renewal_ms = member.count("rocketmq.client.rebalance.lockInterval") or _RENEWAL_MS
        trust_ms = member.count("rocketmq.client.rebalance.lockMaxLiveTime") or _TRUST_MS
        # A fenced grant says how long it lives, and its client renews it in time; a client of RocketMQ does not.
        is_fenced = all(row.epoch is not None for row in rows) and lapses[member.client_id] <= _FLAPS
        if life_ms <= max(renewal_ms, trust_ms) and not is_fenced:
            renews = f"renews it each {seconds(renewal_ms)} and trusts it for {seconds(trust_ms)}"
            short.append(f"{member.client_id} {renews}, and it lives {seconds(life_ms)}")
    if short:
        yield f"of its locks: {_some(short)}"


def _flapping(group: GroupFacts, facts: ClusterFacts) -> Iterator[str]:
    owners = Counter(change.queue for last, _, change in _grants(group, facts) if last not in (None, change.new))
    often = [f"{queue} ({count} times)" for queue, count in owners.most_common() if count > _FLAPS]
    if often:
        yield f"queues got another owner within 15 minutes: {_some(often)}"


def _grants(group: GroupFacts, facts: ClusterFacts) -> Iterator[tuple[str | None, str, LockChange]]:
    """Grants within 15 minutes, each with the last owner of its queue and why that one's period ended, if known."""
    last: dict[MessageQueue, tuple[str | None, str]] = {}
    for change in group.changes or ():
        if change.is_refusal:
            continue
        owner, end = last.get(change.queue, (None, ""))
        if change.new is not None and facts.now_ms - change.at_ms <= _FLAP_WINDOW_MS:
            yield change.old or owner, end, change
        last[change.queue] = (change.new or change.old or owner, "" if change.new is not None else change.cause)


# Topics and messages -----------------------------------------------------------------------------------------


def _spread_keys(group: GroupFacts, _: ClusterFacts) -> Iterator[str]:
    if group.is_ordered and group.spreads:
        texts = [f"key {key!r} of {topic} in {_some(list(map(str, queues)))}" for topic, key, queues in group.spreads]
        yield _some(texts)


def _dead_letters(group: GroupFacts, facts: ClusterFacts) -> Iterator[str]:
    if group.dead_letter_ms and facts.now_ms - group.dead_letter_ms <= _HOUR_MS:
        age = seconds(max(facts.now_ms - group.dead_letter_ms, 0))
        yield f"{counted(group.dead_letter_count, 'dead letter')}, the last one {age} ago"


def _retry_without_members(group: GroupFacts, _: ClusterFacts) -> Iterator[str]:
    if group.retry_lag and not group.members:
        yield f"{counted(group.retry_lag, 'message')} of its retry topic wait"


def _not_ordered_at_broker(group: GroupFacts, _: ClusterFacts) -> Iterator[str]:
    if group.is_ordered and group.ordered_at_broker is False:
        yield "consumeMessageOrderly is false on a broker of RocketMQ 5"


# Pops of RocketMQ 5 --------------------------------------------------------------------------------------------


def _fifo_without_order(group: GroupFacts, facts: ClusterFacts) -> Iterator[str]:
    topics = sorted({queue.topic for queue in group.queues} & set(facts.fifo_topics))
    if topics and not group.is_ordered and not group.ordered_at_broker:
        yield f"it consumes {_some(topics)}, made for messages in order, and consumeMessageOrderly is not set"


def _long_delivery(group: GroupFacts, facts: ClusterFacts) -> Iterator[str]:
    rows = group.deliveries.rows if group.deliveries is not None else ()
    long = [
        f"{row.queue} at offset {row.queue_offset} by {row.client_id or 'a client'} for {seconds(age_ms)}"
        for row in rows
        if (age_ms := facts.now_ms - row.pop_ms) > _IDLE_MS and row.visible_ms > facts.now_ms
    ]
    again = [f"{row.queue} at offset {row.queue_offset} ({row.times_before + 1} times)" for row in rows
             if row.times_before >= _TIMES]  # fmt: skip
    if long:
        yield f"deliveries are held: {_some(long)}"
    if again:
        yield f"delivered again and again, and acknowledged by nobody: {_some(again)}"


def _stale_answers(group: GroupFacts, facts: ClusterFacts) -> Iterator[str]:
    of = group.deliveries
    if of is not None and of.stale and facts.now_ms - of.stale_ms <= _RECENT_MS:
        last = seconds(max(facts.now_ms - of.stale_ms, 0))
        yield f"{counted(of.stale, 'answer')} came after another delivery had begun, the last one {last} ago"


# Brokers and topics, in all groups together ------------------------------------------------------------------


def _queues_differ(facts: ClusterFacts) -> Evidence:
    ordered = {queue.topic for group in facts.groups if group.is_ordered for queue in group.queues}
    for topic in sorted(ordered & set(facts.topics)):
        of = facts.topics[topic].queues
        if len({write for _, write in of.values()}) > 1:
            yield f"topic {topic}", ", ".join(f"{broker}: {write}" for broker, (_, write) in sorted(of.items()))


def _queues_changed(facts: ClusterFacts) -> Evidence:
    ordered = {queue.topic for group in facts.groups if group.is_ordered for queue in group.queues}
    for topic in sorted(ordered & set(facts.topics)):
        for broker, (read, write) in sorted(facts.topics[topic].queues.items()):
            if read != write:
                yield f"topic {topic}", f"{broker} has {read} queues for reading and {write} for writing"


def _clocks_apart(facts: ClusterFacts) -> Evidence:
    for what, ahead_ms in sorted(facts.clocks.items()):
        if abs(ahead_ms) > _CLOCK_WARN_MS:
            side = "ahead of" if ahead_ms > 0 else "behind"
            yield what, f"its clock is {seconds(abs(ahead_ms))} {side} this machine's"
    for producer, ahead_ms in sorted(facts.producers_ahead.items()):
        if ahead_ms > _CLOCK_WARN_MS:
            yield f"producer {producer}", f"its messages were stored {seconds(ahead_ms)} before they were sent"
    for member in (member for group in facts.groups for member in group.members):
        newest_ms = max((info.last_pull_timestamp for info in member.process_queues.values()), default=0)
        if (ahead_ms := newest_ms - facts.now_ms) > _CLOCK_WARN_MS:
            yield f"client {member.client_id}", f"its clock is {seconds(ahead_ms)} ahead of this machine's"


def limits_met(facts: ClusterFacts) -> Evidence:
    """Limits of brokers that were reached within 15 minutes."""
    for broker, limits in sorted(facts.limits.items()):
        for setting, (count, last_ms) in sorted(limits.items()):
            ago_ms = facts.now_ms - last_ms
            if ago_ms <= _RECENT_MS:
                last = f"the last one {seconds(max(ago_ms, 0))} ago"
                yield broker, f"{setting} was reached {counted(count, 'time')} since its start, {last}"


_W, _B = Severity.WARNING, Severity.BREAKS_ORDER
RULES: Final[Mapping[str, Rule]] = {
    "mixed-order": Rule(
        _B, _each_group(_mixed),
        "Concurrent members take no locks, so two members consume one queue at once.",
        "Give all members of the group an orderly listener, or the others another group.",
    ),
    "pops-beside-owners": Rule(
        _B, _each_group(_pops_beside_owners),
        "Members that pop (gRPC, `--pop`) get messages of queues that other members consume.",
        "Give the members that pop a group of their own, or use fenced locks.",
    ),
    "same-client-id": Rule(
        _B, _each_group(_same_id),
        "The broker takes both for one client and grants both the same queues.",
        "Give each process an instance name of its own.",
    ),
    "unequal-subscriptions": Rule(
        _B, _each_group(_unequal_subscriptions),
        "The broker keeps the subscription that was sent last: members lose messages, and queues move back and forth.",
        "Let all members subscribe to the same topics with the same expressions.",
    ),
    "no-owner": Rule(
        _B, _each_group(_no_owner),
        "These messages are not consumed.",
        "Look at the members' logs for lock_refused; a lock of a dead member ends after its life (60 s).",
    ),
    "key-in-several-queues": Rule(
        _B, _each_group(_spread_keys),
        "Messages of one key are consumed by several members at once.",
        "Send with the same key always to the same queue; do not change the number of queues.",
    ),
    "queues-changed": Rule(
        _B, _queues_changed,
        "Keys move to other queues: new messages overtake those that wait in the old ones.",
        "Let consumers finish the old queues, then set both numbers to the same value.",
    ),
    "queues-differ-over-brokers": Rule(
        _W, _queues_differ,
        "Shares of members are unequal, and keys move when a broker is away.",
        "Give the topic the same number of queues on each broker.",
    ),
    "slow-listener": Rule(
        _B, _each_group(_slow_listener),
        "A call that outlives the lock runs beside the next owner's.",
        "Make calls shorter, or use fenced locks, which renew while a call runs and refuse what is late.",
    ),
    "short-locks": Rule(
        _B, _each_group(_short_locks),
        "Locks are shorter than the clients' renewal: each runs out while its owner works, and two may own a queue.",
        "Start brokers with `--lock-live-ms` above both, 60000 as in RocketMQ, or lower both settings of the clients.",
    ),
    "late-renewals": Rule(
        _W, _each_group(_late_renewals),
        "Members renew each 20 s. A lock that is not renewed is lost, and its queue moves.",
        "Look for a busy or stopped process, or a slow network, at the owner.",
    ),
    "flapping": Rule(
        _W, _each_group(_flapping),
        "Each move repeats messages and stops the queue for a while.",
        "Look for members that restart, or whose heartbeats or renewals come late: `lockstep lock watch --refusals`.",
    ),
    "blocked-head": Rule(
        _B, _each_group(_blocked_head),
        "The first message stops all that are behind it.",
        "Mend the listener, or set max_reconsume_times, so that the message becomes a dead letter.",
    ),
    "idle-owner": Rule(
        _W, _each_group(_idle_owner),
        "The queue has an owner that does not consume it.",
        "Look at the owner's log: throttled pulls, a suspended queue, a full thread pool.",
    ),
    "more-members-than-queues": Rule(
        _W, _each_group(_too_many_members),
        "The members above the number of queues have nothing to do.",
        "Make more queues (while the topic is empty), or run fewer members.",
    ),
    "from-last-offset": Rule(
        _W, _each_group(_from_last_offset),
        "CONSUME_FROM_LAST_OFFSET: such a queue is begun at its end, and older messages are skipped.",
        "Start the group with CONSUME_FROM_FIRST_OFFSET, or set its offsets before.",
    ),
    "unequal-settings": Rule(
        _W, _each_group(_unequal_settings),
        "What happens to a message depends on the member that gets it.",
        "Give all members the same settings.",
    ),
    "dead-letters": Rule(
        _W, _each_group(_dead_letters),
        "Messages behind a dead letter were consumed without it.",
        "`lockstep message tail -t '%DLQ%GROUP'` shows them.",
    ),
    "retry-without-members": Rule(
        _W, _each_group(_retry_without_members),
        "They wait until a member of the group starts.",
        "Start a member, or delete the group.",
    ),
    "clocks-apart": Rule(
        _W, _clocks_apart,
        "Delays, offsets by time and the times in logs and traces disagree.",
        "Let NTP set the clocks.",
    ),
    "limits-met": Rule(
        _W, limits_met,
        "Requests are refused or dropped, or connections are closed: clients wait, and their queues may move.",
        "`limit_met` in the broker's log names the peer; docs/hostile.md has each limit and its setting.",
    ),
    "group-not-ordered": Rule(
        _W, _each_group(_not_ordered_at_broker),
        "Clients of RocketMQ 5 (gRPC) that join the group get messages without order.",
        "`lockstep group update GROUP --fifo`.",
    ),
    "fifo-without-order": Rule(
        _B, _each_group(_fifo_without_order),
        "Clients of RocketMQ 5 get messages of one key at once, each for itself.",
        "`lockstep group update GROUP --fifo`.",
    ),
    "delivery-holds-queue": Rule(
        _W, _each_group(_long_delivery),
        "Messages behind it wait: with fenced mode those of its key, else all of its queue.",
        "Look at the client. It must acknowledge, or give the message back; `lockstep group deliveries GROUP` has all.",
    ),
    "stale-answers": Rule(
        _W, _each_group(_stale_answers),
        "A listener worked on longer than its invisible time, beside the next one that got the message.",
        "Use a longer invisible time, or renew it while a message is handled.",
    ),
    "trace-topic-missing": Rule(
        _W, _each_group(_no_trace_topic),
        "Message traces are lost.",
        "Start the brokers with `-D traceTopicEnable=true`.",
    ),
}  # fmt: skip
