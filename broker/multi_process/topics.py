"""SharedTopics: which topics the brokers of one command have, for topics that sends create, and for restarts."""

from collections.abc import Iterable, Sequence

from lockstep.broker.name_server.name_server import NameServer
from lockstep.protocol.bodies.broker import TopicConfig

__all__ = ["SharedTopics"]


class SharedTopics:
    """The topics of each broker: all of one whose store is in memory, else those that sends have created."""

    def __init__(self, name_server: NameServer | None) -> None:
        """`name_server`: the one of the command, if any."""
        self._name_server = name_server
        self._topics: dict[str, dict[str, TopicConfig]] = {}

    def put(self, broker_name: str, topics: Iterable[TopicConfig]) -> None:
        """A broker has these topics, new or changed."""
        self._topics.setdefault(broker_name, {}).update({config.topic_name: config for config in topics})

    def delete(self, broker_name: str, names: Iterable[str]) -> None:
        """A broker has these topics no longer, and does not get them back."""
        known = self._topics.get(broker_name, {})
        for name in names:
            known.pop(name, None)

    def of(self, broker_name: str) -> tuple[TopicConfig, ...]:
        """The topics of a broker that others still have. At a restart it creates those that it lost or missed."""
        known = self._topics.get(broker_name, {})
        if self._name_server is None:
            return tuple(known.values())
        return tuple(config for topic, config in known.items() if self._name_server.route(topic) is not None)

    def spread(self, config: TopicConfig, broker_names: Sequence[str]) -> None:
        """A send has created a topic. Its queues on all brokers appear in the route at once; a broker that is away
        creates it when it is back.
        """
        for name in broker_names:
            self.put(name, (config,))
        if self._name_server is not None:
            self._name_server.put_routes(config, broker_names)
