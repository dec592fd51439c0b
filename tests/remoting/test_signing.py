"""Signed requests have a number of their own, for peers that may be ours: those handle no copy."""

import pytest

from lockstep.protocol.codes import SerializeType
from lockstep.protocol.command import SERIALIZE_FIELD, RemotingCommand, decode_command
from lockstep.protocol.frame import FrameDecoder
from lockstep.protocol.signature import ONCE, SIGNATURE, Credentials
from lockstep.remoting.connections.connection import EndpointSettings, RemotingConnection
from tests.remoting.helpers import ECHO, frame_of

NOW_MS = 1_700_000_000_000


def connection(offer: SerializeType | None) -> RemotingConnection[int]:
    account = Credentials("account1", "secret-1234")
    made: RemotingConnection[int] = RemotingConnection(EndpointSettings(server=False, offer=offer, credentials=account))
    made.connected("10.0.0.1:1", NOW_MS)
    return made


def sent(one: RemotingConnection[int], *, one_way: bool = False) -> RemotingCommand:
    """The next request, as the peer reads it."""
    command, decoder = RemotingCommand(ECHO), FrameDecoder()
    parts = one.one_way(command, NOW_MS) if one_way else one.request(command, 1000, NOW_MS, 0)
    decoder.feed(b"".join(parts))
    frame = decoder.next_frame()
    assert frame is not None
    return decode_command(frame)


def numbered(one: RemotingConnection[int], *, one_way: bool = False) -> bool:
    fields = sent(one, one_way=one_way).ext_fields or {}
    assert SIGNATURE in fields
    return ONCE in fields


def answered(one: RemotingConnection[int], request: RemotingCommand, *, echo: bool) -> None:
    reply = request.reply(0)
    reply.ext_fields = {SERIALIZE_FIELD: "MSGPACK"} if echo else None
    one.receive(frame_of(reply), NOW_MS)
    assert len(list(one.events())) == 1


@pytest.mark.parametrize("ours", [True, False])
def test_requests_before_the_agreement_have_numbers(ours: bool) -> None:
    """Those that leave before the answer to the offer too, whatever they want; none after a peer has declined."""
    one = connection(SerializeType.MSGPACK)
    assert numbered(one, one_way=True)
    first = sent(one)
    assert ONCE in (first.ext_fields or {})
    assert [numbered(one), numbered(one, one_way=True), numbered(one)] == [True] * 3
    answered(one, first, echo=ours)
    assert one.agreement.agreed is ours
    assert [numbered(one), numbered(one, one_way=True)] == [ours] * 2


def test_without_an_offer_there_are_none() -> None:
    """A client that asks for no encoding of ours never learns that its peer is ours."""
    one = connection(None)
    assert [numbered(one), numbered(one, one_way=True)] == [False, False]
