"""A message in the log is parsed, or refused with a reason; damaged bytes never raise."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.protocol.codes import SysFlag
from lockstep.protocol.messages.message import Record, encode_stored_message
from lockstep.store.format.record import LogRecord, parse_record

V4, V6 = b"\x7f\x00\x00\x01", bytes(15) + b"\x01"
STORED_MS, OFFSET = 1_795_208_639_549, 4096
SYS_FLAG_LAST_BYTE = 39


def stored(body: bytes, born_host: bytes, store_host: bytes, properties: bytes = b"") -> bytes:
    record = Record("T", 3, 0, 0, 1, born_host, 1, STORED_MS, 0, 0, body, properties, 0)
    return encode_stored_message(record, b"T", 7, OFFSET, store_host, 10911)


@pytest.mark.parametrize("store_host", [V4, V6])
@pytest.mark.parametrize("born_host", [V4, V6])
def test_a_message_is_parsed_with_addresses_of_both_sizes(born_host: bytes, store_host: bytes) -> None:
    """The fields behind the two addresses stand elsewhere for each of the four layouts."""
    message = stored(b"body", born_host, store_host, b"KEYS\x01k\x02")
    record = parse_record(b"before" + message + b"behind", len(b"before"), OFFSET)
    assert isinstance(record, LogRecord)
    assert (record.topic, record.queue_id, record.queue_offset) == ("T", 3, 7)
    assert (record.size_bytes, record.store_timestamp) == (len(message), STORED_MS)
    assert record.properties == b"KEYS\x01k\x02"
    assert message[record.text_at - 4 : record.text_at] == b"body"


@pytest.mark.parametrize("flag", [SysFlag.BORN_HOST_V6, SysFlag.STORE_HOST_V6])
def test_a_flag_of_a_long_address_that_does_not_fit_is_refused(flag: SysFlag) -> None:
    """The smallest message has no room for 12 more bytes: one flipped bit says that they are there."""
    message = bytearray(stored(b"", V4, V4))
    message[SYS_FLAG_LAST_BYTE] |= flag
    assert "room" in str(parse_record(bytes(message), 0, OFFSET))


def test_a_message_that_stands_elsewhere_is_refused() -> None:
    """It names its place: what is left of an older log is no message of this one."""
    message = stored(b"body", V4, V4)
    assert isinstance(parse_record(message, 0, OFFSET), LogRecord)
    assert isinstance(parse_record(message, 0, OFFSET + 100), str)


@given(st.data())
def test_damaged_bytes_are_refused_and_never_raise(data: st.DataObject) -> None:
    """Bytes are changed and cut at any place: the answer is a message or a reason."""
    hosts = st.sampled_from([V4, V6])
    message = bytearray(stored(data.draw(st.binary(max_size=20)), data.draw(hosts), data.draw(hosts)))
    for _ in range(data.draw(st.integers(0, 4))):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    end = data.draw(st.integers(0, len(message)) | st.just(len(message)))
    assert isinstance(parse_record(bytes(message[:end]), 0, OFFSET), str | LogRecord)
