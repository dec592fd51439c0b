"""RemotingCommand: flags, replies, and what of it survives the wire."""

import pytest

from lockstep.protocol.codes import (
    FRAME_BYTES_MAX,
    HEADER_BYTES_MAX,
    RequestCode,
    ResponseCode,
    SerializeType,
    request_name,
    response_name,
)
from lockstep.protocol.command import RemotingCommand, decode_command, encode_command
from lockstep.protocol.errors import HeaderError, LocalProtocolError
from lockstep.protocol.frame import Frame, FrameDecoder
from lockstep.protocol.headers.messaging import OffsetResponseHeader, QueueRequestHeader

each_type = pytest.mark.parametrize("serialize_type", list(SerializeType), ids=lambda t: t.name)


def through_the_wire(command: RemotingCommand) -> RemotingCommand:
    decoder = FrameDecoder()
    decoder.feed(encode_command(command) + command.body)
    frame = decoder.next_frame()
    assert frame is not None
    return decode_command(frame)


@each_type
def test_a_reply_answers_its_request(serialize_type: SerializeType) -> None:
    """A reply takes opaque and encoding from its request and carries the reply flag, not the one-way flag."""
    request = through_the_wire(RemotingCommand(30, opaque=9, flag=2, serialize_type=serialize_type))
    reply = request.reply(ResponseCode.SUCCESS, OffsetResponseHeader(5), b"b", remark="fine")
    assert (reply.opaque, reply.serialize_type, reply.flag, reply.remark) == (9, serialize_type, 1, "fine")
    assert reply.is_reply
    assert not reply.is_one_way
    assert through_the_wire(reply).decode_header(OffsetResponseHeader) == OffsetResponseHeader(5)


def test_flags() -> None:
    """Bit 0 says reply, bit 1 one-way, other bits nothing."""
    kinds = {
        flag: (RemotingCommand(1, flag=flag).is_reply, RemotingCommand(1, flag=flag).is_one_way) for flag in range(5)
    }
    assert kinds == {0: (False, False), 1: (True, False), 2: (False, True), 3: (True, True), 4: (False, False)}


def test_a_header_that_never_left_the_process() -> None:
    """A command handed over without the wire gives its header back as it is."""
    header = QueueRequestHeader("T", 0)
    assert RemotingCommand(30, header).decode_header(QueueRequestHeader) is header


def test_encodings_that_cannot_be_written_or_read() -> None:
    """A type without a codec: writing is our error, reading is the peer's and leaves the stream usable."""
    with pytest.raises(LocalProtocolError, match="type 3"):
        encode_command(RemotingCommand(10, serialize_type=3))
    with pytest.raises(HeaderError, match="type 3"):
        decode_command(Frame(3, b"", b""))


def test_a_command_over_the_frame_limit_is_not_written() -> None:
    """The sender learns of an oversized body here, before the peer closes the connection."""
    with pytest.raises(LocalProtocolError, match="over the limit"):
        encode_command(RemotingCommand(10, body=bytes(FRAME_BYTES_MAX)))


def test_repr_says_what_a_log_needs() -> None:
    """Kind, code, opaque, fields and the body's size, not the body."""
    assert repr(RemotingCommand(10, body=b"secret", opaque=4)) == "<request code=10 opaque=4 None body=6B remark=None>"
    assert "one-way" in repr(RemotingCommand(10, flag=2))
    assert "reply" in repr(RemotingCommand(0, OffsetResponseHeader(5), flag=1))
    assert "offset=5" in repr(RemotingCommand(0, OffsetResponseHeader(5), flag=1))


def test_names_of_codes() -> None:
    """Logs name known codes and keep unknown ones as numbers."""
    assert request_name(RequestCode.LOCK_BATCH_MQ) == "LOCK_BATCH_MQ (41)"
    assert response_name(ResponseCode.PULL_NOT_FOUND) == "PULL_NOT_FOUND (19)"
    assert request_name(9999) == "request code 9999"
    assert response_name(9999) == "response code 9999"


def test_a_request_has_a_shorter_header_than_a_reply_may_have() -> None:
    """The header of a request is limited, and the error says what is in it; a reply to a batch names each message."""
    fields = {"i": "x" * HEADER_BYTES_MAX}
    with pytest.raises(LocalProtocolError, match="properties of a message are a part of it"):
        encode_command(RemotingCommand(310, ext_fields=fields))
    reply = RemotingCommand(0, ext_fields=fields, flag=1)
    decoder = FrameDecoder()
    decoder.feed(encode_command(reply))
    frame = decoder.next_frame()
    assert frame is not None
    assert decode_command(frame).ext_fields == fields
