"""A consumer that pulls by itself, on stage with one scripted broker."""

from collections.abc import Sequence
from typing import Any

from lockstep.client import LitePullConsumer, LitePullConsumerConfig
from lockstep.protocol.bodies.broker import ConsumerIdList
from lockstep.protocol.bodies.codec import decode_body
from lockstep.protocol.bodies.heartbeat import ConsumerData, HeartbeatData
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.headers.messaging import (
    OffsetResponseHeader,
    PullMessageRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from lockstep.protocol.messages.message import MessageExt
from tests.client.pulls.slaves import serves
from tests.client.stage import FakeBroker, Stage, queue_at

__all__ = ["Lite", "beats", "lite", "stored_offsets"]

R = RequestCode


def beats(broker: FakeBroker) -> list[ConsumerData]:
    """What members of groups told this broker."""
    commands = broker.requests(R.HEART_BEAT)
    return [data for c in commands for data in decode_body(HeartbeatData, c.body, c.serialize_type).consumer_data_set]


def stored_offsets(broker: FakeBroker) -> list[tuple[int, int]]:
    """(queue id, offset) of every UPDATE_CONSUMER_OFFSET, in order of arrival."""
    commands = broker.requests(R.UPDATE_CONSUMER_OFFSET)
    headers = [command.decode_header(UpdateConsumerOffsetRequestHeader) for command in commands]
    return [(header.queue_id, header.commit_offset) for header in headers]


class Lite:
    """A LitePullConsumer and its broker, which serves offsets 0 to 99 of each queue; the group stands at 0."""

    def __init__(self, stage: Stage, broker: FakeBroker, **settings: Any) -> None:
        self.stage, self.broker = stage, broker
        config = LitePullConsumerConfig(**settings)
        self.consumer = LitePullConsumer(
            "tower", name_server=broker.name_server, config=config, runtime=stage.client, log=stage.log
        )
        serves(broker, config.pull_batch_size, last=100)
        broker.answers(R.QUERY_CONSUMER_OFFSET, OffsetResponseHeader(0))
        broker.answers(R.GET_MIN_OFFSET, OffsetResponseHeader(0))
        broker.answers(R.GET_MAX_OFFSET, OffsetResponseHeader(100))
        broker.answers(R.UPDATE_CONSUMER_OFFSET, 0)

    async def assigned(self, *queue_ids: int) -> "Lite":
        """Started with these queues."""
        self.consumer.assign([queue_at(queue_id) for queue_id in queue_ids])
        await self.consumer.start()
        return self

    def members(self, *others: str) -> None:
        """From now on the group has these besides this consumer."""
        ids = tuple(sorted([self.consumer.client_id, *others]))
        self.broker.answers(R.GET_CONSUMER_LIST_BY_GROUP, ConsumerIdList(ids))

    async def poll(self, timeout_ms: int = 100) -> list[int]:
        return offsets(await self.consumer.poll(timeout_ms))

    @property
    def pulls(self) -> list[PullMessageRequestHeader]:
        return [command.decode_header(PullMessageRequestHeader) for command in self.broker.requests(R.PULL_MESSAGE)]

    def pulled(self, queue_id: int = 0) -> list[int]:
        """From which offsets this queue was pulled."""
        return [pull.queue_offset for pull in self.pulls if pull.queue_id == queue_id]


def offsets(messages: Sequence[MessageExt]) -> list[int]:
    return [message.queue_offset for message in messages]


async def lite(stage: Stage, *, queues: int = 1, **settings: Any) -> Lite:
    """Not started."""
    broker = await stage.broker(queues=queues)
    return Lite(stage, broker, **settings)
