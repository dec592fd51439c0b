"""`lockstep consume`: an ordered push consumer that prints its messages."""

import asyncio
from collections.abc import Mapping
from contextlib import AsyncExitStack
from dataclasses import replace

from lockstep.cli.consume.explain import ConsumeLog, Explainer
from lockstep.cli.consume.options import ConsumeOptions
from lockstep.cli.consume.queue import consume_queue
from lockstep.cli.consume.workload import ORDERING, WorkingListener, read_workload
from lockstep.cli.format import format_json, parse_format
from lockstep.cli.options import configured
from lockstep.cli.output import CliError, check_writable, counted, note, progress, write_out
from lockstep.cli.stdout_reader import while_read
from lockstep.cli.time import moment_ms
from lockstep.client.admin.client import AdminClient, NotLockstepError
from lockstep.client.config import ClientConfig, ConsumerConfig
from lockstep.client.consumer.listener import AnyListener, ConsumeOrderlyContext, ConsumeOrderlyStatus
from lockstep.client.consumer.ownership.first_offset import DEFAULT_LOOK_BACK_MS
from lockstep.client.consumer.push import PushConsumer
from lockstep.client.errors import NoRouteError, TopicNotFoundError
from lockstep.client.profiles import profiled
from lockstep.protocol.bodies.heartbeat import ConsumeFromWhere, MessageModel, SubscriptionData
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import check_group, check_topic
from lockstep.remoting.errors import RemotingError
from lockstep.remoting.host.runtime import AsyncioRuntime, Runtime

__all__ = ["consume", "with_lock_life"]

_BATCH = 32  # messages a call of the printer; 1 with --count, which must end exactly
_LOOK_EVERY_S, _LOOK_AT_BROKER_EVERY = 0.1, 10

_FROM = {
    "first": ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    "last": ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
}


async def consume(options: ConsumeOptions) -> None:
    """Consume until --count, --exit-at-end or a signal.

    Raises CliError, ClientError, RemotingError, and errors of options.
    """
    check_topic(options.topic)
    SubscriptionData.parse(options.topic, options.tags)
    await (_consume_group(options) if options.queue is None else consume_queue(options, options.queue))


async def _consume_group(options: ConsumeOptions) -> None:
    check_group(options.joined)
    check_writable("--trace", options.trace)
    runtime = AsyncioRuntime()
    workload = read_workload(options)
    config = _config(options, runtime.now_ms())
    printer = _Printer(options, asyncio.get_running_loop())
    working = WorkingListener(workload, options.mode, runtime, printer.write) if options.works else None
    log = ConsumeLog(runtime, verbose=options.verbose)
    listener: AnyListener = working or printer
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(
            AdminClient(name_server=options.name_server, config=ClientConfig(), runtime=runtime, log=log)
        )
        queues = await _readable_queues(admin, options.topic)
        await _place_new_group(admin, options, config, queues)
        ends = {queue: await admin.max_offset(queue) for queue in queues} if options.exit_at_end else {}
        stack.callback(printer.summary)
        if working is not None:
            stack.callback(working.close)
        if options.count or options.exit_at_end:
            await stack.enter_async_context(progress(runtime, lambda: printer.printed, "consumed"))
        consumer = PushConsumer(
            options.joined,
            name_server=options.name_server,
            config=config,
            listener=listener,
            ordering=ORDERING[options.mode],
            fenced=True if options.fenced else None,
            pop=options.pop,
            trace=options.trace,
            runtime=runtime,
            log=log,
        )
        consumer.subscribe(options.topic, options.tags)
        await stack.enter_async_context(consumer)
        explainer = Explainer(
            options.topic,
            admin,
            consumer,
            log,
            runtime,
            printed=lambda: printer.printed,
            writing=lambda: printer.writing,
        )
        session = _Session(options, runtime, admin, consumer, printer, ends, explainer)
        await session.run()
    printer.raise_failure()


def _config(options: ConsumeOptions, now_ms: int) -> ConsumerConfig:
    """The consumer's settings. One thread prints, a batch a call; a listener that works gets one message a call.

    When the reader of stdout stops, printing stops but renewals go on.
    """
    from_where = _FROM.get(options.begin, ConsumeFromWhere.CONSUME_FROM_TIMESTAMP)
    known = options.begin in _FROM
    begin_ms = None if known else moment_ms(options.begin, "--from", now_ms, others="first, last, ")
    config = ConsumerConfig(
        consume_from_where=from_where,
        consume_timestamp_ms=begin_ms,
        consume_message_batch_max_size=1 if options.works else _BATCH,
    )
    config, changed = profiled(config, options.profile)
    if changed:
        shown = ", ".join([f"{name} = {value} (4.9.8: {usual})" for name, usual, value in changed])
        note(f"profile {options.profile}: {shown}")
    if options.lock_live_ms is not None:
        config = with_lock_life(config, options.lock_live_ms)
    threads = config.consume_threads
    config = configured(config, options.properties)
    if options.count:
        config = replace(config, consume_message_batch_max_size=1)
    if config.consume_threads != threads and not options.works:
        note("messages are printed by one thread, whatever consumeThreadMin and consumeThreadMax are")
    if config.consume_from_where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP and config.consume_timestamp_ms is None:
        config = replace(config, consume_timestamp_ms=now_ms - DEFAULT_LOOK_BACK_MS)
    return config if options.works else replace(config, consume_thread_count=1, consume_thread_min=0)


