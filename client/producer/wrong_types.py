"""Which value of a message has the wrong type. Asked only after a send failed on it: a right message pays nothing."""

from collections.abc import Iterable, Mapping
from typing import Any

from lockstep.protocol.errors import LocalProtocolError, short_text
from lockstep.protocol.messages.to_send import Message

__all__ = ["check_timeout", "wrong_type"]


def wrong_type(message: Any, sharding_key: Any) -> LocalProtocolError | None:
    """The error that names the first wrong type of a message or its sharding key; None: all are right."""
    if not isinstance(message, Message):
        return LocalProtocolError(f"a Message is sent, not {_shown(message)}")
    if sharding_key is None:
        sharding_key = message.sharding_key
    keys: Any = message.keys
    properties: Any = message.properties
    texts: list[tuple[str, Any]] = [
        ("a topic", message.topic),
        ("a sharding key", sharding_key),
        ("tags", message.tags),
    ]
    if keys is not None and not isinstance(keys, str):
        if not isinstance(keys, Iterable) or isinstance(keys, bytes | bytearray):
            return LocalProtocolError(f"keys must be a str or several, not {_shown(keys)}")
        texts += [("each of the keys", key) for key in keys]
    if properties and not isinstance(properties, Mapping):
        return LocalProtocolError(f"properties must be a dict of str, not {_shown(properties)}")
    for name, value in (properties or {}).items():
        texts += [("the name of a property", name), (f"the value of property {short_text(name)}", value)]
    for what, value in texts:
        if not isinstance(value, str) and (value is not None or "propert" in what or what == "a topic"):
            return LocalProtocolError(f"{what} must be a str, not {_shown(value)}")
    numbers: tuple[tuple[str, Any], ...] = (
        ("a delay level", message.delay_level),
        ("a delay", message.delay_ms),
        ("a time of delivery", message.deliver_at_ms),
        ("a flag", message.flag),
    )
    for what, number in numbers:
        if not isinstance(number, int):
            return LocalProtocolError(f"{what} must be an int, not {_shown(number)}")
    return None


def _shown(value: object) -> str:
    return "None" if value is None else f"{type(value).__name__} {value!r:.80}"


def check_timeout(timeout_ms: Any) -> None:
    """Raise LocalProtocolError for a timeout that is none."""
    if timeout_ms is not None and (not isinstance(timeout_ms, int | float) or timeout_ms < 0):
        raise LocalProtocolError(f"timeout_ms must be a number of ms, not {_shown(timeout_ms)}")
