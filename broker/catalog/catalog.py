"""Catalog: the topics, groups and offsets of a broker, and who hears of a change."""

from collections.abc import Awaitable, Callable, Sequence

from lockstep.broker.catalog.groups import SubscriptionGroupManager
from lockstep.broker.catalog.offsets import ConsumerOffsetManager
from lockstep.broker.catalog.topics import TopicConfigManager
from lockstep.broker.config import BrokerConfig
from lockstep.broker.sliced_work import Wait
from lockstep.protocol.bodies.broker import TopicConfig
from lockstep.remoting.limit_log import LimitLog

__all__ = ["Catalog"]


async def _at_once() -> None:
    """Topics are registered without waiting for others."""


class Catalog:
    """The tables that have names as keys.

    Attributes:
        on_topics_changed: Called with topics that are new or changed; Registration sets it.
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
        self._topics_changed = topics_changed

    def _on_topics_changed(self, names: Sequence[str]) -> None:
        self._topics_changed(names)
        self.on_topics_changed([config for name in names if (config := self.topics.get(name)) is not None])
