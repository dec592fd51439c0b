"""Each rule of `lockstep status` fires on what is not well, and is silent on a healthy cluster."""

from dataclasses import replace

import pytest

from lockstep.client.diagnosis.facts import BrokerFacts, ClusterFacts, GroupFacts, MemberFacts, QueueFacts
from lockstep.client.diagnosis.health import RULES, problems
from lockstep.protocol.bodies.locks import LockTableRow
from lockstep.protocol.model import MessageQueue
from tests.examples.documents import ROOT

NOW_MS = 1_750_000_000_000
BROKER = BrokerFacts("broker-a", "127.0.0.1:1", "c", True, True, "V4_9_8", 1000, 1.0, 1.0, 0.5)
SLAVE = BROKER._replace(is_master=False)
QUEUES = [MessageQueue("orders", "broker-a", queue_id) for queue_id in range(2)]
LOCKS = {queue: LockTableRow("shop", queue, "a", age_ms=1, remaining_ms=1, held_ms=1) for queue in QUEUES}
GROUP = GroupFacts(
    "shop",
    (MemberFacts("a"), MemberFacts("b")),
    queues={QUEUES[0]: QueueFacts(-1, 4), QUEUES[1]: QueueFacts(5, 9)},
    locks=LOCKS,
    retry_lag=2,
    oldest_ms=NOW_MS - 59_000,
    dead_letter_count=3,
    dead_letter_ms=NOW_MS - 3_600_000,
)
WELL = ClusterFacts(
    NOW_MS,
    brokers=(BROKER, SLAVE),
    groups=(GROUP, GroupFacts("broadcast", (MemberFacts("c"),), broadcasting=True, queues=GROUP.queues)),
)

BAD = {
    "no_broker": (ClusterFacts(NOW_MS), "cluster", "no broker is registered"),
    "broker_silent": (
        replace(WELL, brokers=(BROKER, BROKER._replace(name="b", is_lockstep=None, error="cannot connect"))),
        "broker b",
        "does not answer: cannot connect",
    ),
    "no_master": (replace(WELL, brokers=(BROKER, SLAVE._replace(name="b"))), "broker b", "has only slaves"),
    "store_full": (replace(WELL, brokers=(BROKER._replace(store_ratio=0.9),)), "broker broker-a", "its store is 90 %"),
    "groups_unread": (replace(WELL, groups=(), unread="broken pipe"), "groups", "could not be read: broken pipe"),
    "no_member": (
        replace(WELL, groups=(replace(GROUP, members=(), oldest_ms=0),)),
        "group shop",
        "10 messages to consume, and no member is online",
    ),
    "behind": (
        replace(WELL, groups=(replace(GROUP, oldest_ms=NOW_MS - 60_001),)),
        "group shop",
        "lag 10; its oldest message waits 60.0 s",
    ),
    "queue_unowned": (
        replace(WELL, groups=(replace(GROUP, locks={QUEUES[0]: LOCKS[QUEUES[0]]}),)),
        "group shop",
        f"no member owns {QUEUES[1]}, which has messages to consume",
    ),
    "dead_letters": (
        replace(WELL, groups=(replace(GROUP, dead_letter_ms=NOW_MS - 3_599_999),)),
        "group shop",
        "3 dead letters, the newest 59 min 59 s ago",
    ),
}


def test_a_healthy_cluster_is_well() -> None:
    """Also one whose brokers list no locks."""
    assert problems(WELL) == []
    assert problems(replace(WELL, groups=(replace(GROUP, locks=None),))) == []


@pytest.mark.parametrize("rule", list(RULES))
def test_each_rule_fires_alone(rule: str) -> None:
    """It names where and what was seen."""
    cluster, where, seen = BAD[rule]
    (found,) = problems(cluster)
    assert (found.rule, found.where) == (rule, where)
    assert seen in found.seen.replace("%", " %").replace("  ", " ")


def test_the_page_has_each_rule() -> None:
    """docs/commands.md lists them in their order."""
    page = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    places = [page.index(f"| `{rule}` |") for rule in RULES]
    assert places == sorted(places)
