"""RemotingCommand: one request or reply, with conversion from and to a frame."""

from collections.abc import Mapping
from typing import Any, TypeVar, cast

from lockstep.protocol.codecs import CODECS
from lockstep.protocol.codecs.base import ExtValue
from lockstep.protocol.codes import HEADER_BYTES_MAX, PROTOCOL_VERSION, LanguageCode, RemotingFlag, SerializeType
from lockstep.protocol.errors import HeaderError, LocalProtocolError
from lockstep.protocol.frame import Frame, encode_frame_head
from lockstep.protocol.headers.spec import spec_of

__all__ = ["RUN_FIELD", "SERIALIZE_FIELD", "RemotingCommand", "decode_command", "encode_command"]

SERIALIZE_FIELD = "lockstep.serialize"  # offers and accepts MSGPACK (docs/architecture.md)
RUN_FIELD = "lockstep.run"  # beside the acceptance: which run of the broker's log this is (docs/wire.md 17.4)

H = TypeVar("H", bound=tuple[Any, ...])

_new_command = object.__new__
_REMARK_LENGTH_MAX = 500
_REPLY = int(RemotingFlag.REPLY)
_ONE_WAY = int(RemotingFlag.ONE_WAY)
_PYTHON = int(LanguageCode.PYTHON)
_ENCODERS = {serialize_type: codec.encode_header for serialize_type, codec in CODECS.items()}
_DECODERS = {serialize_type: codec.decode_header for serialize_type, codec in CODECS.items()}


class RemotingCommand:
    """A request or a reply. A received command has untyped fields until `decode_header`.

    Args:
        code: A request code or, in a reply, a response code.
        header: The typed header of a command to send.
        body: The body of the frame.
        remark: The text of a reply, usually of an error.
        ext_fields: Further header fields by name.
        flag: Bits of RemotingFlag: reply, one-way.
        opaque: The request number, which its reply repeats.
        serialize_type: The encoding of the header.
        version: The sender's version ordinal (wire.md 1.4).
        language: The ordinal of the sender's LanguageCode.

    `positional` are the values of a MSGPACK header before `decode_header`.
    """

    __slots__ = (
        "body",
        "code",
        "ext_fields",
        "flag",
        "header",
        "language",
        "opaque",
        "positional",
        "remark",
        "serialize_type",
        "version",
    )

    def __init__(
        self,
        code: int,
        header: tuple[Any, ...] | None = None,
        body: bytes = b"",
        *,
        remark: str | None = None,
        ext_fields: Mapping[str, ExtValue] | None = None,
        flag: int = 0,
        opaque: int = 0,
        serialize_type: int = SerializeType.JSON,
        version: int = PROTOCOL_VERSION,
        language: int = _PYTHON,
    ) -> None:
        self.code = code
        self.header = header
        self.body = body
        self.remark = remark
        self.ext_fields = ext_fields
        self.flag = flag
        self.opaque = opaque
        self.serialize_type = serialize_type
        self.version = version
        self.language = language
        self.positional: list[Any] | None = None

    @property
    def is_reply(self) -> bool:
        return bool(self.flag & _REPLY)

    @property
    def is_one_way(self) -> bool:
        return bool(self.flag & _ONE_WAY)

    def decode_header(self, header_class: type[H]) -> H:
        """The typed header of a received command. Raises HeaderError with the name of a wrong field."""
        # Lockstep's own encoding has the values in field order, without names.
        if self.positional is not None:
            return cast("H", spec_of(header_class).from_positional(self.positional))
        if self.header is not None:
            # The command never left this process.
            return cast("H", self.header)
        return cast("H", spec_of(header_class).from_ext_fields(self.ext_fields or {}))

    def reply(
        self,
        code: int,
        header: tuple[Any, ...] | None = None,
        body: bytes = b"",
        *,
        remark: str | None = None,
    ) -> "RemotingCommand":
        """A reply with this request's opaque and encoding. A long remark is cut."""
        if remark is not None and len(remark) > _REMARK_LENGTH_MAX:
            # It may contain a peer's text.
            remark = remark[:_REMARK_LENGTH_MAX] + "..."
        answer = _new_command(RemotingCommand)  # sets each attribute, like `decode_command`
        answer.code = code
        answer.header = header
        answer.body = body
        answer.remark = remark
        answer.ext_fields = answer.positional = None
        answer.flag = _REPLY
        answer.opaque = self.opaque
        answer.serialize_type = self.serialize_type
        answer.version = PROTOCOL_VERSION
        answer.language = _PYTHON
        return answer

    def __repr__(self) -> str:
        kind = "reply" if self.is_reply else "one-way" if self.is_one_way else "request"
        shown = self.header if self.header is not None else self.positional or self.ext_fields
        return f"<{kind} code={self.code} opaque={self.opaque} {shown} body={len(self.body)}B remark={self.remark!r}>"


def encode_command(command: RemotingCommand) -> bytes:
    """Encode the bytes of a frame before its body: length, type and header.

    Raises:
        LocalProtocolError: The frame is longer than 16 MiB, or the header of a request is longer than 256 KiB.
    """
    encode_header = _ENCODERS.get(command.serialize_type)
    if encode_header is None:
        raise LocalProtocolError(f"headers of type {command.serialize_type} cannot be written")
    header = encode_header(command)
    # Only requests: a broker must be able to answer with whatever its peers have stored.
    if len(header) > HEADER_BYTES_MAX and not command.flag & _REPLY:
        raise LocalProtocolError(
            f"a header of {len(header)} bytes is over the limit of {HEADER_BYTES_MAX}; the properties of a message are "
            "a part of it"
        )
    return encode_frame_head(command.serialize_type, header, len(command.body))


def decode_command(frame: Frame) -> RemotingCommand:
    """Decode the header of a frame. Raises HeaderError if it is unreadable; the next frames stay readable."""
    decode_header = _DECODERS.get(frame.serialize_type)
    if decode_header is None:
        raise HeaderError(f"headers of type {frame.serialize_type} cannot be read here")
    # Set each attribute: half the time of a call with eleven arguments.
    command = _new_command(RemotingCommand)
    (
        command.code,
        command.language,
        command.version,
        command.opaque,
        command.flag,
        command.remark,
        command.ext_fields,
        command.positional,
    ) = decode_header(frame.header)
    command.header = None
    command.body = frame.body
    command.serialize_type = frame.serialize_type
    return command
