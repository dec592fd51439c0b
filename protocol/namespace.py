"""Namespaces: a prefix, `ns%topic`, separates the topics and groups of several tenants of one cluster.

Clients add the prefix to the names that they send, and remove it from the names that they show. In retry and
dead-letter topics it follows their own prefix: `%RETRY%ns%group`. RocketMQ's system topics have no namespace.
"""

from typing import Final

from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import DEAD_LETTER_PREFIX, RETRY_PREFIX, check_group, is_system_topic

__all__ = ["NamesOfTenant", "bare_name", "check_namespace", "wrap_name"]

SEPARATOR: Final = "%"
_SYSTEM_GROUP_PREFIX: Final = "CID_RMQ_SYS_"


def wrap_name(namespace: str | None, name: str) -> str:
    """Add the namespace to a topic or group.

    A name that has it already, a system name, and what is no text at all are returned unchanged.
    """
    if not namespace or not name or not isinstance(name, str) or _is_system_name(name):
        return name
    prefix, rest = _parts(name)
    inside = namespace + SEPARATOR
    return name if rest.startswith(inside) else prefix + inside + rest


def bare_name(namespace: str | None, name: str) -> str:
    """Remove the namespace from a name: the reverse of `wrap_name`. Other names are returned unchanged."""
    if not namespace or _is_system_name(name):
        return name
    prefix, rest = _parts(name)
    return prefix + rest.removeprefix(namespace + SEPARATOR)


def check_namespace(namespace: str) -> None:
    """Check a namespace: a legal group name without the separator. Raises LocalProtocolError with the rule."""
    check_group(namespace)
    if SEPARATOR in namespace:
        raise LocalProtocolError(f"namespace {namespace!r} must not hold {SEPARATOR!r}, which ends it")


class NamesOfTenant:
    """Converts names for the namespace of one client. Without a namespace it is False and changes no name."""

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
    """Split a name: ("%RETRY%", group), ("%DLQ%", group) or ("", name)."""
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if name.startswith(prefix):
            return prefix, name[len(prefix) :]
    return "", name
