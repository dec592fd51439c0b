"""What `lockstep status` knows of a cluster, as plain data, and the rules of what is not well."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from lockstep.cli.output import counted, seconds

__all__ = ["RULES", "BrokerStatus", "ClusterStatus", "GroupStatus", "Problem", "problems"]

_FULL: Final = 0.9
_RECENT_MS: Final = 3_600_000


class BrokerStatus(NamedTuple):
    """A broker that the name servers know.

    Args:
        is_lockstep: None: it did not answer.
        up_ms: Since its start; 0: unknown.
        stored_tps, pulled_tps: Messages a second in its last ten seconds.
        store_ratio: The used share of its disk, or of its memory limit.
        error: Why it did not answer.
    """

    name: str
    address: str
    cluster: str = ""
    is_master: bool = True
    is_lockstep: bool | None = None
    version: str = ""
    up_ms: int = 0
    stored_tps: float = 0
    pulled_tps: float = 0
    store_ratio: float = 0
    error: str | None = None


@dataclass(frozen=True)
class GroupStatus:
    """A consumer group.

    Args:
        lag: Messages that are stored and not consumed, those of its retry topic too; None: members count themselves
            (broadcasting).
        oldest_ms: How long the oldest of them waits; None: there is none, or it could not be read.
        locks: Queues that it has locked; None: the brokers do not list locks.
        unowned: Queues with lag that no member has locked, of a group that locks its queues.
        dead_letter_ms: Age of its newest dead letter; None: it has none.
    """

    name: str
    members: int = 0
    lag: int | None = 0
    oldest_ms: int | None = None
    locks: int | None = None
    unowned: tuple[str, ...] = ()
    dead_letters: int = 0
    dead_letter_ms: int | None = None


@dataclass(frozen=True)
class ClusterStatus:
    """`unread`: why groups and locks could not be read."""

    brokers: tuple[BrokerStatus, ...] = ()
    topics: int = 0
    groups: tuple[GroupStatus, ...] = ()
    locks: int | None = None
    owners: int | None = None
    unread: str | None = None
    behind_ms: int = field(default=60_000)  # a message that waits longer is not well


class Problem(NamedTuple):
    rule: str
    where: str
    seen: str


def problems(cluster: ClusterStatus) -> list[Problem]:
    """What is not well, in the order of the rules; nothing when all is well."""
    return [Problem(rule, where, seen) for rule, look in RULES.items() for where, seen in look(cluster)]


def _no_broker(cluster: ClusterStatus) -> Iterator[tuple[str, str]]:
    if not cluster.brokers:
        yield "cluster", "no broker is registered"


def _silent(cluster: ClusterStatus) -> Iterator[tuple[str, str]]:
    for broker in cluster.brokers:
        if broker.error is not None:
            yield f"broker {broker.name}", f"does not answer: {broker.error}"


def _no_master(cluster: ClusterStatus) -> Iterator[tuple[str, str]]:
    masters = {broker.name for broker in cluster.brokers if broker.is_master}
    for name in sorted({broker.name for broker in cluster.brokers} - masters):
        yield f"broker {name}", "has only slaves: its queues take no message, and nothing of them is locked"


def _full(cluster: ClusterStatus) -> Iterator[tuple[str, str]]:
    for broker in cluster.brokers:
        if broker.store_ratio >= _FULL:
            yield f"broker {broker.name}", f"its store is {broker.store_ratio:.0%} full"


def _unread(cluster: ClusterStatus) -> Iterator[tuple[str, str]]:
    if cluster.unread is not None:
        yield "groups", f"could not be read: {cluster.unread}"


def _no_member(cluster: ClusterStatus) -> Iterator[tuple[str, str]]:
    for group in cluster.groups:
        if group.lag and not group.members:
            yield f"group {group.name}", f"{counted(group.lag, 'message')} to consume, and no member is online"


def _behind(cluster: ClusterStatus) -> Iterator[tuple[str, str]]:
    for group in cluster.groups:
        if group.members and group.oldest_ms is not None and group.oldest_ms > cluster.behind_ms:
            yield f"group {group.name}", f"lag {group.lag or 0:,}; its oldest message waits {seconds(group.oldest_ms)}"


def _unowned(cluster: ClusterStatus) -> Iterator[tuple[str, str]]:
    for group in cluster.groups:
        if group.members and group.unowned:
            yield f"group {group.name}", f"no member owns {', '.join(group.unowned)}, which has messages to consume"


def _dead_letters(cluster: ClusterStatus) -> Iterator[tuple[str, str]]:
    for group in cluster.groups:
        if group.dead_letter_ms is not None and group.dead_letter_ms < _RECENT_MS:
            count = counted(group.dead_letters, "dead letter")
            yield f"group {group.name}", f"{count}, the newest {seconds(group.dead_letter_ms)} ago"


RULES: Final[dict[str, Callable[[ClusterStatus], Iterator[tuple[str, str]]]]] = {
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
