"""Subscription groups: built in, made by use, made and deleted by administrators (wire.md 8.4, 9.2)."""

import pytest

from lockstep.broker.catalog.groups import SubscriptionGroupManager
from lockstep.broker.config import BrokerConfig
from lockstep.protocol.bodies.broker import DataVersion
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.bodies.subscription_group import BUILT_IN_GROUPS, SubscriptionGroupConfig
from lockstep.protocol.errors import BodyError
from tests.broker.helpers import NOW_MS, Peer, consumer


def new_manager(*, auto_create: bool = True) -> SubscriptionGroupManager:
    config = BrokerConfig(auto_create_groups=auto_create, retry_queue_nums=2, retry_max_times=5, groups_max=100)
    return SubscriptionGroupManager(config, lambda *facts: None)


def test_the_built_in_groups_are_there_from_the_start() -> None:
    """Those of wire.md 8.4, with RocketMQ's defaults, at version 0."""
    manager = new_manager()
    assert tuple(manager.groups) == tuple(SubscriptionGroupConfig(group) for group in BUILT_IN_GROUPS)
    assert manager.data_version == DataVersion(0, 0)


def test_a_group_is_made_by_its_first_use() -> None:
    """Once, with the broker's own retry settings, and the version moves with it."""
    manager = new_manager()
    config = manager.find("G", NOW_MS)
    assert config == SubscriptionGroupConfig("G", retry_queue_nums=2, retry_max_times=5)
    assert manager.find("G", NOW_MS + 1) is config
    assert manager.data_version == DataVersion(1, NOW_MS)


@pytest.mark.parametrize("group", ["", "a b", "x" * 256, "ümlaut"])
def test_a_group_with_a_name_that_cannot_be_is_not_made(group: str) -> None:
    """Nor does asking for it change anything."""
    manager = new_manager()
    assert manager.find(group, NOW_MS) is None
    assert manager.data_version == DataVersion(0, 0)


def test_without_auto_creation_only_known_and_system_groups_are_found() -> None:
    """Groups of administrators, built-in ones, and those that brokers use."""
    manager = new_manager(auto_create=False)
    assert manager.find("G", NOW_MS) is None
    assert manager.find("TOOLS_CONSUMER", NOW_MS) is not None
    assert manager.find("CID_RMQ_SYS_TRANS", NOW_MS) is not None
    manager.put(SubscriptionGroupConfig("G"), NOW_MS)
    assert manager.find("G", NOW_MS) == SubscriptionGroupConfig("G")


def test_a_group_is_changed_and_deleted() -> None:
    """Each change raises the version; deleting an unknown group does not."""
    manager = new_manager()
    manager.put(SubscriptionGroupConfig("G", consume_enable=False), NOW_MS)
    assert manager.get("G") == SubscriptionGroupConfig("G", consume_enable=False)
    assert manager.delete("G", NOW_MS + 5)
    assert manager.get("G") is None
    assert manager.data_version == DataVersion(2, NOW_MS + 5)
    assert not manager.delete("G", NOW_MS + 6)
    assert manager.data_version == DataVersion(2, NOW_MS + 5)


def test_a_config_survives_the_wire_and_what_is_absent_has_the_defaults() -> None:
    """All nine members, and RocketMQ's defaults for those that a sender leaves out."""
    config = SubscriptionGroupConfig("G", False, False, False, 3, 7, 1, 2, False)
    assert SubscriptionGroupConfig.from_wire(config.to_wire()) == config
    assert SubscriptionGroupConfig.from_wire({"groupName": "G"}) == SubscriptionGroupConfig("G")
    with pytest.raises(BodyError):
        SubscriptionGroupConfig.from_wire({})


def test_a_heartbeat_makes_the_group_and_its_retry_topic() -> None:
    """With as many retry queues as the group says."""
    peer = Peer()
    peer.broker.catalog.groups.put(SubscriptionGroupConfig("G", retry_queue_nums=3), NOW_MS)
    peer.heartbeat("c1", consumer("G", SubscriptionData.parse("T", "*")), consumer("H"))
    retry = [peer.broker.catalog.topics.get(f"%RETRY%{group}") for group in ("G", "H")]
    assert [topic and topic.read_queue_nums for topic in retry] == [3, 1]
    assert peer.broker.catalog.groups.get("H") == SubscriptionGroupConfig("H")


def test_a_heartbeat_of_a_group_that_may_not_be_made_registers_no_topic() -> None:
    """The member is registered, as in RocketMQ; its pulls are refused because the group does not exist."""
    peer = Peer(auto_create_groups=False)
    peer.heartbeat("c1", consumer("G", SubscriptionData.parse("T", "*")))
    assert peer.broker.catalog.topics.get("%RETRY%G") is None
    assert peer.broker.members.consumers.client_ids("G") == ("c1",)
