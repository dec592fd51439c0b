"""PublishQueues: the writable queues of each topic. Sends that wait for a route go on in call order."""

import asyncio

from lockstep.client.errors import NoRouteError
from lockstep.client.instance.routes import Routes
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import DEFAULT_TOPIC

__all__ = ["PublishQueues"]


class _Asking:
    """Sends of one topic that wait for its route. The lock is fair, so it keeps their order."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.waiting = 0
        self.queues: list[MessageQueue] | None = None
        self.failure: str | None = None


class PublishQueues:
    """The writable queues of each topic that a producer sends to.

    Args:
        default_topic_queue_nums: the number of queues of a topic that the first send creates.
        create_topic_key: the topic whose brokers create topics.
    """

    def __init__(self, routes: Routes, default_topic_queue_nums: int, create_topic_key: str = DEFAULT_TOPIC) -> None:
        self._routes = routes
        self._create_topic_key = create_topic_key
        self._default_topic_queue_nums = default_topic_queue_nums
        self._queues: dict[str, list[MessageQueue]] = {}
        self._asking: dict[str, _Asking] = {}
        routes.on_changed.append(self.forget)

    def known(self, topic: str) -> list[MessageQueue] | None:
        """Return the queues of a topic if they are known and no send waits for them."""
        return self._queues.get(topic)

    def forget(self, topic: str) -> None:
        self._queues.pop(topic, None)
        if topic in self._asking:
            self._asking[topic].queues = None

    async def find(self, topic: str) -> list[MessageQueue]:
        """Return the writable queues of a topic, sorted. Raises NoRouteError when it has none."""
        queues = self._queues.get(topic)
        if queues is None:
            queues = await self._ask(topic)
            if topic not in self._asking:
                self._queues[topic] = queues
        return queues

    async def find_in_turn(self, topic: str) -> list[MessageQueue]:
        """As `find`, in call order: the first caller asks for the route, and the others go on after it in turn.

        The topic is `known` when the last of them went on.
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
        """A topic that does not exist gets the queues it would have on the brokers with TBW102 (wire.md 10.4)."""
        route = await self._routes.get(topic)
        if route is not None:
            queues = route.writable_queues(topic)
        else:
            default = await self._routes.get(self._create_topic_key)
            limit = self._default_topic_queue_nums
            queues = [q for q in default.writable_queues(topic) if q.queue_id < limit] if default else []
        if not queues:
            raise NoRouteError(
                f"topic {topic!r} does not exist or has no writable queue, and no broker creates topics for a send"
            )
        return queues
