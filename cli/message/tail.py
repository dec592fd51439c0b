"""`lockstep message tail`: prints the last messages of a topic, with --follow also new ones. It joins no group."""

import asyncio
import heapq
from collections.abc import AsyncIterator, Coroutine, Mapping
from functools import partial
from typing import Any, Final

from lockstep.cli.format import MessageFormat, format_json, format_line, parse_format
from lockstep.cli.lookup import find_queue, readable_queues
from lockstep.cli.options import TailOptions
from lockstep.cli.output import OutputFormat, StderrLog, write_out
from lockstep.cli.queue_reader import QueueReader
from lockstep.cli.stdout_reader import while_read
from lockstep.cli.time import moment_ms
from lockstep.client.admin.at_once import at_once
from lockstep.client.admin.client import AdminClient
from lockstep.client.admin.stored_messages import Bounds, last_messages, read_range
from lockstep.client.errors import NoRouteError
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.messages.message import MessageExt
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import check_topic
from lockstep.remoting.errors import RemotingError
from lockstep.remoting.host.runtime import AsyncioRuntime, Runtime

__all__ = ["tail_messages"]

_LAST: Final = 10  # shown without --from and --count
_ROUTE_EVERY_S: Final = 10.0


async def tail_messages(options: TailOptions) -> None:
    """Print stored messages in the order of their store times, then new ones in the order of each queue.

    Raises CliError.
    """
    check_topic(options.topic)
    SubscriptionData.parse(options.topic, options.tags)
    runtime, format_message = AsyncioRuntime(), _format(options)
    begin_ms: int | None = None
    if options.begin not in (None, "first", "last"):
        begin_ms = moment_ms(options.begin or "", "--from", runtime.now_ms(), others="first, last, ")
    async with AdminClient(name_server=options.name_server, runtime=runtime, log=StderrLog(verbose=False)) as admin:
        queues = await readable_queues(admin, options.topic)
        if options.queue is not None:
            queues = [find_queue(options.queue, queues)]
        stats = await admin.topic_stats(options.topic)
        bounds = {queue: stats[queue][:2] if queue in stats else (0, 0) for queue in queues}
        tail = _Tail(admin, runtime, options, format_message)
        await tail.show_stored(bounds, begin_ms)
        if options.follow and not tail.full():
            await tail.follow({queue: end for queue, (_, end) in bounds.items()})


class _Tail:
    def __init__(
        self, admin: AdminClient, runtime: Runtime, options: TailOptions, format_message: MessageFormat
    ) -> None:
        self._admin = admin
        self._runtime = runtime
        self._options = options
        self._format = format_message
        self._left = options.count if options.begin is not None else None
        self._ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._reader = QueueReader(admin, runtime, options.tags)

    def full(self) -> bool:
        """Whether --count is reached."""
        return self._left == 0

    def _show(self, message: MessageExt) -> None:
        write_out(self._format(message))
        if self._left is not None:
            self._left -= 1

    # Stored messages ------------------------------------------------------------------------------------------

    async def show_stored(self, bounds: Bounds, begin_ms: int | None) -> None:
        begin = self._options.begin
        if begin is None:
            count, tags = self._options.count or _LAST, self._options.tags
            for message in await last_messages(self._admin, bounds, count, tags=tags):
                self._show(message)
            return
        if begin == "last":
            return
        if begin_ms is not None:  # the search may end before the time (wire.md 8.2)
            starts = await at_once(partial(self._admin.search_offset, timestamp_ms=begin_ms), bounds)
            found = zip(bounds.items(), starts, strict=True)
            bounds = {queue: (max(low, start), end) for (queue, (low, end)), start in found}
        async for message in self._merged(bounds):
            if message.store_timestamp >= (begin_ms or 0):
                self._show(message)
                if self.full():
                    return

    async def _merged(self, bounds: Bounds) -> AsyncIterator[MessageExt]:
        """Messages of all queues by store time; each queue keeps its own order."""
        heads: list[tuple[int, MessageQueue, MessageExt]] = []
        tags = self._options.tags
        readers = {queue: read_range(self._admin, queue, low, end, tags=tags) for queue, (low, end) in bounds.items()}

        async def advance(queue: MessageQueue) -> None:
            message = await anext(readers[queue], None)
            if message is not None:
                heapq.heappush(heads, (message.store_timestamp, queue, message))

        await at_once(advance, readers)
        while heads:
            _, queue, message = heapq.heappop(heads)
            yield message
            await advance(queue)

    # New messages ----------------------------------------------------------------------------------------------

    async def follow(self, positions: Mapping[MessageQueue, int]) -> None:
        """Print new messages until --count. A broker that stops answering is asked again."""
        try:
            for queue, offset in positions.items():
                self._start(str(queue), self._follow(queue, offset))
            if self._options.queue is None:
                self._start("routes", self._find_new_queues(set(positions)))
            async with while_read(self._runtime):
                await self._ended
        finally:
            for task in self._tasks.values():
                task.cancel()

    def _start(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        task = self._tasks[name] = self._runtime.create_task(work, name=f"tail {name}")
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and not self._ended.done():
            error = task.exception()
            if error is not None:
                self._ended.set_exception(error)
            elif self.full():
                self._ended.set_result(None)

    async def _follow(self, queue: MessageQueue, offset: int) -> None:
        async for found in self._reader.follow(queue, offset):
            for message in found.messages:
                if self.full():
                    break
                self._show(message)
            if self.full():
                return

    async def _find_new_queues(self, known: set[MessageQueue]) -> None:
        while True:
            await asyncio.sleep(_ROUTE_EVERY_S)
            try:
                queues = await readable_queues(self._admin, self._options.topic)
            except (RemotingError, NoRouteError):
                continue  # the tasks of the queues report it
            for queue in queues:
                if queue not in known:
                    known.add(queue)
                    self._start(str(queue), self._follow(queue, 0))


def _format(options: TailOptions) -> MessageFormat:
    if options.format is not None:
        return parse_format(options.format)
    return format_json if options.output is OutputFormat.JSON else format_line
