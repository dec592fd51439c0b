"""Messages that the listener failed at: sent back for a later delivery, or made dead letters (wire.md 10, 12.8)."""

from typing import Final

from lockstep.client.consumer.ownership.membership import Membership
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.client.errors import NoRouteError, SendError
from lockstep.client.producer.retries import Fence, InnerProducer
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.headers.admin import SendMessageBackRequestHeader
from lockstep.protocol.messages.message import MessageExt
from lockstep.remoting.errors import RemotingError

__all__ = ["DeadLetters", "SendBack", "ask_for_copy"]

_TIMEOUT_MS: Final = 5000
_DEFAULT_MAX_RECONSUME_TIMES: Final = 16


class SendBack:
    """Sends messages back to the broker, which delivers them again after a delay (wire.md 10.1)."""

    def __init__(self, member: Membership) -> None:
        self._member = member
        self._producer = InnerProducer(member.instance, member.group, member.config)
        limit = member.config.max_reconsume_times
        self._limit = _DEFAULT_MAX_RECONSUME_TIMES if limit < 0 else limit

    async def send(self, process_queue: ProcessQueue, message: MessageExt, delay_level: int) -> bool:
        """Send one message back.

        The broker of the message makes a copy. If it does not, the copy is sent as a new message to any broker that has
        the retry topic; its delay is then level 3 + the times it was tried, whatever `delay_level` says.

        Args:
            delay_level: 0: the broker chooses it; negative: the message becomes a dead letter.

        Returns:
            Whether a broker took it.
        """
        try:
            broker_name, topic = process_queue.queue.broker_name, message.first_topic
            await ask_for_copy(self._member, broker_name, topic, message, delay_level, self._limit)
        except (RemotingError, NoRouteError) as error:
            self._warn("send_back_fallback", process_queue, message, error)
            try:
                outgoing = self._producer.retry(message, message.reconsume_times + 1, self._limit)
                await self._producer.send_anywhere(outgoing, process_queue.queue.broker_name)
            except SendError as error_too:
                self._warn("send_back_failed", process_queue, message, error_too)
                return False
        _record(self._member, "sent_back", process_queue, message)
        return True

    def _warn(self, event: str, process_queue: ProcessQueue, message: MessageExt, error: Exception) -> None:
        self._member.log.warning(
            event,
            queue=str(process_queue.queue),
            offset=message.queue_offset,
            msg_id=message.msg_id,
            error=str(error),
        )


class DeadLetters:
    """Gives up messages of orderly consumption: sent to the retry topic, they become dead letters (wire.md 10.3)."""

    def __init__(self, member: Membership) -> None:
        self._member = member
        self._producer = InnerProducer(member.instance, member.group, member.config)

    async def send(self, process_queue: ProcessQueue, message: MessageExt, limit: int) -> None:
        """Raises SendError when the broker did not take it; the message then stays in its queue."""
        outgoing = self._producer.retry(message, message.reconsume_times, limit)
        begun = process_queue.hold.sent_fields(self._member.runtime)
        fence = Fence(process_queue.hold.epoch, self._member.instance.client_id, process_queue.queue)
        await self._producer.send_to(process_queue.queue.broker_name, outgoing, fence)
        self._member.log.warning(
            "dead_lettered",
            queue=str(process_queue.queue),
            offset=message.queue_offset,
            msg_id=message.msg_id,
            reconsume_times=message.reconsume_times,
        )
        _record(self._member, "dead_lettered", process_queue, message, **begun)


async def ask_for_copy(
    member: Membership, broker_name: str, topic: str, message: MessageExt, delay_level: int, limit: int
) -> None:
    """Ask the broker that has a message to make a copy of it: for later, or as a dead letter (wire.md 10.1).

    Args:
        topic: The one that it was sent to.
        delay_level: As `SendBack.send`.
        limit: The attempts after the first one.

    Raises:
        NoRouteError: No route names a master of the broker.
        RemotingError: The broker refused, or did not answer.
    """
    offset, msg_id = message.commit_log_offset, message.msg_id
    header = SendMessageBackRequestHeader(offset, member.group, delay_level, msg_id, topic, False, limit)
    code = RequestCode.CONSUMER_SEND_MSG_BACK
    reply = await member.instance.call(broker_name, code, header, timeout_ms=_TIMEOUT_MS)
    member.instance.check_reply(reply, broker_name, code)


def _record(member: Membership, event: str, process_queue: ProcessQueue, message: MessageExt, **begun: int) -> None:
    offset, key, msg_id = message.queue_offset, message.sharding_key, message.msg_id
    member.record(event, process_queue, offset=offset, key=key, msg_id=msg_id, **begun)
