"""Catalog: the topics, groups and offsets of a broker, and who hears of a change."""

from collections.abc import Awaitable, Callable, Sequence

from lockstep.broker.catalog.groups import SubscriptionGroupManager
from lockstep.broker.catalog.offsets import ConsumerOffsetManager
from lockstep.broker.catalog.topics import TopicConfigManager
from lockstep.broker.config import BrokerConfig
from lockstep.broker.sliced_work import Wait
from lockstep.protocol.bodies.broker import TopicConfig, TopicRouteData
from lockstep.protocol.codes import Permission
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.limit_log import LimitLog

__all__ = ["Catalog"]


async def _at_once() -> None:
    """Topics are registered without waiting for others."""


class Catalog:
    """The tables that have names as keys.

    Attributes:
        on_topics_changed: Called with topics that are new or changed; Registration sets it.
        route: The queues of a topic on all brokers, if the name server is in this process; else None.
        topics_registered: Waits until name servers know all topics; Registration sets it for remote name servers.
        on_created_by_send: Called with a topic; one of several brokers spreads topics that sends create.
        before_registering: Waits for the other brokers of one command (`multi_process`).
    """

    on_created_by_send: Callable[[TopicConfig], None] = staticmethod(lambda _: None)
    before_registering: Callable[[], Awaitable[None]] = staticmethod(_at_once)

    def __init__(
        self,
        config: BrokerConfig,
        limits: LimitLog,
        topics_changed: Callable[[Sequence[str]], None],
        group_changed: Callable[[str], None],
    ) -> None:
        """
        Args:
            topics_changed: Called with the names of topics that changed, before `on_topics_changed`.
            group_changed: Called with the name of a group that changed.
        """
        self.topics = TopicConfigManager(config, limits.met, self._on_topics_changed)
        self.groups = SubscriptionGroupManager(config, limits.met, group_changed)
        self.offsets = ConsumerOffsetManager()
        self.on_topics_changed: Callable[[Sequence[TopicConfig]], None] = lambda _: None
        self.topics_registered: Wait | None = None
        self.route: Callable[[str], TopicRouteData | None] = lambda _: None
        self._topics_changed = topics_changed

    def queues_of(self, topic: str, broker_name: str) -> list[MessageQueue]:
        """The readable queues of a topic, sorted: on all brokers as far as this process knows them."""
        route = self.route(topic)
        if route is not None:
            return route.readable_queues(topic)
        config = self.topics.get(topic)
        count = 0 if config is None or not config.perm & Permission.READ else config.read_queue_nums
        return [MessageQueue(topic, broker_name, queue_id) for queue_id in range(count)]

    def _on_topics_changed(self, names: Sequence[str]) -> None:
        self._topics_changed(names)
        self.on_topics_changed([config for name in names if (config := self.topics.get(name)) is not None])
