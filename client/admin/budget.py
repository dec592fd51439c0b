"""AnswerBudget: how much the answers to one task of a long-lived client may hold."""

from typing import Final

from lockstep.client.errors import ClientError
from lockstep.protocol.bodies.parts import parts_of
from lockstep.protocol.codes import request_name
from lockstep.protocol.command import RemotingCommand

__all__ = ["AnswerBudget", "AnswerTooLargeError"]

# An object or a list takes so many bytes of memory at least, and one byte of a body.
_BYTES_A_PART: Final = 64


class AnswerTooLargeError(ClientError):
    """The answers to one task hold more than the client takes."""


class AnswerBudget:
    """Counts the structured bodies that were answered to one task, before they are decoded.

    Args:
        bytes_max: Of all bodies together. They may have one object or list for 64 bytes of it.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._bytes = 0
        self._parts = 0

    def take(self, address: str, code: int, reply: RemotingCommand) -> None:
        """Count an answer.

        Args:
            address: Who answered.
            code: The request.

        Raises:
            AnswerTooLargeError: It is too much with the answers before it. It is not counted.
        """
        body_bytes, parts_max = len(reply.body), self._bytes_max // _BYTES_A_PART
        if self._bytes + body_bytes > self._bytes_max:
            raise AnswerTooLargeError(
                f"{address} answered {request_name(code)} with {body_bytes} bytes, {self._bytes} came before: "
                f"at most {self._bytes_max} are taken"
            )
        parts = self._parts + parts_of(reply.body, reply.serialize_type)
        if parts > parts_max:
            raise AnswerTooLargeError(
                f"{address} answered {request_name(code)} with {parts} objects and lists, with those before: "
                f"at most {parts_max} are taken"
            )
        self._bytes += body_bytes
        self._parts = parts
