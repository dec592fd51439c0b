"""Sends that must keep their order: through the lane of their queue."""

import asyncio
from functools import partial

from lockstep.client.config import ProducerConfig
from lockstep.client.errors import NoRouteError, SendError, SendOutcome
from lockstep.client.instance.client import MQClientInstance
from lockstep.client.producer.request import Outgoing, SendRequests, read_send_reply
from lockstep.client.producer.result import SendResult
from lockstep.client.producer.sequencer import LaneBrokenError, LaneNumber, SendLane
from lockstep.order.trace import TraceWriter
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.endpoint import Endpoint
from lockstep.remoting.errors import RemotingError

__all__ = ["OrderedSender"]

# Answers to a retried send after which the same send may succeed: the broker could not, or its order was broken.
_RETRIED_CODES = frozenset(
    {ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.SEND_OUT_OF_SEQUENCE}
)
_RETRY_DELAY_MS = 100
_BROKEN = "an earlier send to its queue failed, and it must not overtake that one"


class OrderedSender:
    """One lane a queue. See `send_lane` for the rules."""

    def __init__(
        self, instance: MQClientInstance, requests: SendRequests, config: ProducerConfig, trace: TraceWriter | None
    ) -> None:
        self._instance = instance
        self._requests = requests
        self._config = config
        self._trace = trace
        self._lanes: dict[MessageQueue, SendLane] = {}

    async def send(self, queue: MessageQueue, outgoing: Outgoing, timeout_ms: int) -> SendResult:
        """Raises SendError."""
        lane = self._lanes.get(queue)
        if lane is None:
            lane = self._lanes[queue] = SendLane(queue)
        endpoint = self._instance.open_sender(queue.broker_name)
        failure = None
        # The common case, in one coroutine: nobody waits, and any number may be in flight.
        if endpoint is not None and endpoint.agreed and not endpoint.write_paused and not outgoing.uncompressed:
            number = lane.depart_at_once(endpoint)
            if number is not None:
                ticket = number.ticket
                try:
                    future = self._transmit(lane, number, endpoint, outgoing, timeout_ms)
                    result = await self._outcome(lane, number, future, outgoing)
                except SendError as error:
                    failure = error
                else:
                    if self._trace is not None:
                        self._trace.sent(result.queue, result.queue_offset, outgoing.sharding_key, outgoing.msg_ids)
                    return result
        if failure is None:
            ticket = lane.ticket()
        return await self._send_in_turn(lane, ticket, outgoing, timeout_ms, failure)

    async def _send_in_turn(
        self, lane: SendLane, ticket: int, outgoing: Outgoing, timeout_ms: int, failure: SendError | None
    ) -> SendResult:
        """Attempts, each in the lane's turn, until one is stored or repeats are used up; `failure` is of the first."""
        deadline_ms = self._instance.runtime.now_ms() + timeout_ms
        attempts = 1 + (self._config.retry_times if self._config.retry_keyed else 0)
        earlier: SendError | None = None
        if failure is None:
            lane.ground(ticket)
        while True:
            if failure is not None:
                earlier = failure.after(earlier)
                attempts -= failure.outcome is not SendOutcome.NOT_SENT
                late = self._instance.runtime.now_ms() >= deadline_ms
                if attempts <= 0 or late or not self._config.retry_keyed or not _may_retry(failure):
                    lane.give_up(ticket)
                    self._note_failure(outgoing, earlier)
                    raise earlier
                await self._pause(lane, ticket)
            try:
                result = await self._attempt(lane, ticket, outgoing, timeout_ms)
            except LaneBrokenError:
                failure = SendError(_BROKEN, SendOutcome.NOT_SENT, msg_id=outgoing.msg_id).after(earlier)
                self._note_failure(outgoing, failure)
                raise failure from None
            except SendError as error:
                failure = error
            else:
                if self._trace is not None:
                    self._trace.sent(result.queue, result.queue_offset, outgoing.sharding_key, outgoing.msg_ids)
                return result

    async def _pause(self, lane: SendLane, ticket: int) -> None:
        """Between attempts; the lane stays closed to later sends meanwhile."""
        try:
            await asyncio.sleep(_RETRY_DELAY_MS / 1000)
        except asyncio.CancelledError:
            lane.give_up(ticket)
            raise

    def _note_failure(self, outgoing: Outgoing, failure: SendError) -> None:
        if self._trace is not None:
            self._trace.send_failed(outgoing.topic, outgoing.sharding_key, outgoing.msg_ids, failure.outcome.name)

    async def send_one_way(self, queue: MessageQueue, outgoing: Outgoing) -> None:
        """In call order with the rest of its lane, as far as it gets. Raises SendError when it could not leave."""
        lane = self._lanes.setdefault(queue, SendLane(queue))
        ticket = lane.ticket()
        lane.ground(ticket)
        try:
            endpoint, outgoing = await self._take_turn(lane, ticket, outgoing, self._config.send_timeout_ms)
        except LaneBrokenError:
            raise SendError(_BROKEN, SendOutcome.NOT_SENT, msg_id=outgoing.msg_id) from None
        except SendError:
            lane.give_up(ticket)
            raise
        try:
            context = self._requests.before_hooks(outgoing, queue, endpoint.address)
            endpoint.send_one_way(self._requests.command(queue, outgoing))
            if context is not None:
                self._requests.hooks.after(context, None)
        finally:
            lane.leave(ticket)  # without a number: nobody would hear that the broker refused it
            lane.release()

    # One attempt ---------------------------------------------------------------------------------------------

    async def _attempt(self, lane: SendLane, ticket: int, outgoing: Outgoing, timeout_ms: int) -> SendResult:
        endpoint, outgoing = await self._take_turn(lane, ticket, outgoing, timeout_ms)
        alone = not endpoint.agreed
        try:
            number = lane.depart(ticket, endpoint)
            future = self._transmit(lane, number, endpoint, outgoing, timeout_ms)
        except BaseException:
            lane.release()
            raise
        if not alone:
            lane.release()  # the next one may leave; the broker keeps them in order
        return await self._outcome(lane, number, future, outgoing, alone)

    async def _take_turn(
        self, lane: SendLane, ticket: int, outgoing: Outgoing, timeout_ms: int
    ) -> tuple[Endpoint, Outgoing]:
        """Have the lane's turn, and the connection to leave over; a large body is compressed meanwhile.

        Raises LaneBrokenError, and SendError with the ticket still grounded; without the turn then.
        """
        while True:
            await lane.turn(ticket)
            try:
                if outgoing.uncompressed:
                    outgoing = await self._requests.compressed(outgoing)
                endpoint = await self._open(lane.queue, outgoing, timeout_ms)
                if lane.cleared(ticket, endpoint):
                    return endpoint, outgoing
            except SendError:
                lane.release()
                raise
            except BaseException:
                lane.leave(ticket)
                lane.release()
                raise
            lane.release()

    async def _open(self, queue: MessageQueue, outgoing: Outgoing, timeout_ms: int) -> Endpoint:
        try:
            endpoint = await self._instance.sender(queue.broker_name)
            if endpoint.write_paused:
                await asyncio.wait_for(endpoint.writable(), timeout_ms / 1000)
        except (NoRouteError, RemotingError) as error:
            raise SendError(str(error), SendOutcome.NOT_SENT, msg_id=outgoing.msg_id) from None
        except TimeoutError:
            reason = f"{endpoint.address} takes nothing more, for {timeout_ms} ms"
            raise SendError(reason, SendOutcome.NOT_SENT, msg_id=outgoing.msg_id) from None
        return endpoint

    def _transmit(
        self, lane: SendLane, number: LaneNumber, endpoint: Endpoint, outgoing: Outgoing, timeout_ms: int
    ) -> "asyncio.Future[RemotingCommand]":
        requests = self._requests
        try:
            context = requests.before_hooks(outgoing, lane.queue, endpoint.address) if requests.hooks.active else None
            command = requests.command(lane.queue, outgoing, number if endpoint.agreed else None)
            if context is None:
                return endpoint.request_nowait(command, timeout_ms)
            return requests.request_with_hooks(context, endpoint, command, timeout_ms, lane.queue, outgoing)
        except RemotingError as error:
            lane.broke(number)
            raise SendError(str(error), SendOutcome.NOT_SENT, msg_id=outgoing.msg_id) from None
        except BaseException:
            lane.recall(number)  # such a message can never leave, and is no reason for others to fail
            raise

    async def _outcome(
        self,
        lane: SendLane,
        number: LaneNumber,
        future: "asyncio.Future[RemotingCommand]",
        outgoing: Outgoing,
        alone: bool = False,
    ) -> SendResult:
        """`alone`: the turn is held until the answer is there, even when the caller has gone."""
        try:
            reply = await (asyncio.shield(future) if alone else future)
            result = read_send_reply(reply, lane.queue, outgoing)
        except asyncio.CancelledError:  # it left in its place; the caller no longer wants to know
            if alone:
                future.add_done_callback(partial(_settle_late, lane, number))
            else:
                lane.abandon(number)
            raise
        except (SendError, RemotingError) as error:
            lane.broke(number)
            if alone:
                lane.release()
            if isinstance(error, SendError):
                raise
            raise SendError(str(error), SendOutcome.UNKNOWN, msg_id=outgoing.msg_id) from None
        lane.settled(number)
        if alone:
            lane.release()
        return result


def _settle_late(lane: SendLane, number: LaneNumber, future: "asyncio.Future[RemotingCommand]") -> None:
    if not future.cancelled():
        future.exception()  # nobody else will look at it
    lane.settled(number)
    lane.release()


def _may_retry(failure: SendError) -> bool:
    return failure.outcome is not SendOutcome.REFUSED or failure.code in _RETRIED_CODES
