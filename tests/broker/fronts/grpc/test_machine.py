"""What is different in h2's state of a connection."""

import contextlib
import struct

import hpack
import pytest
from h2.exceptions import TooManyStreamsError

from lockstep.broker.fronts.grpc.http2.machine import new_machine

OK = [(b":status", b"200"), (b"content-type", b"application/grpc")]


@pytest.mark.parametrize("held", [0, 900])
def test_calls_that_ended_leave_room_for_others(held: int) -> None:
    """h2 counts the calls only now and then: never fewer than there are."""
    machine, encoder = new_machine(1000), hpack.Encoder()
    request = encoder.encode([(":method", "POST")])
    client = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes((0, 0, 0, 4, 0, 0, 0, 0, 0))
    machine.initiate_connection()
    machine.receive_data(client)

    def begin(number: int) -> int:
        stream_id = 2 * number + 1
        head = len(request).to_bytes(3, "big") + b"\x01\x05" + stream_id.to_bytes(4, "big")
        machine.receive_data(head + request)
        return stream_id

    for number in range(held):
        begin(number)
    for number in range(held, held + 3000):
        machine.send_headers(begin(number), OK, end_stream=True)
    assert len(machine.streams) <= 1000
    assert machine.open_inbound_streams <= 1000
    open_now = held
    with contextlib.suppress(TooManyStreamsError):
        while open_now < 2000:
            begin(3000 + open_now)
            open_now += 1
    assert open_now == 1000


def test_settings_of_a_peer_take_no_room() -> None:
    """It could name 65,536 of them; those that HTTP/2 does not know are ignored."""
    machine = new_machine(10)
    machine.initiate_connection()
    machine.receive_data(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0")
    known = len(machine.remote_settings)
    for first in range(10, 60_000, 2000):
        body = b"".join(struct.pack(">HI", code, 1) for code in range(first, first + 2000))
        machine.receive_data(struct.pack(">I", len(body))[1:] + b"\4\0\0\0\0\0" + body)
    assert len(machine.remote_settings) == known


def test_a_table_that_shrinks_and_grows_is_told_once() -> None:
    """The smallest size and the last: the peer's table has lost what did not fit (RFC 7541, 4.2)."""
    machine, decoder = new_machine(10), hpack.Decoder()
    assert decoder.decode(machine.encoder.encode(OK), raw=True) == OK
    for _ in range(1000):
        for size in (4096, 0, 60, 60):
            machine.encoder.header_table_size = size
    decoder.max_allowed_table_size = 60
    block = machine.encoder.encode(OK)
    assert len(block) < 60
    assert decoder.decode(block, raw=True) == OK
    assert decoder.header_table_size == 60
    assert decoder.decode(machine.encoder.encode(OK), raw=True) == OK