def with_lock_life(config: ConsumerConfig, live_ms: int) -> ConsumerConfig:
    """Set the client's intervals for a lock life on the broker, in the proportion of RocketMQ's defaults.

    The defaults are 60 s on the broker, 30 s on the client, and 20 s between renewals, rebalances and for the delay of
    an unlock. The timeout of a renewal (1 s) must fit between the client's 20 s and 30 s.
    """
    return replace(
        config,
        broker_lock_max_live_time_ms=live_ms,
        lock_max_live_time_ms=live_ms // 2,
        lock_interval_ms=live_ms // 3,
        lock_timeout_ms=min(config.lock_timeout_ms, live_ms // 12),
        rebalance_interval_ms=live_ms // 3,
        unlock_delay_ms=live_ms // 3,
    )


async def _readable_queues(admin: AdminClient, topic: str) -> list[MessageQueue]:
    try:
        return (await admin.route(topic)).readable_queues(topic)
    except TopicNotFoundError as error:
        raise CliError(f"{error}; send to it, or make it with `lockstep topic create {topic}`") from None


async def _place_new_group(
    admin: AdminClient, options: ConsumeOptions, config: ConsumerConfig, queues: list[MessageQueue]
) -> None:
    """Store the start offsets of a group that is new to the brokers.

    RocketMQ begins a new group at offset 0 while a queue still has its first message, whatever the client asks for
    (wire.md 8.1). A Lockstep broker tells whether it knows the group; on other brokers RocketMQ's rule applies.
    """
    where = config.consume_from_where
    if where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET or config.message_model is MessageModel.BROADCASTING:
        return
    try:
        known = await admin.groups()
    except NotLockstepError:
        return
    if options.topic in known.get(options.joined, ()):
        return
    for queue in queues:
        timestamp = config.consume_timestamp_ms
        by_time = where is ConsumeFromWhere.CONSUME_FROM_TIMESTAMP and timestamp is not None
        offset = await (admin.search_offset(queue, timestamp or 0) if by_time else admin.max_offset(queue))
        await admin.update_consumer_offset(options.joined, queue, offset)


class _Printer:
    """The listener. It is a plain function on a thread: a slow reader of stdout blocks it without stopping renewals."""

    def __init__(self, options: ConsumeOptions, loop: asyncio.AbstractEventLoop) -> None:
        self._format = parse_format(options.format) if options.format is not None else format_json
        self._count = options.count
        self._loop = loop
        self._failure: Exception | None = None
        self.done = asyncio.Event()
        self.printed = 0
        self.writing = False

    def write(self, messages: list[MessageExt]) -> bool:
        """Print messages, if the command goes on. Returns whether they were printed."""
        if self._failure is None and self.printed != self._count:
            try:
                self.writing = True
                write_out(b"".join([self._format(message) for message in messages]))
                self.writing = False
            except Exception as error:
                self._failure = error
                self._loop.call_soon_threadsafe(self.done.set)
            else:
                self.printed += len(messages)
                if self.printed == self._count:
                    self._loop.call_soon_threadsafe(self.done.set)
                return True
        return False

    def __call__(self, messages: list[MessageExt], context: ConsumeOrderlyContext) -> ConsumeOrderlyStatus | None:
        if self.write(messages):
            return None
        # Not printed, so not handled: the next owner of the queue gets it.
        context.auto_commit = False
        return ConsumeOrderlyStatus.ROLLBACK

    def fail(self, error: Exception) -> None:
        """Print nothing more; what comes is not handled."""
        self._failure = self._failure or error

    def summary(self) -> None:
        if not isinstance(self._failure, BrokenPipeError):
            note(f"consumed {counted(self.printed, 'message')}")

    def raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure


class _Session:
    """From the start of the consumer until its end."""

    def __init__(
        self,
        options: ConsumeOptions,
        runtime: Runtime,
        admin: AdminClient,
        consumer: PushConsumer,
        printer: _Printer,
        ends: Mapping[MessageQueue, int],
        explainer: Explainer,
    ) -> None:
        self._options = options
        self._runtime = runtime
        self._admin = admin
        self._consumer = consumer
        self._printer = printer
        self._left = dict(ends)
        self._explainer = explainer

    async def run(self) -> None:
        explaining = self._runtime.create_task(self._explainer.run(), name="explain")
        try:
            async with while_read(self._runtime):
                if self._options.exit_at_end:
                    await self._until_the_end()
                else:
                    await self._printer.done.wait()
        except BrokenPipeError as error:
            self._printer.fail(error)
        finally:
            explaining.cancel()

    async def _until_the_end(self) -> None:
        """Wait until the group has consumed all messages that were stored at the start."""
        rounds = 0
        while self._left and not self._printer.done.is_set():
            positions = self._consumer.positions
            ask_broker = rounds % _LOOK_AT_BROKER_EVERY == 0
            for queue, end in list(self._left.items()):
                position = positions.get(queue)
                if position is None and ask_broker:
                    position = await self._committed(queue)
                if end == 0 or (position is not None and position >= end):
                    del self._left[queue]
            rounds += 1
            await asyncio.sleep(_LOOK_EVERY_S if self._left else 0)

    async def _committed(self, queue: MessageQueue) -> int | None:
        try:
            return await self._admin.consumer_offset(self._options.joined, queue)
        except (RemotingError, NoRouteError):
            return None  # asked again in the next round
