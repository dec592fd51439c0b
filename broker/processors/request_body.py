"""Structured bodies of requests, with a length limit: the event loop decodes them while other clients wait."""

from typing import Final, TypeVar

from lockstep.protocol.bodies.codec import WireBody, decode_body
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import BodyError

__all__ = ["check_body_length", "read_body"]

B = TypeVar("B", bound=WireBody)

_R = RequestCode
# Their bodies are messages, which have other limits.
_MESSAGES: Final = frozenset(
    {
        _R.SEND_MESSAGE,
        _R.SEND_MESSAGE_V2,
        _R.SEND_BATCH_MESSAGE,
        _R.SEND_TOGETHER,
        _R.SEND_REPLY_MESSAGE,
        _R.SEND_REPLY_MESSAGE_V2,
    }
)
_REGISTRATION_FACTOR: Final = 4  # a broker registers all of its topics in one body
_DIALECT_BYTES_MAX: Final = 32 * 1024  # RocketMQ's clients write such requests in strict JSON, of a few KiB


def check_body_length(command: RemotingCommand, bytes_max: int) -> None:
    """Raises BodyError when a structured body is longer than `bytes_max`."""
    length = len(command.body)
    if length <= bytes_max or command.code in _MESSAGES:
        return
    if command.code == _R.REGISTER_BROKER:
        bytes_max *= _REGISTRATION_FACTOR
    if length > bytes_max:
        raise BodyError(f"the body has {length} bytes; at most {bytes_max} are allowed (structured_body_bytes_max)")


def read_body(body_class: type[B], command: RemotingCommand) -> B:
    """Decode the structured body of a request. Raises BodyError."""
    return decode_body(body_class, command.body, command.serialize_type, dialect_bytes_max=_DIALECT_BYTES_MAX)
