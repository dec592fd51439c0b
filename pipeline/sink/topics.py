"""The writable queues of a topic, asked once; a missing topic is created as in RocketMQ (wire.md 10.4)."""

import time
from typing import Final

from lockstep.client.blocking import BlockingClient
from lockstep.client.errors import NoRouteError
from lockstep.pipeline.errors import SendFailed, TopicError
from lockstep.protocol.codes import Permission, RequestCode, ResponseCode, response_name
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.headers.messaging import CreateTopicRequestHeader
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import DEFAULT_TOPIC, RESERVED_TOPICS, check_topic

__all__ = ["writable_queues"]

_QUEUES: Final = 4  # defaultTopicQueueNums of RocketMQ's producers
_POLL_S: Final = 0.05
_READ_WRITE: Final = int(Permission.READ | Permission.WRITE)


def writable_queues(client: BlockingClient, topic: str) -> tuple[MessageQueue, ...]:
    """The writable queues, sorted, as every producer sees them.

    RocketMQ's producers create a topic by sending to it; each broker that gets a message then adds its queues. That
    would move keys from queue to queue. Here every broker with TBW102 creates the topic before the first send.

    Raises:
        TopicError: There are none; the text says why.
        SendFailed, RemotingError
    """
    try:
        check_topic(topic)
    except LocalProtocolError as error:
        raise TopicError(str(error)) from None
    if topic in RESERVED_TOPICS:
        raise TopicError(f"topic {topic!r} is reserved by RocketMQ; it takes no messages")
    try:
        queues = client.writable_queues(topic)
    except NoRouteError:
        queues = _made(client, topic)
    if not queues:
        raise TopicError(f"topic {topic!r} may not be written to: no queue of it has permission to be, at a broker")
    return tuple(queues)


def _made(client: BlockingClient, topic: str) -> list[MessageQueue]:
    try:
        route = client.route(DEFAULT_TOPIC, fresh=True)
    except NoRouteError:
        raise TopicError(
            f"topic {topic!r} does not exist, and no broker makes topics by sending (autoCreateTopicEnable):"
            " create it first"
        ) from None
    masters = {data.broker_name for data in route.broker_datas if data.master_addr}
    makers = [data for data in route.queue_datas if data.writable and data.broker_name in masters]
    wanted = 0
    for data in makers:
        queues = min(_QUEUES, data.write_queue_nums)
        _make(client, topic, data.broker_name, queues)
        wanted += queues
    return _seen(client, topic, wanted)


def _make(client: BlockingClient, topic: str, broker_name: str, queues: int) -> None:
    header = CreateTopicRequestHeader(topic, DEFAULT_TOPIC, queues, queues, _READ_WRITE)
    command = RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
    reply = client.finish(client.start(MessageQueue(DEFAULT_TOPIC, broker_name, 0), command))
    if reply.code != ResponseCode.SUCCESS:
        why = f"{response_name(reply.code)}: {reply.remark}"
        raise SendFailed(f"broker {broker_name} does not make topic {topic!r}: {why}")


def _seen(client: BlockingClient, topic: str, wanted: int) -> list[MessageQueue]:
    """Wait until the name servers know the queues, for at most one request's timeout."""
    deadline = time.monotonic() + client.addresses.timeout_ms / 1000
    while True:
        try:
            queues = client.writable_queues(topic)
        except NoRouteError:
            queues = []
        if len(queues) >= wanted or time.monotonic() >= deadline:
            return queues
        time.sleep(_POLL_S)
