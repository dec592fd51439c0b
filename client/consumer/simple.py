"""SimpleConsumer: its user asks for messages, and acknowledges each of them; no queue is owned (docs/wire.md 18)."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from typing import Final

from lockstep.client.consumer.consumer import GroupConsumer
from lockstep.client.consumer.delivery_trace import DeliveryTrace
from lockstep.client.consumer.listener import ConsumeOrderlyStatus
from lockstep.client.consumer.member import GroupMember, MemberSettings
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.client.consumer.pop_calls import CALL_ERRORS, POP_COUNT_MAX, Delivery, PopCalls, PopRequest, check_headers
from lockstep.client.errors import ConsumerError, StaleDeliveryError, TopicNotFoundError
from lockstep.client.lifecycle import ServiceState
from lockstep.client.message_selector import Expression
from lockstep.client.pull_config import PullConsumerConfig
from lockstep.protocol.bodies.heartbeat import ConsumeFromWhere, ConsumerData, SubscriptionData
from lockstep.protocol.signature import Credentials
from lockstep.remoting.errors import RemotingError
from lockstep.remoting.host.runtime import Runtime
from lockstep.remoting.logs import EventLog
from lockstep.remoting.tls.options import TlsOptions

__all__ = ["SimpleConsumer"]

# With several brokers, one of them may wait so long before the next one is asked.
_TURN_MS: Final = 1000
_AGAIN_MS: Final = 1000
_SUCCESS: Final = ConsumeOrderlyStatus.SUCCESS.name
_FAILED: Final = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT.name
_Place = tuple[str, str]  # topic, broker name


class _SimpleMember(GroupMember):
    """A member that owns no queues and commits no offsets: the broker keeps what is acknowledged.

    Args:
        where: Where a new group begins.
    """

    def __init__(
        self,
        settings: MemberSettings,
        subscriptions: dict[str, SubscriptionData],
        where: ConsumeFromWhere,
        *,
        in_order: bool,
        trace_path: str | None,
    ) -> None:
        super().__init__(settings, subscriptions, trace_path)
        self.balances = False
        self.pops_in_order = in_order
        self._where = where
        assert isinstance(settings.config, PullConsumerConfig)
        self.calls = PopCalls(
            self.instance,
            settings.group,
            in_order=in_order,
            from_first=where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            answer_ms=settings.config.consumer_pull_timeout_ms,
            shown_to=settings.tenant,
            hooks=settings.hooks,
            trace=DeliveryTrace(writer, settings.group) if (writer := self.membership.trace) is not None else None,
        )

    async def stop(self) -> list[ProcessQueue]:
        self.calls.is_over = True
        stuck = await super().stop()
        if self.calls.trace is not None:
            self.calls.trace.close()
        return stuck

    async def _has_left(self) -> None:
        await self.calls.last_answers()

    def _connection_ended(self, address: str) -> None:
        self.calls.connection_ended(address)

    def _consumer_data(self) -> ConsumerData | None:
        data = super()._consumer_data()
        return None if data is None else data._replace(consume_from_where=self._where)

    def queue_acquired(self, process_queue: ProcessQueue) -> None:
        """It owns none."""

    def queue_dropped(self, process_queue: ProcessQueue, why: str) -> None:
        """It owns none."""

    async def places(self) -> list[_Place]:
        """Each topic with each of its brokers. Raises TopicNotFoundError; NoRouteError when no name server answers."""
        routes, places = self.instance.routes, list[_Place]()
        for topic in list(self._subscriptions):
            route = routes.known(topic) or await routes.fetch(topic)
            if route is not None:
                places += [(topic, data.broker_name) for data in route.queue_datas if data.readable]
        if not places:
            raise TopicNotFoundError(f"no queue to read: {', '.join(map(repr, self._subscriptions))}")
        return places


class SimpleConsumer(GroupConsumer[PullConsumerConfig, _SimpleMember]):
    """RocketMQ 5's SimpleConsumer: `receive`, then `ack`, or `async for delivery in consumer`.

    Nobody else gets a message for its invisible time. If it is not acknowledged by then, it comes again. It asks the
    brokers of its topics in turn, and waits `pull_suspend_ms` for a message. The arguments of the constructor that are
    not listed here are those of GroupConsumer. Brokers before RocketMQ 5 refuse these calls.

    Args:
        in_order: The group reads in order: messages wait until earlier ones are acknowledged.
        invisible_ms: The invisible time, unless a call says another one.
        consume_from_where: Where a new group begins: CONSUME_FROM_FIRST_OFFSET, or else the end of a queue.
        trace: A file that gets a JSON line for each event that matters to order. It needs `in_order`.

    Raises:
        ConsumerError: By calls while the consumer does not run.
        RemotingError: By calls, when a broker refuses or does not answer.
        NoRouteError: By calls, when no name server answers, or no route names the broker.
    """

    _config_class = PullConsumerConfig

    def __init__(
        self,
        group: str,
        *,
        in_order: bool = False,
        invisible_ms: int = 30_000,
        consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        name_server: str | None = None,
        namespace: str | None = None,
        config: PullConsumerConfig | None = None,
        credentials: Credentials | None = None,
        tls: TlsOptions | bool | None = None,
        trace: str | None = None,
        runtime: Runtime | None = None,
        log: EventLog | None = None,
    ) -> None:
        super().__init__(
            group,
            name_server=name_server,
            namespace=namespace,
            config=config,
            credentials=credentials,
            tls=tls,
            runtime=runtime,
            log=log,
        )
        check_headers(self.config)
        _check_invisible(invisible_ms, 1)
        if trace is not None and not in_order:
            raise ConsumerError("a trace is judged for order: it needs in_order=True")
        self._trace_path = trace
        self._in_order = in_order
        self._invisible_ms = invisible_ms
        self._where = consume_from_where
        self._turn = 0

    def subscribe(self, topic: str, expression: Expression = "*") -> None:
        """Receive messages of a topic.

        Args:
            expression: Tags, as "*", "TagA", "TagA || TagB"; or a MessageSelector.

        Raises:
            FilterError: The expression is not legal.
            LocalProtocolError: The topic is not a legal name.
            ConsumerError: The consumer is shut down.
        """
        if self.state not in (ServiceState.CREATE_JUST, ServiceState.RUNNING):
            raise self.wrong_state()
        self._subscribe(topic, expression)

    async def receive(self, max_messages: int = 16, invisible_ms: int | None = None) -> list[Delivery]:
        """Return the messages of one broker; [] when none come in time, or the consumer is shut down meanwhile.

        In order, a call that failed is named again by the next one to its broker: it gets what the lost answer had.

        Raises:
            TopicNotFoundError: No subscribed topic has a queue to read.
            RemoteProtocolError: An answer cannot be read. Its messages come again after their invisible time.
        """
        if not 1 <= max_messages <= POP_COUNT_MAX:
            raise ConsumerError(f"max_messages must be from 1 to {POP_COUNT_MAX}, not {max_messages}")
        invisible_ms = self._invisible_ms if invisible_ms is None else invisible_ms
        _check_invisible(invisible_ms, 1)
        member = self._running()
        if not self._subscriptions:
            raise ConsumerError("nothing is subscribed: call subscribe() first")
        places = await member.places()
        # Several brokers are asked without a wait first: what one has does not wait for another one.
        looks = len(places) if len(places) > 1 else 0
        deadline_ms = member.runtime.now_ms() + self.config.pull_suspend_ms
        while not member.calls.is_over and (left_ms := deadline_ms - member.runtime.now_ms()) > 0:
            wait_ms = left_ms if len(places) == 1 else min(left_ms, _TURN_MS)
            place, self._turn = places[self._turn % len(places)], self._turn + 1
            topic, broker_name = place
            subscription = self._subscriptions.get(topic) or SubscriptionData(topic)  # it may have gone meanwhile
            if looks > 0:
                wait_ms = 0
            request = PopRequest(topic, broker_name, subscription, max_messages, invisible_ms, wait_ms)
            try:
                found = await member.calls.pop(request)
            except RemotingError:
                if self.state is ServiceState.RUNNING:
                    raise
                break
            if found:
                return found
            looks -= 1
        return []

    @contextmanager
    def handling(self, delivery: Delivery) -> Iterator[None]:
        """Handle the message in the body: the trace has this call. It ends with the body, or with an acknowledgement.

        After an exception, and when the message is given back, it counts as failed. A message that is acknowledged
        without this counts as handled in that moment.

        Raises:
            StaleDeliveryError: The delivery is fenced, and may be over: another client may have the message.
        """
        trace, runtime = self._running().calls.trace, self._running().runtime
        if delivery.has_ended(runtime.monotonic_ns()):
            raise StaleDeliveryError(f"the time for message {delivery.message.msg_id} is over")
        delivery.began, status = (runtime.now_ms(), runtime.monotonic_ns()), _FAILED
        try:
            yield
            status = _SUCCESS
        finally:
            if trace is not None and delivery.began is not None:
                trace.handled([delivery], status, delivery.began)
            delivery.began, delivery.is_recorded = None, status is _SUCCESS

    async def ack(self, delivery: Delivery) -> None:
        """Say that the message is consumed.

        Raises:
            StaleDeliveryError: The broker says that this delivery has ended; another client may have the message.
                RocketMQ, and Lockstep without fenced locks, ignore such an acknowledgement.
        """
        calls = self._running().calls
        if calls.trace is not None and (delivery.began is not None or not delivery.is_recorded):
            # First the record: after a crash it is a repeat, and no loss.
            calls.trace.handled([delivery], _SUCCESS, delivery.began or calls.trace.now())
            delivery.began, delivery.is_recorded = None, True
        await calls.ack(delivery)

    async def change_invisible(self, delivery: Delivery, invisible_ms: int) -> None:
        """Nobody else gets the message for so long from now on; with 0 it may come again at once. Raises as `ack`."""
        _check_invisible(invisible_ms, 0)
        calls = self._running().calls
        if calls.trace is not None and delivery.began is not None and not invisible_ms:
            calls.trace.handled([delivery], _FAILED, delivery.began)
            delivery.began = None
        await calls.change_invisible(delivery, invisible_ms)

    # Iteration -----------------------------------------------------------------------------------------------

    def __aiter__(self) -> AsyncIterator[Delivery]:
        """One message at a time. It is acknowledged when the body goes on; after `break` or an exception it is not.

        A call that fails is logged and made again. The iteration ends with the shutdown.
        """
        return self._deliveries()

    async def _deliveries(self) -> AsyncIterator[Delivery]:
        self._running()
        while self.state is ServiceState.RUNNING:
            try:
                deliveries = await self.receive(1)
            except CALL_ERRORS as error:
                self._log.warning("pop_call_failed", call="receive", error=str(error))
                await asyncio.sleep(_AGAIN_MS / 1000)
                continue
            for delivery in deliveries:
                if self._is_over(delivery):
                    continue
                with self.handling(delivery):
                    yield delivery
                if self.state is ServiceState.RUNNING and not delivery.is_settled:
                    await self._ack_or_log(delivery)

    def _is_over(self, delivery: Delivery) -> bool:
        return self.state is not ServiceState.RUNNING or delivery.has_ended(self._running().runtime.monotonic_ns())

    async def _ack_or_log(self, delivery: Delivery) -> None:
        try:
            await self.ack(delivery)
        except (StaleDeliveryError, *CALL_ERRORS) as error:
            self._log.warning("pop_call_failed", call="ack", error=str(error))

    # Life ----------------------------------------------------------------------------------------------------

    def _new_member(self, settings: MemberSettings) -> _SimpleMember:
        return _SimpleMember(
            settings, self._subscriptions, self._where, in_order=self._in_order, trace_path=self._trace_path
        )


def _check_invisible(invisible_ms: int, low: int) -> None:
    if invisible_ms < low:
        raise ConsumerError(f"invisible_ms must be {low} ms or more, not {invisible_ms}")
