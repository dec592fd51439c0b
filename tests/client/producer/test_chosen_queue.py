"""Which queue a caller may choose for a message."""

from typing import Any

import pytest

from lockstep.client import Message, Producer
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.errors import LocalProtocolError
from tests.client.stage import TOPIC, Stage, on_stage, queue_at

WRONG: tuple[Any, ...] = (None, 3, "Aircraft@broker-a:0", queue_at(0, topic="Other"))


@on_stage
async def test_a_message_goes_to_queues_of_its_own_topic_only(stage: Stage) -> None:
    """A queue of another topic, or none, is refused: the message would be stored elsewhere than its result says, and
    one send sequence would number the sends of two queues."""
    broker = await stage.broker(queues=4)
    async with Producer("producers", name_server=stage.name_server, runtime=stage.client, log=stage.log) as producer:
        for wrong in WRONG:
            with pytest.raises(LocalProtocolError, match="a message of topic 'Aircraft' cannot go to"):
                await producer.send(Message(TOPIC, b"x"), selector=lambda *_, wrong=wrong: wrong)
        for wrong in WRONG[1:]:
            with pytest.raises(LocalProtocolError, match="cannot go to"):
                await producer.send(Message(TOPIC, b"x"), queue=wrong)
            with pytest.raises(LocalProtocolError, match="cannot go to"):
                await producer.send_batch([Message(TOPIC, b"x")], queue=wrong)
            with pytest.raises(LocalProtocolError, match="cannot go to"):
                await producer.send_one_way(Message(TOPIC, b"x"), queue=wrong)
    assert broker.requests(RequestCode.SEND_MESSAGE_V2) == broker.requests(RequestCode.SEND_BATCH_MESSAGE) == []
