"""OrderedSender: sends to a given queue, in call order."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import cast

from lockstep.client.config import ProducerConfig
from lockstep.client.errors import SendError, SendForbiddenError, SendOutcome
from lockstep.client.instance.client import MQClientInstance
from lockstep.client.producer.answers import read_send_reply
from lockstep.client.producer.batches import Batch, BatchRefusedError
from lockstep.client.producer.outgoing import OneSend, Outgoing, SentFuture
from lockstep.client.producer.request import SendRequests, open_sender
from lockstep.client.producer.sequencer import SendSequence, SequenceBrokenError, SequenceNumber
from lockstep.client.send_result import SendResult
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.tuples import new_tuple
from lockstep.remoting.connections.endpoint import Endpoint
from lockstep.remoting.errors import RemotingError

__all__ = ["OrderedSender"]

# After these answers the same send may succeed later: the broker was busy, or an earlier send was missing.
_RETRIED_CODES = frozenset(
    {ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SEND_OUT_OF_SEQUENCE}
)
# How the remark begins when a broker refuses requests unread (wire.md 3).
_FLOW_CONTROL = ("[REJECTREQUEST]", "[OVERLOAD]", "[TIMEOUT_CLEAN_QUEUE]", "[PCBUSY_CLEAN_QUEUE]")
_RETRY_DELAY_MS = 100
_RETRY_DELAY_MAX_MS = 1000
_BROKEN = "an earlier send to its queue failed, and it must not overtake that one"


class OrderedSender:
    """Has one SendSequence for each queue. `sequencer` has the rules."""

    def __init__(self, instance: MQClientInstance, requests: SendRequests, config: ProducerConfig) -> None:
        self._instance = instance
        self._requests = requests
        self._config = config
        self._batches = config.auto_batch and config.send_together_max > 1
        self._sequences: dict[MessageQueue, SendSequence] = {}
        self._new_future: Callable[[], SentFuture] = asyncio.get_running_loop().create_future

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
                future = self._new_future()
                send = new_tuple(OneSend, (queue, outgoing, timeout_ms, number, future))
                try:
                    self._transmit(sequence, number, endpoint, send)
                except SendError as error:
                    failure = error
                else:
                    try:
                        reply = await future
                        result = reply if type(reply) is SendResult else read_send_reply(reply, queue, outgoing)
                    except asyncio.CancelledError:
                        # The message leaves in its place, but its caller does not wait.
                        sequence.abandon(number)
                        raise
                    except (SendError, RemotingError) as error:
                        sequence.failed(number)
                        failure = _send_error(error, outgoing)
                    else:
                        sequence.settled(number, -1 if outgoing.special else result.queue_offset)
                        return result
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
        delay_ms = _RETRY_DELAY_MS
        earlier: SendError | None = None
        while True:
            if failure is not None:
                earlier = failure.after(earlier)
                throttled = _is_throttled(sequence, failure) and self._config.retry_keyed
                # What never left this process, and what the broker's flow control refused, costs no attempt: the time
                # limit ends it.
                attempts -= failure.outcome is not SendOutcome.NOT_SENT and not throttled
                late = self._instance.runtime.now_ms() >= deadline_ms
                if attempts <= 0 or late or not self._config.retry_keyed or not _may_retry(failure):
                    # First give the ticket up, then raise: sends that wait behind it must fail too, or they would
                    # overtake it.
                    sequence.give_up(ticket)
                    raise earlier
                await self._pause(sequence, ticket, delay_ms)
                delay_ms = min(2 * delay_ms, _RETRY_DELAY_MAX_MS) if throttled else _RETRY_DELAY_MS
            unsure = earlier is not None and earlier.outcome is SendOutcome.UNKNOWN
            try:
                return await self._attempt(sequence, ticket, outgoing, timeout_ms, unsure=unsure)
            except SequenceBrokenError:
                raise SendError(_BROKEN, SendOutcome.NOT_SENT, msg_id=outgoing.msg_id).after(earlier) from None
            except BatchRefusedError:
                # Nothing of it is stored: the message leaves by itself, in its place.
                outgoing, failure = outgoing._replace(special=True), None
            except SendError as error:
                failure = error

    async def _pause(self, sequence: SendSequence, ticket: int, delay_ms: int) -> None:
        """Wait between two attempts. Later sends wait too."""
        try:
            await asyncio.sleep(delay_ms / 1000)
        except asyncio.CancelledError:
            # The caller is gone, and with it the message: later sends would stand in its place.
            sequence.give_up(ticket)
            raise

    async def send_one_way(self, queue: MessageQueue, outgoing: Outgoing) -> None:
        """Send in call order, without an answer. Raises SendError when it could not leave."""
        sequence = self._sequences.get(queue) or self._new_sequence(queue)
        ticket = sequence.ticket()
        sequence.hold(ticket)
        try:
            endpoint, outgoing, _ = await self._take_turn(sequence, ticket, outgoing, self._config.send_timeout_ms)
        except SequenceBrokenError:
            raise SendError(_BROKEN, SendOutcome.NOT_SENT, msg_id=outgoing.msg_id) from None
        except SendError:
            sequence.give_up(ticket)
            raise
        try:
            self._requests.transmit_one_way(endpoint, queue, outgoing)
        finally:
            # It has no number: if the broker refused it, no answer would say so.
            sequence.leave(ticket)
            sequence.release()

    # One attempt ---------------------------------------------------------------------------------------------

    async def _attempt(
        self, sequence: SendSequence, ticket: int, outgoing: Outgoing, timeout_ms: int, *, unsure: bool
    ) -> SendResult:
        """`unsure`: an earlier attempt may be stored, and the broker is asked first."""
        batched = None
        if self._batches and not (outgoing.special or outgoing.uncompressed or outgoing.sys_flag):
            # A batch has no flags of compression, no delay and no transaction.
            batched = OneSend.of(sequence.queue, outgoing, timeout_ms)
        try:
            endpoint, outgoing, number = await self._take_turn(sequence, ticket, outgoing, timeout_ms, batched)
        except asyncio.CancelledError:
            if batched is not None and not batched.future.cancel():
                batched.future.exception()  # marks it as read
            raise
        if number is not None and batched is not None:
            return await self._outcome(sequence, number, batched.future, outgoing)
        alone = not endpoint.agreed
        # The earlier attempt may be stored. A repeat without the question could store the message twice (wire.md 17.3).
        if unsure and not alone:
            found = await self._find_sent(sequence, ticket, endpoint, outgoing, timeout_ms)
            if found is not None:
                return found
        try:
            number = sequence.depart(ticket, endpoint)
            if alone and batched is not None and self._leaves_with_others(sequence, endpoint, batched):
                future = batched.future
            else:
                # To a broker that does not check the order it leaves now, not with others of no order.
                now = outgoing._replace(special=True) if alone and self._batches else outgoing
                send = OneSend.of(sequence.queue, now, timeout_ms, None if alone else number)
                self._transmit(sequence, number, endpoint, send)
                future = send.future
        except BaseException:
            sequence.release()
            raise
        if not alone:
            # The next send may leave: the broker keeps the order.
            sequence.release()
        return await self._outcome(sequence, number, future, outgoing, alone)

    async def _find_sent(
        self, sequence: SendSequence, ticket: int, endpoint: Endpoint, outgoing: Outgoing, timeout_ms: int
    ) -> SendResult | None:
        """Ask the broker for an earlier attempt. The send has the turn, and keeps it if there is none.

        Raises:
            SequenceBrokenError: an earlier send was given up.
            SendError: the broker did not say. The ticket is held still, and the turn is over.
        """
        try:
            reply = await self._requests.find_sent(endpoint, sequence, ticket, outgoing, timeout_ms)
            if reply.code == ResponseCode.SEND_OUT_OF_SEQUENCE:
                # As after a send: the broker may have forgotten the generation.
                sequence.renew()
            is_there = reply.code != ResponseCode.QUERY_NOT_FOUND
            found = read_send_reply(reply, sequence.queue, outgoing) if is_there else None
            if found is None and not sequence.may_depart(ticket, endpoint):
                raise SendError("an earlier send failed meanwhile", SendOutcome.NOT_SENT, msg_id=outgoing.msg_id)
        except (SendError, RemotingError) as error:
            sequence.release()
            raise _send_error(error, outgoing) from None
        except BaseException:
            sequence.leave(ticket)
            sequence.release()
            raise
        # The earlier attempt was stored, so this send needs no number and later ones may leave.
        if found is not None:
            sequence.leave(ticket)
            sequence.release()
        return found

    def _leaves_with_others(self, sequence: SendSequence, endpoint: Endpoint, first: OneSend) -> bool:
        """Send a batch of this message, which has departed, and of those that wait behind it, if there are any."""
        batch = Batch(self._config, first)
        sequence.take_along(endpoint, batch.join)
        if len(batch) < 2:
            return False

        def ended() -> None:
            if isinstance(first.future.exception(), SendForbiddenError):
                # Not before: the caller of a forbidden message does not wait for the others.
                sequence.release()

        self._requests.transmit_batch(endpoint, batch, ended)
        return True

    async def _take_turn(
        self,
        sequence: SendSequence,
        ticket: int,
        outgoing: Outgoing,
        timeout_ms: int,
        batched: OneSend | None = None,
    ) -> tuple[Endpoint, Outgoing, SequenceNumber | None]:
        """Wait for the turn and for a connection. Meanwhile a large body is compressed.

        Args:
            batched: what an earlier send may take along in its batch.

        Returns:
            The connection, the message, and its number if an earlier send took it along: then it has no turn.

        Raises:
            SequenceBrokenError: an earlier send was given up.
            SendError: there is no connection. The ticket is held still, and the turn is over.
        """
        while True:
            number = await sequence.turn(ticket, batched)
            if number is not None:
                return cast("Endpoint", sequence.peer), outgoing, number
            try:
                if outgoing.uncompressed:
                    outgoing = await self._requests.compressed(outgoing)
                endpoint = await open_sender(self._instance, sequence.queue, outgoing, timeout_ms)
                if sequence.may_depart(ticket, endpoint):
                    return endpoint, outgoing, None
            except SendError:
                sequence.release()
                raise
            except BaseException:
                sequence.leave(ticket)
                sequence.release()
                raise
            sequence.release()

    def _transmit(self, sequence: SendSequence, number: SequenceNumber, endpoint: Endpoint, send: OneSend) -> None:
        try:
            self._requests.transmit(endpoint, send)
        except RemotingError as error:
            sequence.failed(number)
            raise SendError(str(error), SendOutcome.NOT_SENT, msg_id=send.outgoing.msg_id) from None
        except BaseException:
            # This message can never leave, which is no reason for others to fail.
            sequence.recall(number)
            raise

    async def _outcome(
        self,
        sequence: SendSequence,
        number: SequenceNumber,
        future: SentFuture,
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
        except asyncio.CancelledError:
            # The message left in its place, but its caller does not wait any more.
            if alone:
                future.add_done_callback(partial(_settle_late, sequence, number))
            else:
                sequence.abandon(number)
            raise
        except (SendError, RemotingError) as error:
            sequence.failed(number)
            if alone:
                sequence.release()
            raise _send_error(error, outgoing) from None
        except SendForbiddenError:
            # It was left out of its batch, which is no reason for others to fail.
            # The turn lasts until the batch has ended.
            sequence.settled(number)
            raise
        sequence.settled(number, -1 if outgoing.special else result.queue_offset)
        if alone:
            sequence.release()
        return result


def _send_error(error: SendError | RemotingError, outgoing: Outgoing) -> SendError:
    """The outcome of a message that left, and whose connection failed, is unknown."""
    if isinstance(error, SendError):
        return error
    return SendError(str(error), SendOutcome.UNKNOWN, msg_id=outgoing.msg_id)


def _settle_late(sequence: SendSequence, number: SequenceNumber, future: SentFuture) -> None:
    if not future.cancelled():
        # Marks the error as read: no caller will read it.
        future.exception()
    sequence.settled(number)
    sequence.release()


def _may_retry(failure: SendError) -> bool:
    return failure.outcome is not SendOutcome.REFUSED or failure.code in _RETRIED_CODES


def _is_throttled(sequence: SendSequence, failure: SendError) -> bool:
    """Whether the broker's flow control refused the send, or the one before it: attempts are not counted then."""
    busy = failure.code == ResponseCode.SYSTEM_BUSY
    sequence.throttled |= busy and any(tag in failure.reason for tag in _FLOW_CONTROL)
    return sequence.throttled and failure.code in (ResponseCode.SYSTEM_BUSY, ResponseCode.SEND_OUT_OF_SEQUENCE)
