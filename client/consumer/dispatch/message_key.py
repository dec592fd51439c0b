"""What `ordering="key"` keeps in order: the sharding key, or whatever a consumer's `key` says."""

from lockstep.client.errors import ConsumerError
from lockstep.protocol.message import MessageExt
from lockstep.protocol.selector import SHARDING_KEY_OF, KeyOf
from lockstep.remoting.logs import EventLog, log_exception

__all__ = ["MessageKey", "key_function"]

MessageKey = str | KeyOf


def key_function(key: MessageKey | None, log: EventLog) -> KeyOf:
    """The key of each message.

    Args:
        key: A function of the message; or a property's name, KEYS among them, whose whole text is the key; None is the
            sharding key. What a function raises is logged, and its message then has no key.

    Raises:
        ConsumerError: it is neither.
    """
    if key is None:
        return SHARDING_KEY_OF
    if isinstance(key, str) and key:
        return lambda message: message.properties.get(key)
    if callable(key):
        return _Guarded(key, log)
    raise ConsumerError(f"key must be a function of a message or a property's name, not {key!r}")


class _Guarded:
    """A user's function; whatever it does, the queue goes on."""

    def __init__(self, function: KeyOf, log: EventLog) -> None:
        self._function = function
        self._log = log

    def __call__(self, message: MessageExt) -> str | None:
        try:
            key = self._function(message)
            if key is None or isinstance(key, str):
                return key
            raise TypeError(f"a key must be a str or None, not {type(key).__name__}")
        except Exception as error:
            where = f"{message.topic}@{message.broker_name}:{message.queue_id}"
            log_exception(
                self._log,
                "key_function_failed",
                error,
                consequence="the message has no key",
                queue=where,
                offset=message.queue_offset,
            )
            return None
