"""Message ids: layout, limits, the turn of the month and of the counter."""

from datetime import UTC, datetime

import pytest

from lockstep.protocol.messages.ids import (
    UniqueKeyMaker,
    decode_offset_message_id,
    encode_offset_message_id,
    pack_host,
)
from tests.rows import by_row


def epoch_ms(year: int, month: int, day: int, hour: int = 0, minute: int = 0, second: int = 0) -> int:
    return int(datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()) * 1000


def test_offset_id_of_a_real_broker() -> None:
    """The id that RocketMQ 4.9.8 gave a message at 127.0.0.1:10911."""
    message_id = "7F00000100002A9F00000000106A2C20"
    assert encode_offset_message_id(b"\x7f\0\0\1", 10911, 0x106A2C20) == message_id
    assert decode_offset_message_id(message_id) == (b"\x7f\0\0\1", 10911, 0x106A2C20)


@by_row("host", [bytes(4), b"\xff" * 4, bytes(range(16))])
@by_row("port", [0, 65535, 2**31 - 1, -1, -(2**31)])
@by_row("offset", [0, 2**63 - 1, -1, -(2**63)])
def test_offset_ids_go_there_and_back(host: bytes, port: int, offset: int) -> None:
    """32 or 56 hex characters whatever the numbers are, also those that only a hostile record has."""
    message_id = encode_offset_message_id(host, port, offset)
    assert len(message_id) == 2 * len(host) + 24
    assert decode_offset_message_id(message_id) == (host, port, offset)


@pytest.mark.parametrize(
    "text", ["", "7F", "x" * 32, "0" * 31, "0" * 34, "FD00000000000000000000000000000203CA5FFD2B27"]
)
def test_texts_that_are_no_offset_id(text: str) -> None:
    """Other lengths and other characters are a ValueError."""
    with pytest.raises(ValueError, match="hex"):
        decode_offset_message_id(text)


def test_pack_host() -> None:
    """Four numbers below 256, or an IPv6 address; one that stands for an IPv4 address is that."""
    assert pack_host("127.0.0.1") == pack_host("::ffff:127.0.0.1") == b"\x7f\0\0\1"
    assert pack_host("::1") == pack_host("::1%lo") == bytes(15) + b"\1"
    for text in ("localhost", "1.2.3", "1.2.3.4.5", "1.2.3.256", "::g", "1:2", "", "1.2.3.x", "1.2.3."):
        with pytest.raises(ValueError, match=r"."):
            pack_host(text)


def test_unique_key_layout() -> None:
    """ip, low half of the pid, tag, milliseconds of the month, counter: 32 upper-case hex characters (wire.md 4.6)."""
    maker = UniqueKeyMaker(b"\x0a\0\0\5", 0x12345, 0xDEADBEEF)
    key = maker.next(epoch_ms(2024, 2, 1, 0, 0, 1) + 7)
    assert key == "0A000005" + "2345" + "DEADBEEF" + f"{1007:08X}" + "0001"
    assert len(UniqueKeyMaker(bytes(16), 1, 1).next(0)) == 56


@pytest.mark.parametrize(
    ("before", "after"), [((2024, 2, 29), (2024, 3, 1)), ((2023, 12, 31), (2024, 1, 1)), ((2024, 4, 30), (2024, 5, 1))]
)
def test_the_month_turns(before: tuple[int, int, int], after: tuple[int, int, int]) -> None:
    """The time part counts from the first of the month and starts again with the next, leap years included."""
    maker = UniqueKeyMaker(bytes(4), 0, 0)
    last = epoch_ms(*before, 23, 59, 59) + 999
    times = [int(maker.next(now_ms)[20:28], 16) for now_ms in (last, last + 1, last + 2, last)]
    assert times == [before[2] * 86_400_000 - 1, 0, 1, before[2] * 86_400_000 - 1]
    assert last + 1 == epoch_ms(*after)


def test_the_counter_wraps() -> None:
    """65,536 keys of one millisecond are different, and the counter goes on from zero."""
    maker = UniqueKeyMaker(bytes(4), 0, 0)
    keys = [maker.next(5) for _ in range(0x10000)]
    assert len(set(keys)) == 0x10000
    assert keys[-1][-4:] == "0000"
    assert maker.next(6)[-4:] == "0001"


def test_keys_of_two_producers_differ() -> None:
    """Two makers in one process differ by their tag, two processes by pid."""
    makers = [UniqueKeyMaker(bytes(4), pid, tag) for pid in (1, 2) for tag in (1, 2)]
    keys = {maker.next(now_ms) for maker in makers for now_ms in (1, 1, 2)}
    assert len(keys) == 12
