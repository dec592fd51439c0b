"""A scripted master and its slaves, for tests of pulls that a broker sends elsewhere."""

from collections.abc import Mapping

from lockstep.protocol.bodies.broker import BrokerData, QueueData, TopicRouteData
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import PullMessageRequestHeader, PullMessageResponseHeader
from tests.client.messages import stored_bytes
from tests.client.stage import TOPIC, FakeBroker, Stage

__all__ = ["BROKER", "pulls_of", "replicated", "route_to_replicas", "serves"]

BROKER = "broker-a"


async def replicated(stage: Stage, *slaves: str) -> tuple[FakeBroker, ...]:
    """The master, then its slaves with ids from 1; one queue."""
    brokers = [await stage.broker(name) for name in ("master", *slaves)]
    route_to_replicas(stage, dict(enumerate(brokers)))
    return tuple(brokers)


def route_to_replicas(stage: Stage, by_id: Mapping[int, FakeBroker], *, queues: int = 1) -> None:
    """From now on the name servers name these brokers, by broker id."""
    addresses = {broker_id: broker.address for broker_id, broker in by_id.items()}
    route = TopicRouteData((QueueData(BROKER, queues, queues, 6),), (BrokerData(BROKER, "c", addresses),))
    for broker in stage.brokers:
        broker.routes[TOPIC] = route


def serves(broker: FakeBroker, count: int, *, suggests: int = 0, last: int = 1000) -> None:
    """Answer every pull with the next `count` messages, and send the next pull to broker id `suggests`; pulls from
    offset `last` on are held for ever."""

    def answer(command: RemotingCommand) -> RemotingCommand | None:
        begin = command.decode_header(PullMessageRequestHeader).queue_offset
        if begin >= last:
            return None
        header = PullMessageResponseHeader(suggests, begin + count, 0, last)
        body = b"".join(stored_bytes(offset) for offset in range(begin, begin + count))
        return command.reply(ResponseCode.SUCCESS, header, body)

    broker.on[RequestCode.PULL_MESSAGE] = answer


def pulls_of(broker: FakeBroker) -> list[PullMessageRequestHeader]:
    return [command.decode_header(PullMessageRequestHeader) for command in broker.requests(RequestCode.PULL_MESSAGE)]
