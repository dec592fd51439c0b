"""A recall handle: it names a message that waits for its time, for RECALL_MESSAGE (docs/wire.md 18.7).

The text is base64url of `v1 TOPIC BROKER TIME ID`; its padding may be missing.
"""

from base64 import b64decode, urlsafe_b64encode
from binascii import Error
from typing import Final, NamedTuple, Self

from lockstep.protocol.errors import LocalProtocolError

__all__ = ["RecallHandle"]

_VERSION: Final = "v1"
_LENGTH_MAX: Final = 1024  # a topic, a broker's name and an id are far shorter
_TIME_DIGITS_MAX: Final = 19


class RecallHandle(NamedTuple):
    """`deliver_at_ms`: epoch ms; 0 for what is no time. `message_id`: the message's UNIQ_KEY."""

    topic: str
    broker_name: str
    deliver_at_ms: int
    message_id: str

    def encode(self) -> str:
        text = f"{_VERSION} {self.topic} {self.broker_name} {self.deliver_at_ms} {self.message_id}"
        return urlsafe_b64encode(text.encode()).decode()

    @classmethod
    def decode(cls, text: str) -> Self:
        """Raises LocalProtocolError."""
        try:
            if len(text) > _LENGTH_MAX:
                raise ValueError(text)
            plain = b64decode(text + "=" * (-len(text) % 4), b"-_", validate=True).decode()
            # More parts may follow, as for RocketMQ.
            version, topic, broker_name, time, message_id, *_ = plain.split(" ")
            if version != _VERSION:
                raise ValueError(version)
        except (Error, ValueError):
            raise LocalProtocolError("recall handle is invalid") from None
        is_time = time.isascii() and time.isdecimal() and len(time) <= _TIME_DIGITS_MAX
        return cls(topic, broker_name, int(time) if is_time else 0, message_id)
