"""OrderedSender: sends to a given queue, in call order."""

import asyncio
from functools import partial

from lockstep.client.config import ProducerConfig
from lockstep.client.errors import SendError, SendOutcome
from lockstep.client.instance.client import MQClientInstance
from lockstep.client.producer.request import Outgoing, SendRequests, open_sender, read_send_reply
from lockstep.client.producer.result import SendResult
from lockstep.client.producer.sequencer import SendSequence, SequenceBrokenError, SequenceNumber
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.endpoint import Endpoint
from lockstep.remoting.errors import RemotingError

__all__ = ["OrderedSender"]

# After these answers the same send may succeed later: the broker was busy, or an earlier send was missing.
_RETRIED_CODES = frozenset(
    {ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SEND_OUT_OF_SEQUENCE}
)
_RETRY_DELAY_MS = 100
_BROKEN = "an earlier send to its queue failed, and it must not overtake that one"


class OrderedSender:
    """Has one SendSequence for each queue. `sequencer` has the rules."""

    def __init__(self, instance: MQClientInstance, requests: SendRequests, config: ProducerConfig) -> None:
        self._instance = instance
        self._requests = requests
        self._config = config
        self._sequences: dict[MessageQueue, SendSequence] = {}

    async def send(self, queue: MessageQueue, outgoing: Outgoing, timeout_ms: int) -> SendResult:
        """Raises SendError."""
        sequence = self._sequences.get(queue) or self._new_sequence(queue)
        endpoint = self._instance.open_sender(queue.broker_name)
        failure = None
        # The common case, in one coroutine: no send waits, and any number of them may be in flight.
        if endpoint is not None and endpoint.agreed and not endpoint.write_paused and not outgoing.uncompressed:
            number = sequence.depart_at_once(endpoint)
            if number is not None:
                ticket = number.ticket
                try:
                    future = self._transmit(sequence, number, endpoint, outgoing, timeout_ms)
                    return await self._outcome(sequence, number, future, outgoing)
                except SendError as error:
                    failure = error
        if failure is None:
            ticket = sequence.ticket()
            sequence.hold(ticket)
        return await self._send_in_turn(sequence, ticket, outgoing, timeout_ms, failure)

    def _new_sequence(self, queue: MessageQueue) -> SendSequence:
        sequence = self._sequences[queue] = SendSequence(queue)
        return sequence

    async def _send_in_turn(
        self, sequence: SendSequence, ticket: int, outgoing: Outgoing, timeout_ms: int, failure: SendError | None
    ) -> SendResult:
        """Attempt the send, each time in its turn, until it is stored or no attempt is left.

        Args:
            failure: the failure of a first attempt, if there was one.
        """
        deadline_ms = self._instance.runtime.now_ms() + timeout_ms
        attempts = 1 + (self._config.retry_times if self._config.retry_keyed else 0)
        earlier: SendError | None = None
        while True:
            if failure is not None:
                earlier = failure.after(earlier)
                attempts -= failure.outcome is not SendOutcome.NOT_SENT
                late = self._instance.runtime.now_ms() >= deadline_ms
                if attempts <= 0 or late or not self._config.retry_keyed or not _may_retry(failure):
                    sequence.give_up(ticket)
                    raise earlier
                await self._pause(sequence, ticket)
            try:
                return await self._attempt(sequence, ticket, outgoing, timeout_ms)
            except SequenceBrokenError:
                raise SendError(_BROKEN, SendOutcome.NOT_SENT, msg_id=outgoing.msg_id).after(earlier) from None
            except SendError as error:
                failure = error

    async def _pause(self, sequence: SendSequence, ticket: int) -> None:
        """Wait between two attempts. Later sends wait too."""
        try:
            await asyncio.sleep(_RETRY_DELAY_MS / 1000)
        except asyncio.CancelledError:
            sequence.give_up(ticket)
            raise

    async def send_one_way(self, queue: MessageQueue, outgoing: Outgoing) -> None:
        """Send in call order, without an answer. Raises SendError when it could not leave."""
        sequence = self._sequences.get(queue) or self._new_sequence(queue)
        ticket = sequence.ticket()
        sequence.hold(ticket)
        try:
            endpoint, outgoing = await self._take_turn(sequence, ticket, outgoing, self._config.send_timeout_ms)
        except SequenceBrokenError:
            raise SendError(_BROKEN, SendOutcome.NOT_SENT, msg_id=outgoing.msg_id) from None
        except SendError:
            sequence.give_up(ticket)
            raise
        try:
            context = self._requests.before_hooks(outgoing, queue, endpoint.address)
            endpoint.send_one_way(self._requests.command(queue, outgoing))
            if context is not None:
                self._requests.hooks.after(context, None)
        finally:
            sequence.leave(ticket)  # it has no number: if the broker refused it, no answer would say so
            sequence.release()

    # One attempt ---------------------------------------------------------------------------------------------

    async def _attempt(self, sequence: SendSequence, ticket: int, outgoing: Outgoing, timeout_ms: int) -> SendResult:
        endpoint, outgoing = await self._take_turn(sequence, ticket, outgoing, timeout_ms)
        alone = not endpoint.agreed
        try:
            number = sequence.depart(ticket, endpoint)
            future = self._transmit(sequence, number, endpoint, outgoing, timeout_ms)
        except BaseException:
            sequence.release()
            raise
        if not alone:
            sequence.release()  # the next send may leave: the broker keeps the order
        return await self._outcome(sequence, number, future, outgoing, alone)

    async def _take_turn(
        self, sequence: SendSequence, ticket: int, outgoing: Outgoing, timeout_ms: int
    ) -> tuple[Endpoint, Outgoing]:
        """Wait for the turn and for a connection. Meanwhile a large body is compressed.

        Raises:
            SequenceBrokenError: an earlier send was given up.
            SendError: there is no connection. The ticket is held still, and the turn is over.
        """
        while True:
            await sequence.turn(ticket)
            try:
                if outgoing.uncompressed:
                    outgoing = await self._requests.compressed(outgoing)
                endpoint = await open_sender(self._instance, sequence.queue, outgoing, timeout_ms)
                if sequence.may_depart(ticket, endpoint):
                    return endpoint, outgoing
            except SendError:
                sequence.release()
                raise
            except BaseException:
                sequence.leave(ticket)
                sequence.release()
                raise
            sequence.release()

    def _transmit(
        self, sequence: SendSequence, number: SequenceNumber, endpoint: Endpoint, outgoing: Outgoing, timeout_ms: int
    ) -> "asyncio.Future[RemotingCommand]":
        try:
            agreed_number = number if endpoint.agreed else None
            return self._requests.transmit(endpoint, sequence.queue, outgoing, timeout_ms, agreed_number)
        except RemotingError as error:
            sequence.failed(number)
            raise SendError(str(error), SendOutcome.NOT_SENT, msg_id=outgoing.msg_id) from None
        except BaseException:
            sequence.recall(number)  # this message can never leave, which is no reason for others to fail
            raise

    async def _outcome(
        self,
        sequence: SendSequence,
        number: SequenceNumber,
        future: "asyncio.Future[RemotingCommand]",
        outgoing: Outgoing,
        alone: bool = False,
    ) -> SendResult:
        """Wait for the answer.

        Args:
            alone: keep the turn until the answer is there, even if the caller is cancelled.
        """
        try:
            reply = await (asyncio.shield(future) if alone else future)
            result = read_send_reply(reply, sequence.queue, outgoing)
        except asyncio.CancelledError:  # the message left in its place, but its caller does not wait any more
            if alone:
                future.add_done_callback(partial(_settle_late, sequence, number))
            else:
                sequence.abandon(number)
            raise
        except (SendError, RemotingError) as error:
            sequence.failed(number)
            if alone:
                sequence.release()
            if isinstance(error, SendError):
                raise
            raise SendError(str(error), SendOutcome.UNKNOWN, msg_id=outgoing.msg_id) from None
        sequence.settled(number)
        if alone:
            sequence.release()
        return result


def _settle_late(sequence: SendSequence, number: SequenceNumber, future: "asyncio.Future[RemotingCommand]") -> None:
    if not future.cancelled():
        future.exception()  # marks it as read: no caller will
    sequence.settled(number)
    sequence.release()


def _may_retry(failure: SendError) -> bool:
    return failure.outcome is not SendOutcome.REFUSED or failure.code in _RETRIED_CODES
