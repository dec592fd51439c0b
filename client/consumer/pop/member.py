"""PopMember: a running PushConsumer in POP mode: it asks brokers for messages, and owns no queue (wire.md 18)."""

import asyncio
from typing import Final, NamedTuple

from lockstep.client.callables import log_or_raise
from lockstep.client.consumer.broker_requests import Listening
from lockstep.client.consumer.delivery_trace import DeliveryTrace
from lockstep.client.consumer.dispatch.direct import ConsumeDirectly
from lockstep.client.consumer.dispatch.table import ORDERINGS, OrderingName
from lockstep.client.consumer.left_work import LeftWork
from lockstep.client.consumer.listener import AnyListener, AroundListener, ListenerCall
from lockstep.client.consumer.member import GroupMember, MemberSettings
from lockstep.client.consumer.ownership.process_queue import ProcessQueue
from lockstep.client.consumer.pop.held import Place
from lockstep.client.consumer.pop.service import PopService
from lockstep.client.consumer.pop_calls import ANY_QUEUE, CALL_ERRORS, POP_COUNT_MAX, PopCalls, PopRequest
from lockstep.client.errors import ConsumerError
from lockstep.protocol.bodies.heartbeat import ConsumeFromWhere, ConsumeType, SubscriptionData
from lockstep.protocol.bodies.pop import POP, AssignmentsBody, QueryAssignmentBody
from lockstep.protocol.bodies.subscription_group import SubscriptionGroupConfig
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.headers.admin import GetSubscriptionGroupConfigRequestHeader
from lockstep.protocol.selector import KeyOf
from lockstep.remoting.errors import RequestRefused

__all__ = ["PopConsumption", "PopMember"]

# A wait takes at most this part (1/4) of an invisible time: nobody knows when in the wait the broker delivered, so the
# client counts from the begin of the call.
_WAIT_PART: Final = 4
_MS_NS: Final = 1_000_000


class PopConsumption(NamedTuple):
    """The listener of a consumer, and the order it is called in. `key_of` counts with ordering "key" alone."""

    listener: AnyListener
    ordering: OrderingName
    key_of: KeyOf
    trace_path: str | None


