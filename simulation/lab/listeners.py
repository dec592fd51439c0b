"""What faults do to the listeners of consumers: their calls take longer, or fail."""

import asyncio
import inspect
from typing import Any

from lockstep.client import ConsumeConcurrentlyStatus, ConsumeOrderlyStatus
from lockstep.simulation.runtime import SimRuntime
from lockstep.simulation.world import World

__all__ = ["ListenerFaults"]


class ListenerFaults:
    """Stands around the listeners, by the names of their hosts. It takes no time of its own."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._known: set[str] = set()
        self._more_ms: dict[str, int] = {}
        self._failing: set[str] = set()

    def knows(self, name: str) -> bool:
        """Whether a consumer with a listener was started on a host."""
        return name in self._known

    def slow(self, name: str, more_ms: int) -> None:
        """Each call takes so much longer; 0: no more."""
        self._more_ms[name] = more_ms

    def fail(self, name: str, *, fails: bool) -> None:
        """Each call asks for another attempt, and the listener itself is not called."""
        (self._failing.add if fails else self._failing.discard)(name)

    def around(self, runtime: SimRuntime, listener: Any, ordering: str) -> Any:
        """A listener in the place of another one."""
        name = runtime.name
        self._known.add(name)
        again: Any = ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
        if ordering == "none":
            again = ConsumeConcurrentlyStatus.RECONSUME_LATER

        async def listen(messages: Any, context: Any) -> Any:
            if more_ms := self.slower_ms(name):
                await asyncio.sleep(more_ms / 1000)
            return again if self.fails(name) else await listener(messages, context)

        def listen_plainly(messages: Any, context: Any) -> Any:
            runtime.block_ms(self.slower_ms(name))
            return again if self.fails(name) else listener(messages, context)

        is_async = inspect.iscoroutinefunction(listener) or inspect.iscoroutinefunction(
            getattr(listener, "__call__", None)  # noqa: B004 - an object with an async __call__
        )
        return listen if is_async else listen_plainly

    def slower_ms(self, name: str) -> int:
        return 0 if self._world.healed else self._more_ms.get(name, 0)

    def fails(self, name: str) -> bool:
        return name in self._failing and not self._world.healed
