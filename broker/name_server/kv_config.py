"""The name server's key-value store: namespace -> key -> value (wire.md 2.7).

RocketMQ keeps in its namespace ORDER_TOPIC_CONFIG how the queues of an ordered topic are spread over brokers.
"""

from collections.abc import Mapping
from typing import Final

__all__ = ["ORDER_TOPIC_CONFIG", "KvConfigManager"]

ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"


class KvConfigManager:
    def __init__(self) -> None:
        self._table: dict[str, dict[str, str]] = {}
        self.count = 0  # keys, and namespaces, which stay

    def room_needed(self, namespace: str, key: str) -> int:
        """How much the count grows when a key is put."""
        return (namespace not in self._table) + (key not in self._table.get(namespace, {}))

    def put(self, namespace: str, key: str, value: str) -> None:
        self.count += self.room_needed(namespace, key)
        self._table.setdefault(namespace, {})[key] = value

    def get(self, namespace: str, key: str) -> str | None:
        return self._table.get(namespace, {}).get(key)

    def delete(self, namespace: str, key: str) -> None:
        """What is not there need not go. A namespace that was ever written to stays, empty (as in RocketMQ)."""
        if self._table.get(namespace, {}).pop(key, None) is not None:
            self.count -= 1

    def namespace(self, namespace: str) -> Mapping[str, str] | None:
        """Everything under a namespace; None when nothing was ever put there."""
        return self._table.get(namespace)
