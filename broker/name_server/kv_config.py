"""The name server's key-value store: namespace -> key -> value (wire.md 2.7).

In RocketMQ the namespace ORDER_TOPIC_CONFIG has the order configurations: the queues of ordered topics on each broker.
"""

from collections.abc import Mapping
from typing import Final

__all__ = ["ORDER_TOPIC_CONFIG", "KvConfigManager"]

ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"


class KvConfigManager:
    """The store, in memory."""

    def __init__(self) -> None:
        self._table: dict[str, dict[str, str]] = {}
        self.count = 0  # keys and namespaces; namespaces are never removed
        self.characters = 0  # of namespaces, keys and values

    def growth(self, namespace: str, key: str) -> int:
        """By how much `count` would grow with this key."""
        return (namespace not in self._table) + (key not in self._table.get(namespace, {}))

    def character_growth(self, namespace: str, key: str, value: str) -> int:
        """By how much `characters` would grow with this pair."""
        known = self._table.get(namespace)
        before = known.get(key) if known is not None else None
        grown = len(value) - len(before) if before is not None else len(key) + len(value)
        return grown if known is not None else grown + len(namespace)

    def put(self, namespace: str, key: str, value: str) -> None:
        self.count += self.growth(namespace, key)
        self.characters += self.character_growth(namespace, key, value)
        self._table.setdefault(namespace, {})[key] = value

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        """Remove a key, if it exists. As in RocketMQ its namespace stays, even if it is empty."""
        value = self._table.get(namespace, {}).pop(key, None)
        if value is not None:
            self.count -= 1
            self.characters -= len(key) + len(value)

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """All keys of a namespace; None when no key was ever put there."""
        return self._table.get(namespace)
