"""A topic and a group for one measurement, which are gone afterwards."""

import asyncio
from collections.abc import AsyncIterator, Callable
from types import TracebackType
from typing import Final, Self

from lockstep.cli.output import CliError, StderrLog, note
from lockstep.client.admin.client import AdminClient
from lockstep.client.errors import ClientError, NoRouteError, TopicNotFoundError
from lockstep.protocol.errors import ProtocolError
from lockstep.protocol.names import dead_letter_topic, retry_topic
from lockstep.remoting.errors import RemotingError
from lockstep.remoting.host.runtime import Runtime

__all__ = ["Place", "paced", "until"]

_PATIENCE_S: Final = 180  # RocketMQ's clients rebalance each 20 s, and its locks end after 60 s
_LOOK_EVERY_S: Final = 0.02
_ROUTE_S: Final = 30
_ERRORS: Final = (ClientError, RemotingError, ProtocolError)


class Place:
    """An async context manager: makes the topic, and removes it with the group, also after an error or a signal."""

    def __init__(self, name_server: str, queues: int, runtime: Runtime) -> None:
        self.name_server = name_server
        self.runtime = runtime
        self.name = f"lockstep-bench-{runtime.rng.randrange(16**8):08x}"  # of the topic and of the group
        self._queues = queues
        self._is_made = False
        self._admin = AdminClient(name_server=name_server, runtime=runtime, log=StderrLog(verbose=False))

    async def __aenter__(self) -> Self:
        await self._admin.start()
        try:
            await self._admin.brokers()  # without them nothing is made, and nothing is to be removed
            self._is_made = True
            await self._admin.create_topic(self.name, self._queues)
            await until(self.runtime, self._is_known, "the new topic is at the name server", _ROUTE_S)
        except BaseException:
            await self._remove()
            raise
        return self

    async def _is_known(self) -> bool:
        try:
            route = await self._admin.route(self.name)
        except (TopicNotFoundError, NoRouteError):
            return False
        masters = [broker for broker in await self._admin.brokers() if broker.master_addr]
        return len(route.queue_datas) >= len(masters)

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        await self._remove()

    async def _remove(self) -> None:
        try:
            if not self._is_made:
                return
            await self._admin.delete_group(self.name)
            for topic in (self.name, retry_topic(self.name), dead_letter_topic(self.name)):
                try:
                    await self._admin.delete_topic(topic)
                except TopicNotFoundError:
                    pass  # this measurement made none
        except _ERRORS as error:
            note(f"topic and group {self.name} may be left: {error}")
        finally:
            await self._admin.shutdown()


async def until(runtime: Runtime, condition: Callable[[], object], what: str, patience_s: float = _PATIENCE_S) -> None:
    """Wait for a condition, a function or a coroutine function. Raises CliError when it takes too long."""
    end_ns = runtime.monotonic_ns() + int(patience_s * 1e9)
    while True:
        result = condition()
        if asyncio.iscoroutine(result):
            result = await result
        if result:
            return
        if runtime.monotonic_ns() > end_ns:
            raise CliError(f"not within {patience_s:.0f} s: {what}")
        await asyncio.sleep(_LOOK_EVERY_S)


async def paced(runtime: Runtime, numbers: range, rate: float) -> AsyncIterator[int]:
    """Each number at its time, `rate` a second, whatever the work between took: the next ones make up for it."""
    began_ns = runtime.monotonic_ns()
    for place, number in enumerate(numbers):
        await asyncio.sleep(max(began_ns + place * 1e9 / rate - runtime.monotonic_ns(), 0) / 1e9)
        yield number
