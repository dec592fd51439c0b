"""The queues that a producer may write to, by topic; sends that wait for them go on in the order they came."""

import asyncio

from lockstep.client.errors import NoRouteError
from lockstep.client.instance.routes import Routes
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import DEFAULT_TOPIC

__all__ = ["PublishQueues"]


class _Asking:
    """Sends of one topic that wait for its route. The lock is fair: it lets them go on in the order they came."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0
        self.queues: list[MessageQueue] | None = None
        self.failure: str | None = None


class PublishQueues:
    """`default_topic_queue_nums`: how many queues a topic gets that is made by sending to it; `create_topic_key` has
    the brokers that make it."""

    def __init__(self, routes: Routes, default_topic_queue_nums: int, create_topic_key: str = DEFAULT_TOPIC) -> None:
        self._routes = routes
        self._create_topic_key = create_topic_key
        self._default_topic_queue_nums = default_topic_queue_nums
        self._queues: dict[str, list[MessageQueue]] = {}
        self._asking: dict[str, _Asking] = {}
        routes.on_changed.append(self.forget)

    def known(self, topic: str) -> list[MessageQueue] | None:
        """The queues of a topic when they were asked for before and nobody waits for them."""
        return self._queues.get(topic)

    def forget(self, topic: str) -> None:
        self._queues.pop(topic, None)
        if topic in self._asking:
            self._asking[topic].queues = None

    async def find(self, topic: str) -> list[MessageQueue]:
        """The writable queues of a topic, sorted. Raises NoRouteError for a topic nobody knows."""
        queues = self._queues.get(topic)
        if queues is None:
            queues = await self._ask(topic)
            if topic not in self._asking:
                self._queues[topic] = queues
        return queues

    async def find_in_turn(self, topic: str) -> list[MessageQueue]:
        """As `find`, for sends that must keep their order: one asks, and who calls meanwhile goes on in call order.

        Only when the last of them has gone on is the topic `known`, and later sends need not wait.
        """
        queues = self._queues.get(topic)
        if queues is not None:
            return queues
        asking = self._asking.setdefault(topic, _Asking())
        asking.waiting += 1
        try:
            async with asking.lock:
                if asking.failure is not None:
                    raise NoRouteError(asking.failure)
                if asking.queues is None:
                    asking.queues = await self._ask(topic)
                return asking.queues
        except NoRouteError as error:
            asking.failure = str(error)
            raise
        finally:
            asking.waiting -= 1
            if not asking.waiting:
                del self._asking[topic]
                if asking.queues is not None:
                    self._queues[topic] = asking.queues

    async def _ask(self, topic: str) -> list[MessageQueue]:
        """A topic that does not exist yet is sent to where it would be made: the brokers with TBW102 (wire.md 10.4)."""
        route = await self._routes.get(topic)
        if route is not None:
            queues = route.writable_queues(topic)
        else:
            default = await self._routes.get(self._create_topic_key)
            limit = self._default_topic_queue_nums
            queues = [q for q in default.writable_queues(topic) if q.queue_id < limit] if default else []
        if not queues:
            raise NoRouteError(f"topic {topic!r} does not exist, or has no writable queue, and is not made by sending")
        return queues
