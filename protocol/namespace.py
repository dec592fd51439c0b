"""Namespaces: one cluster's topics and groups parted among tenants by a prefix, `ns%topic`, which RocketMQ's clients
add to what leaves them and take from what they show.

Retry and dead-letter topics carry it behind their own prefix, `%RETRY%ns%group`; RocketMQ's own topics have none.
"""

from typing import Final

from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, check_group, is_system_topic

__all__ = ["NamesOfTenant", "bare_name", "check_namespace", "wrap_name"]

SEPARATOR: Final = "%"
_SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"


def wrap_name(namespace: str | None, name: str) -> str:
    """A topic or group as the brokers know it; one that already is in the namespace, or RocketMQ's own, as it is."""
    if not namespace or not name or _is_system_name(name):
        return name
    prefix, rest = _parts(name)
    inside = namespace + SEPARATOR
    return name if rest.startswith(inside) else prefix + inside + rest


def bare_name(namespace: str | None, name: str) -> str:
    """`wrap_name` backwards. A name of another namespace, or of none, stays as it is."""
    if not namespace or _is_system_name(name):
        return name
    prefix, rest = _parts(name)
    return prefix + rest.removeprefix(namespace + SEPARATOR)


def check_namespace(namespace: str) -> None:
    """Raises LocalProtocolError, which tells the allowed namespaces: group names without the separator."""
    check_group(namespace)
    if SEPARATOR in namespace:
        raise LocalProtocolError(f"namespace {namespace!r} must not hold {SEPARATOR!r}, which ends it")


class NamesOfTenant:
    """The names of one client's namespace; False when it has none, and then every name is as it is."""

    __slots__ = ("namespace",)

    def __init__(self, namespace: str | None) -> None:
        """Raises LocalProtocolError."""
        if namespace:
            check_namespace(namespace)
        self.namespace = namespace or None

    def __bool__(self) -> bool:
        return self.namespace is not None

    def wrap(self, name: str) -> str:
        return wrap_name(self.namespace, name)

    def bare(self, name: str) -> str:
        return bare_name(self.namespace, name)

    def wrap_queue(self, queue: MessageQueue) -> MessageQueue:
        return queue._replace(topic=wrap_name(self.namespace, queue.topic))

    def bare_queue(self, queue: MessageQueue) -> MessageQueue:
        return queue._replace(topic=bare_name(self.namespace, queue.topic))


def _is_system_name(name: str) -> bool:
    return is_system_topic(name) or name.startswith(_SYSTEM_GROUP_PREFIX)


def _parts(name: str) -> tuple[str, str]:
    """("%RETRY%", group), ("%DLQ%", group) or ("", name)."""
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name
