"""Tests with the plugin's fixture: a busy broker, and two hours that pass at once. python -m pytest examples"""

import asyncio

import pytest

from lockstep.client import Message, Producer, SendError
from lockstep.testing import LockstepBroker


async def place_order(topic: str) -> None:
    async with Producer("shop") as producer:  # it finds the broker by NAMESRV_ADDR
        await producer.send(Message(topic, b"created", sharding_key="1001"))


def test_a_busy_broker_is_an_error(lockstep_broker: LockstepBroker) -> None:
    lockstep_broker.push_error("SEND_MESSAGE_V2", "SYSTEM_BUSY", remark="try again later")
    with pytest.raises(SendError, match="try again later"):
        asyncio.run(place_order(lockstep_broker.topic))


def test_two_hours_pass_at_once(lockstep_broker: LockstepBroker) -> None:
    before_ms = lockstep_broker.now_ms()
    lockstep_broker.advance(7200)
    assert lockstep_broker.now_ms() - before_ms >= 7_200_000
