"""MessageQueue and Message: order, and the property map of a message to send."""

from lockstep.protocol.messages.to_send import Message
from lockstep.protocol.model import MessageQueue


def test_queues_sort_as_rocketmqs() -> None:
    """By topic, then broker name, then id as a number."""
    wanted = [
        MessageQueue("A", "broker-b", 1),
        MessageQueue("B", "broker-a", 2),
        MessageQueue("B", "broker-a", 10),
        MessageQueue("B", "broker-b", 0),
    ]
    assert sorted(wanted[2:] + wanted[:2]) == wanted


def test_a_queue_is_a_key() -> None:
    """Equal queues are one key of a table, and a queue says which it is."""
    assert len({MessageQueue("T", "b", 1): 1, MessageQueue("T", "b", 1): 2}) == 1
    assert str(MessageQueue("T", "broker-a", 3)) == "T@broker-a:3"


def test_a_bare_message_has_no_properties() -> None:
    """What was not given is not sent."""
    assert Message("T", b"x").wire_properties() == {}


def test_everything_given_is_a_property() -> None:
    """Keys are joined by blanks, the sharding key has Java 5's name, the user's own are kept."""
    message = Message("T", b"x", tags="TagA", keys=["k1", "k2"], sharding_key="N1", properties={"color": "rot"})
    assert message.wire_properties() == {"color": "rot", "KEYS": "k1 k2", "TAGS": "TagA", "__SHARDINGKEY": "N1"}
    assert Message("T", b"", delay_level=3).wire_properties() == {"DELAY": "3"}
    assert Message("T", b"", keys="k1 k2").wire_properties() == {"KEYS": "k1 k2"}
    assert Message("T", b"", keys=[], tags="").wire_properties() == {}


def test_the_users_map_is_not_changed() -> None:
    """A message can be sent twice, and to send it does not write into the caller's dict."""
    mine = {"color": "rot"}
    message = Message("T", b"x", tags="TagA", properties=mine)
    assert message.wire_properties() == message.wire_properties()
    assert mine == {"color": "rot"}


def test_defaults_are_not_shared() -> None:
    """Two messages never share a property map."""
    assert Message("T", b"").properties is not Message("T", b"").properties
