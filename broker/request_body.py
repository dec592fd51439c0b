"""Structured bodies of requests, with a length limit: the event loop decodes them while other clients wait."""

from typing import Final, TypeVar

from lockstep.protocol.bodies.codec import WireBody, decode_body
from lockstep.protocol.bodies.parts import parts_of
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import BodyError

__all__ = [
    "CLIENT_ID_LENGTH_MAX",
    "DIALECT_BYTES_MAX",
    "NAME_LENGTH_MAX",
    "check_body_length",
    "check_name_length",
    "read_body",
]

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
# RocketMQ's clients allow 127 characters for topics and 255 for groups.
NAME_LENGTH_MAX: Final = 255
# An address, an instance name and a unit.
CLIENT_ID_LENGTH_MAX: Final = 512
# A broker registers all of its topics in one body.
_REGISTRATION_FACTOR: Final = 4
# The decoder needs 10 ms for the parts of 1 MiB.
_BYTES_A_PART: Final = 20
# A part of a registration; a topic has 120 bytes, or 146 in two parts from RocketMQ 5.
_BYTES_A_TOPIC: Final = 64
# RocketMQ's clients write such requests in strict JSON, of a few KiB.
DIALECT_BYTES_MAX: Final = 32 * 1024


def check_body_length(command: RemotingCommand, bytes_max: int) -> None:
    """Raises BodyError when a structured body is longer than `bytes_max`, or has more parts than a request can need."""
    if command.code in _MESSAGES:
        return
    length, part_bytes = len(command.body), _BYTES_A_PART
    if command.code == _R.REGISTER_BROKER:
        bytes_max, part_bytes = bytes_max * _REGISTRATION_FACTOR, _BYTES_A_TOPIC
    if length > bytes_max:
        raise BodyError(f"the body has {length} bytes; at most {bytes_max} are allowed (structured_body_bytes_max)")
    parts_max = bytes_max // part_bytes
    if length > parts_max and parts_of(command.body, command.serialize_type) > parts_max:
        raise BodyError(
            f"the body has more than {parts_max} objects and lists: one for {part_bytes} bytes of the allowed "
            "length (structured_body_bytes_max)"
        )


def check_name_length(member: str, name: str, length_max: int = NAME_LENGTH_MAX) -> None:
    """Raises BodyError for a name that is too long to be kept."""
    if len(name) > length_max:
        raise BodyError(f"the member {member} has {len(name)} characters; at most {length_max} are allowed")


def read_body(body_class: type[B], command: RemotingCommand) -> B:
    """Decode the structured body of a request. Raises BodyError."""
    return decode_body(body_class, command.body, command.serialize_type, dialect_bytes_max=DIALECT_BYTES_MAX)
