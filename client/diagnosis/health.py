"""What is not well in a cluster now, for `lockstep status`: one table of rules over the facts."""

from collections.abc import Callable
from typing import Final, NamedTuple

from lockstep.client.diagnosis.facts import ClusterFacts
from lockstep.client.diagnosis.rules import Evidence
from lockstep.remoting.texts import counted, seconds

__all__ = ["RULES", "Problem", "problems"]

_FULL: Final = 0.9
_RECENT_MS: Final = 3_600_000


class Problem(NamedTuple):
    rule: str
    where: str
    seen: str


def problems(cluster: ClusterFacts) -> list[Problem]:
    """What is not well, in the order of the rules; nothing when all is well."""
    return [Problem(rule, where, seen) for rule, look in RULES.items() for where, seen in look(cluster)]


def _no_broker(cluster: ClusterFacts) -> Evidence:
    if not cluster.brokers:
        yield "cluster", "no broker is registered"


def _silent(cluster: ClusterFacts) -> Evidence:
    for broker in cluster.brokers:
        if broker.error is not None:
            yield f"broker {broker.name}", f"does not answer: {broker.error}"


def _no_master(cluster: ClusterFacts) -> Evidence:
    masters = {broker.name for broker in cluster.brokers if broker.is_master}
    for name in sorted({broker.name for broker in cluster.brokers} - masters):
        yield f"broker {name}", "has only slaves: its queues take no message, and nothing of them is locked"


def _full(cluster: ClusterFacts) -> Evidence:
    for broker in cluster.brokers:
        if broker.store_ratio >= _FULL:
            yield f"broker {broker.name}", f"its store is {broker.store_ratio:.0%} full"


def _unread(cluster: ClusterFacts) -> Evidence:
    if cluster.unread is not None:
        yield "groups", f"could not be read: {cluster.unread}"


def _no_member(cluster: ClusterFacts) -> Evidence:
    for group in cluster.groups:
        if group.lag and not group.members:
            yield f"group {group.name}", f"{counted(group.lag, 'message')} to consume, and no member is online"


def _behind(cluster: ClusterFacts) -> Evidence:
    for group in cluster.groups:
        waits_ms = cluster.now_ms - group.oldest_ms
        if group.members and group.oldest_ms and waits_ms > cluster.behind_ms:
            yield f"group {group.name}", f"lag {group.lag or 0:,}; its oldest message waits {seconds(waits_ms)}"


def _unowned(cluster: ClusterFacts) -> Evidence:
    for group in cluster.groups:
        if group.members and group.unowned:
            yield (
                f"group {group.name}",
                f"no member owns {', '.join(map(str, group.unowned))}, which has messages to consume",
            )


def _dead_letters(cluster: ClusterFacts) -> Evidence:
    for group in cluster.groups:
        age_ms = max(cluster.now_ms - group.dead_letter_ms, 0)
        if group.dead_letter_count and age_ms < _RECENT_MS:
            count = counted(group.dead_letter_count, "dead letter")
            yield f"group {group.name}", f"{count}, the newest {seconds(age_ms)} ago"


RULES: Final[dict[str, Callable[[ClusterFacts], Evidence]]] = {
    "no_broker": _no_broker,
    "broker_silent": _silent,
    "no_master": _no_master,
    "store_full": _full,
    "groups_unread": _unread,
    "no_member": _no_member,
    "behind": _behind,
    "queue_unowned": _unowned,
    "dead_letters": _dead_letters,
}
