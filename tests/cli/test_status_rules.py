"""Each rule of `lockstep status` fires on what is not well, and is silent on a healthy cluster."""

from dataclasses import replace

import pytest

from lockstep.cli.status.facts import RULES, BrokerStatus, ClusterStatus, GroupStatus, problems
from tests.examples.documents import ROOT

BROKER = BrokerStatus("broker-a", "127.0.0.1:1", "c", True, True, "V4_9_8", 1000, 1.0, 1.0, 0.5)
SLAVE = BROKER._replace(is_master=False)
GROUP = GroupStatus("shop", 2, 10, 59_000, 4, (), 3, 3_600_000)
WELL = ClusterStatus((BROKER, SLAVE), 1, (GROUP, GroupStatus("broadcast", 1, None)), 4, 2)

BAD = {
    "no_broker": (ClusterStatus(), "cluster", "no broker is registered"),
    "broker_silent": (
        replace(WELL, brokers=(BROKER, BROKER._replace(name="b", is_lockstep=None, error="cannot connect"))),
        "broker b",
        "does not answer: cannot connect",
    ),
    "no_master": (replace(WELL, brokers=(BROKER, SLAVE._replace(name="b"))), "broker b", "has only slaves"),
    "store_full": (replace(WELL, brokers=(BROKER._replace(store_ratio=0.9),)), "broker broker-a", "its store is 90 %"),
    "groups_unread": (replace(WELL, groups=(), unread="broken pipe"), "groups", "could not be read: broken pipe"),
    "no_member": (
        replace(WELL, groups=(replace(GROUP, members=0, oldest_ms=None),)),
        "group shop",
        "10 messages to consume, and no member is online",
    ),
    "behind": (
        replace(WELL, groups=(replace(GROUP, oldest_ms=60_001),)),
        "group shop",
        "lag 10; its oldest message waits 60.0 s",
    ),
    "queue_unowned": (
        replace(WELL, groups=(replace(GROUP, unowned=("orders@broker-a:1",)),)),
        "group shop",
        "no member owns orders@broker-a:1, which has messages to consume",
    ),
    "dead_letters": (
        replace(WELL, groups=(replace(GROUP, dead_letter_ms=3_599_999),)),
        "group shop",
        "3 dead letters, the newest 59 min 59 s ago",
    ),
}


def test_a_healthy_cluster_is_well() -> None:
    """Also one whose brokers list no locks."""
    assert problems(WELL) == []
    assert problems(replace(WELL, locks=None, owners=None, groups=(replace(GROUP, locks=None),))) == []


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