class PopMember(GroupMember):
    """A member that hands delivered messages to a listener."""

    consume_type = ConsumeType.CONSUME_PASSIVELY

    def __init__(
        self, settings: MemberSettings, subscriptions: dict[str, SubscriptionData], consumption: PopConsumption
    ) -> None:
        super().__init__(settings, subscriptions, consumption.trace_path)
        config, ordering = self.config, ORDERINGS[consumption.ordering]
        self._ordering = consumption.ordering
        self._suspended = self._is_stuck = False
        self._missing: set[str] = set()  # topics without queues; the log says each once
        self._places: dict[tuple[str, str, int], Place] = {}
        self._polls: dict[Place, asyncio.Task[None]] = {}
        self._renewal: asyncio.Task[None] | None = None
        self._pool = self.runtime.new_worker_pool(f"{settings.group} listener", config.consume_threads)
        around = AroundListener(settings.hooks, settings.tenant, config, self.runtime)
        left, now_ms = LeftWork(self.runtime, self.log, settings.group), self.runtime.now_ms
        call = ListenerCall(consumption.listener, self._pool, self.log, ordering.contract, around, now_ms, left)
        writer = self.membership.trace
        self._calls = PopCalls(
            self.instance,
            settings.group,
            in_order=self._in_order,
            from_first=config.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            answer_ms=config.pull_timeout_ms - config.pull_suspend_ms,
            shown_to=settings.tenant,
            hooks=settings.hooks,
            trace=None if writer is None else DeliveryTrace(writer, settings.group, consumption.key_of),
        )
        self.service = PopService(
            self.membership,
            self._calls,
            call,
            self._pool,
            self.stats,
            consumption.ordering,
            consumption.key_of,
            subscriptions,
        )
        directly = ConsumeDirectly(self.runtime, settings.group, call, self.service.between_runs)
        # A broker's offsets alone count: the client has none to reset.
        self._listening: Listening = Listening(
            self._in_order, config.consume_threads, directly, lambda *_: None, pops=True
        )

    @property
    def _in_order(self) -> bool:
        return self._ordering != "none"

    # It owns no queues ---------------------------------------------------------------------------------------

    def queue_acquired(self, process_queue: ProcessQueue) -> None:
        """It owns none."""

    def queue_dropped(self, process_queue: ProcessQueue, why: str) -> None:
        """It owns none."""

    @property
    def _has_topics(self) -> bool:
        return bool(self._subscriptions)

    @property
    def _holds(self) -> bool:
        # A broker gives to others at once what a member had that left.
        return bool(self.service.held)

    # Life ----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """As GroupMember. Raises ConsumerError also when a broker knows no POP."""
        await super().start()
        try:
            await self._read_group()
            await self.rebalance_now()
        except BaseException as error:
            if isinstance(error, CALL_ERRORS):
                # The next round asks again.
                self.log.warning("rebalance_failed", consequence="nothing is asked for yet", error=str(error))
            else:
                await self.stop()
                raise
        self._renewal = self.runtime.create_task(self.service.answers.renew_forever(), name="renew deliveries")

    async def _read_group(self) -> None:
        """The order and the attempts that the group's configuration wants. Raises ConsumerError."""
        broker_name = next(iter(self._brokers()), None)
        header = GetSubscriptionGroupConfigRequestHeader(self._settings.group)
        group = SubscriptionGroupConfig(self._settings.group)
        if broker_name is not None:
            try:
                code = RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG
                group = await self.instance.call_for(SubscriptionGroupConfig, broker_name, code, header)
            except CALL_ERRORS as error:
                # Such as a client that may not read it: RocketMQ's defaults.
                self.log.debug("group_config_unknown", group=self._settings.group, error=str(error))
        limit = self.config.max_reconsume_times
        self.service.limit = group.retry_max_times if limit < 0 else limit
        if group.consume_message_orderly and not self._in_order:
            raise ConsumerError(f"group {group.group_name!r} is read in order: ordering must not be 'none'")
        if self._in_order and group.consume_message_orderly is False:
            # The request says the order, but clients over gRPC go by the group's configuration.
            why = f"clients over gRPC read it without order until `lockstep group update {group.group_name} --fifo`"
            self.log.info("group_not_orderly", group=group.group_name, why=why)

    async def stop(self) -> list[ProcessQueue]:
        """A listener that does not return within `await_termination_ms` is logged; its messages come again later."""
        stuck = await super().stop()
        self._pool.close()
        if self.membership.trace is not None and not self._is_stuck:
            # A stuck listener that returns later is still recorded.
            self.membership.trace.close()
        return stuck

    async def _end_consumption(self) -> list[ProcessQueue]:
        for place in self._polls:
            place.end()
        timeout_ms = self.config.await_termination_ms
        for queue in await self.service.stop(timeout_ms):
            self._is_stuck = True
            consequence = "its messages come again after their invisible time"
            self.log.error("listener_stuck", queue=str(queue), waited_ms=timeout_ms, consequence=consequence)
        if self._renewal is not None:
            await _cancelled(self._renewal)
        return []

    async def _has_left(self) -> None:
        await self._calls.last_answers()
        await _cancelled(*self._polls.values())

    def _connection_ended(self, address: str) -> None:
        self._calls.connection_ended(address)
        if self.service.held and not self._stopping:
            self.runtime.create_task(self.service.answers.connection_ended(), name="renew deliveries now")

    # Calls of the user ---------------------------------------------------------------------------------------

    def suspend(self) -> None:
        self._suspended = True

    def resume(self) -> None:
        self._suspended = False

    def set_consume_thread_count(self, count: int) -> None:
        self.service.set_consume_thread_count(count)
        self._listening.consume_thread_count = count

    # Assignments ---------------------------------------------------------------------------------------------

    def _brokers(self) -> dict[str, None]:
        """The brokers that the subscribed topics can be read at."""
        routes = [self.instance.routes.known(topic) for topic in self._subscriptions]
        return {data.broker_name: None for route in routes if route for data in route.queue_datas if data.readable}

    async def _balance(self) -> None:
        """Ask each broker of each topic what to read there; what a broker does not answer for stays as it is."""
        wanted = dict[tuple[str, str, int], None]()
        for topic in list(self._subscriptions):
            route = await self.instance.routes.get(topic)
            names = [data.broker_name for data in route.queue_datas if data.readable] if route is not None else []
            if not names and topic not in self._missing:
                self._missing.add(topic)
                why = "it does not exist" if route is None else "it has no readable queue"
                self.log.warning("topic_route_missing", topic=topic, group=self._settings.group, why=why)
            for broker_name in names:
                self._missing.discard(topic)
                try:
                    queue_ids = await self._assigned(topic, broker_name)
                except CALL_ERRORS as error:
                    self.log.warning("rebalance_failed", topic=topic, broker=broker_name, error=str(error))
                    queue_ids = [key[2] for key in self._places if key[:2] == (topic, broker_name)]
                wanted |= {(topic, broker_name, queue_id): None for queue_id in queue_ids}
        for key in [key for key in self._places if key not in wanted]:
            self._places.pop(key).end()
        await self.service.give_back_unsubscribed()
        for key in wanted:
            if key not in self._places and not self._stopping:
                place = self._places[key] = Place(*key)
                self._polls[place] = self.runtime.create_task(self._poll(place), name=f"pop {place}")

    async def _assigned(self, topic: str, broker_name: str) -> list[int]:
        asked = QueryAssignmentBody(topic, self._settings.group, self.instance.client_id)
        code = RequestCode.QUERY_ASSIGNMENT
        try:
            answer = await self.instance.call_for(AssignmentsBody, broker_name, code, body=asked)
        except RequestRefused as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise ConsumerError(f"broker {broker_name} knows no POP: it is older than RocketMQ 5") from None
            raise
        queues = {
            one.queue.queue_id: one.mode for one in answer.assignments or () if one.queue.broker_name == broker_name
        }
        if all(mode == POP for mode in queues.values()) and queues:
            return list(queues)
        # Nobody set the mode of the group: the broker shares queues out for pulls, but this member pops.
        return [ANY_QUEUE]

    # Polls ---------------------------------------------------------------------------------------------------

    async def _poll(self, place: Place) -> None:
        """Ask for messages, as long as there is room."""
        try:
            while not place.is_over:
                try:
                    wait_ms = await self._poll_once(place)
                except CALL_ERRORS as error:
                    if not place.is_over:
                        self.log.warning("pop_call_failed", call="receive", queue=str(place), error=str(error))
                    wait_ms = self.config.pull_delay_when_exception_ms
                except BaseException as error:
                    log_or_raise(self.log, "pop_call_failed", error, call="receive", queue=str(place))
                    wait_ms = self.config.pull_delay_when_exception_ms
                if wait_ms and not place.is_over:
                    await asyncio.sleep(wait_ms / 1000)
        finally:
            del self._polls[place]

    async def _poll_once(self, place: Place) -> int:
        """Make one call. Returns how long to wait then, in ms."""
        config, room = self.config, self.config.pop_threshold_for_queue - place.count
        subscription = self._subscriptions.get(place.topic)
        if subscription is None or self._suspended:
            return config.pull_delay_when_suspended_ms
        if room <= 0:
            await place.wait_for_room()
            return 0
        began_ns, invisible_ms = self.runtime.monotonic_ns(), config.pop_invisible_ms
        request = PopRequest(
            place.topic,
            place.broker_name,
            subscription,
            min(room, config.pull_batch_size, POP_COUNT_MAX),
            invisible_ms,
            min(config.pull_suspend_ms, invisible_ms // _WAIT_PART),
            place.queue_id,
        )
        deliveries = await self._calls.pop(request)
        if deliveries:
            self.stats.pulled(place.topic, len(deliveries), (self.runtime.monotonic_ns() - began_ns) // _MS_NS)
            await self.service.take(place, deliveries, began_ns + invisible_ms * _MS_NS)
        return 0


async def _cancelled(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
