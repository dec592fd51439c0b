"""What administrators ask of a broker: UPDATE_AND_CREATE_TOPIC (wire.md 2.4)."""

from lockstep.broker.connection import Connection
from lockstep.broker.core import Broker
from lockstep.protocol.bodies import TopicConfig
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.headers import CreateTopicRequestHeader

__all__ = ["create_topic"]


def create_topic(broker: Broker, connection: Connection, command: RemotingCommand, now_ms: int) -> RemotingCommand:
    """`order` is not kept, as in RocketMQ, whose name servers hold the order configuration."""
    header = command.decode_header(CreateTopicRequestHeader)
    config = TopicConfig(
        header.topic, header.read_queue_nums, header.write_queue_nums, header.perm, header.topic_sys_flag
    )
    try:
        broker.topics.check_put(config)
    except LocalProtocolError as error:
        return command.reply(ResponseCode.SYSTEM_ERROR, remark=str(error))
    if broker.topics.put(config, now_ms):
        broker.log.info(
            "topic created or changed",
            topic=config.topic_name,
            read_queues=config.read_queue_nums,
            write_queues=config.write_queue_nums,
            peer=connection.address,
        )
    return command.reply(ResponseCode.SUCCESS)
