"""QueueWatch: compares the queues of topics with the name server's every 30 s (wire.md 12.10)."""

from collections.abc import Callable

from lockstep.client.admin.queues import QueueQueries
from lockstep.client.callables import log_or_raise
from lockstep.client.errors import ClientError, TopicNotFoundError
from lockstep.protocol.errors import ProtocolError
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.logs import EventLog

__all__ = ["QueueWatch", "TopicMessageQueueChangeListener"]

TopicMessageQueueChangeListener = Callable[[str, list[MessageQueue]], None]
"""`(topic, all its queues)`, called on the event loop after a change."""


class QueueWatch:
    """Calls a listener when the queues of its topic changed. `look` must be called periodically."""

    def __init__(self, queries: QueueQueries, log: EventLog) -> None:
        self._queries = queries
        self._log = log
        self._listeners: dict[str, TopicMessageQueueChangeListener] = {}
        self._known: dict[str, list[MessageQueue]] = {}

    async def register(self, topic: str, listener: TopicMessageQueueChangeListener) -> None:
        """Register a listener for later changes. Raises NoRouteError when no name server answers."""
        self._known[topic] = await self._queues(topic)
        self._listeners[topic] = listener

    async def look(self) -> None:
        for topic, listener in list(self._listeners.items()):
            try:
                queues = await self._queues(topic)
            except (ClientError, ProtocolError) as error:
                self._log.warning("topic_watch_failed", topic=topic, error=str(error))
                continue
            if queues != self._known[topic]:
                self._known[topic] = queues
                self._notify(topic, listener, queues)

    async def _queues(self, topic: str) -> list[MessageQueue]:
        try:
            return await self._queries.queues(topic)
        except TopicNotFoundError:
            return []

    def _notify(self, topic: str, listener: TopicMessageQueueChangeListener, queues: list[MessageQueue]) -> None:
        try:
            listener(topic, list(queues))
        except BaseException as error:
            log_or_raise(self._log, "queue_listener_failed", error, topic=topic)
