"""Heartbeats of RocketMQ 5's clients, without the subscriptions that the broker has (wire.md 13)."""

import json
from typing import Any

from lockstep.protocol.codes import RequestCode
from lockstep.protocol.command import RemotingCommand
from tests.broker.helpers import Peer

UNCHANGED, CHANGED = "false", "true"


def beat(peer: Peer, fingerprint: int, tag: str = "*", *, light: bool = False, version: int = 1) -> RemotingCommand:
    subscription = {"topic": "T", "subString": tag, "subVersion": version, "tagsSet": [], "codeSet": []}
    body: dict[str, Any] = {"clientID": "c1", "heartbeatFingerprint": fingerprint, "withoutSub": light}
    group = {"groupName": "G", "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING"}
    body["consumerDataSet"] = [{**group, "subscriptionDataSet": [] if light else [subscription]}]
    return peer.answer(RequestCode.HEART_BEAT, None, json.dumps(body).encode())


def change(reply: RemotingCommand) -> str:
    fields = dict(reply.ext_fields or {})
    assert fields.pop("IS_SUPPORT_HEART_BEAT_V2") == "true"
    return str(fields.pop("IS_SUB_CHANGE"))


def subscribed(peer: Peer) -> list[str]:
    return [one.sub_string for one in peer.broker.members.consumers.groups["G"].subscriptions.values()]


def test_a_light_heartbeat_keeps_member_and_subscriptions() -> None:
    """While its connection has sent them under the same fingerprint; as 5.5.0 answers."""
    peer = Peer()
    assert change(beat(peer, 77, "A")) == CHANGED
    peer.now_ms += 30_000
    assert change(beat(peer, 77, light=True)) == UNCHANGED
    assert subscribed(peer) == ["A"]
    (channel,) = peer.broker.members.consumers.groups["G"].channels.values()
    assert channel.last_update_ms == peer.now_ms
    assert change(beat(peer, 78, light=True)) == CHANGED
    assert change(beat(peer, 78, "B", version=2)) == CHANGED
    assert subscribed(peer) == ["B"]
    assert change(beat(peer, 78, light=True)) == UNCHANGED


def test_a_new_connection_says_all_again() -> None:
    """5.5.0 remembers the fingerprint of the group: the client would be a member without subscriptions, for ever."""
    peer = Peer()
    beat(peer, 77, "A")
    peer.broker.on_closed(peer.connection)
    again = peer.beside()
    assert change(beat(again, 77, light=True)) == CHANGED
    assert change(beat(again, 77, light=True)) == CHANGED
    assert change(beat(again, 77, "A")) == CHANGED
    assert change(beat(again, 77, light=True)) == UNCHANGED
    assert subscribed(again) == ["A"]


def test_clients_of_rocketmq_4_get_no_fields() -> None:
    """Unless the broker answers as RocketMQ 5."""
    assert beat(Peer(), 0).ext_fields is None
    assert change(beat(Peer(rocketmq="5"), 0)) == CHANGED
