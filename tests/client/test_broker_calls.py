"""Requests of a broker to a consumer: both forms of a reset, unknown groups, and wrong bodies."""

from collections.abc import Mapping
from typing import Any, cast

import pytest

from lockstep.client import ConsumerConfig, MessageQueue
from lockstep.client.consumer.broker_requests import BrokerCalls, Listening
from lockstep.client.consumer.dispatch.direct import ConsumeDirectly
from lockstep.client.consumer.dispatch.stats import ConsumerStatsManager
from lockstep.client.consumer.offsets.store import RemoteBrokerOffsetStore
from lockstep.client.consumer.ownership.membership import Membership
from lockstep.protocol.bodies.client import GetConsumerStatusBody, ResetOffsetBody, ResetOffsetBodyForC
from lockstep.protocol.bodies.codec import decode_body, encode_body
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import BodyError
from lockstep.protocol.headers.admin import (
    ConsumeMessageDirectlyRequestHeader,
    ConsumerStatusRequestHeader,
    GetConsumerRunningInfoRequestHeader,
    ResetOffsetRequestHeader,
)
from lockstep.remoting.connections.endpoint import Endpoint
from tests.client.stage import TOPIC, Stage, on_stage

R = RequestCode
QUEUE = MessageQueue(TOPIC, "broker-a", 0)


class Asked:
    """A consumer of the group "tower" that has nothing, and what it was told to reset."""

    def __init__(self, stage: Stage) -> None:
        self.resets: list[tuple[str, Mapping[MessageQueue, int]]] = []
        instance = stage.instance()
        config, offsets = ConsumerConfig(), RemoteBrokerOffsetStore(instance, "tower")
        member = Membership(instance=instance, group="tower", config=config, offsets=offsets)
        reset = cast("ConsumeDirectly", None), lambda topic, offsets: self.resets.append((topic, offsets))
        calls = BrokerCalls(member, config, ConsumerStatsManager(0), {}, Listening(True, 1, *reset))
        self._handlers = calls.handlers

    def __call__(self, code: int, header: tuple[Any, ...], body: bytes = b"") -> RemotingCommand | None:
        return self._handlers[code](cast("Endpoint", None), RemotingCommand(code, header, body))


@on_stage
async def test_both_forms_of_a_reset(stage: Stage) -> None:
    """The table with queues as names and the list for C++ mean the same; a reset for another group is ignored."""
    await stage.broker()
    asked = Asked(stage)
    header = ResetOffsetRequestHeader(TOPIC, "tower", -1)
    for body in (ResetOffsetBody({QUEUE: 7}), ResetOffsetBodyForC({QUEUE: 7})):
        assert asked(R.RESET_CONSUMER_CLIENT_OFFSET, header, encode_body(body, 0)) is None
    assert asked.resets == [(TOPIC, {QUEUE: 7})] * 2
    asked(R.RESET_CONSUMER_CLIENT_OFFSET, header._replace(group="other"), encode_body(ResetOffsetBody({QUEUE: 7}), 0))
    assert len(asked.resets) == 2


@on_stage
async def test_another_group_is_not_known_here(stage: Stage) -> None:
    """In RocketMQ's words; only the status is empty instead, as in Java."""
    await stage.broker()
    asked = Asked(stage)
    for code, header in (
        (R.GET_CONSUMER_RUNNING_INFO, GetConsumerRunningInfoRequestHeader("other", "c")),
        (R.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectlyRequestHeader("other", "c")),
    ):
        reply = asked(code, header)
        assert reply is not None
        assert (reply.code, reply.remark) == (
            ResponseCode.SYSTEM_ERROR,
            "The Consumer Group <other> not exist in this consumer",
        )
    reply = asked(R.GET_CONSUMER_STATUS_FROM_CLIENT, ConsumerStatusRequestHeader(TOPIC, "other"))
    assert reply is not None
    assert decode_body(GetConsumerStatusBody, reply.body, 0) == GetConsumerStatusBody({}, {})


@on_stage
async def test_what_cannot_be_read_is_refused(stage: Stage) -> None:
    """Bodies that are no offsets and no message, and headers without a group, change nothing."""
    await stage.broker()
    asked = Asked(stage)
    for body in (b"", b"{}x", b'{"offsetTable":{"T":1}}', b'{"offsetTable":5}'):
        with pytest.raises(BodyError):
            asked(R.RESET_CONSUMER_CLIENT_OFFSET, ResetOffsetRequestHeader(TOPIC, "tower", 0), body)
    for body in (b"", b"\0" * 100):
        with pytest.raises(BodyError):
            asked(R.CONSUME_MESSAGE_DIRECTLY, ConsumeMessageDirectlyRequestHeader("tower"), body)
    assert asked.resets == []
