"""Addresses as people write them, and settings under our names and RocketMQ's."""

from dataclasses import dataclass
from enum import Enum

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.client.config import ConsumerConfig
from lockstep.protocol.bodies.heartbeat import ConsumeFromWhere
from lockstep.remoting.settings import Address, SettingError, parse_address, parse_addresses, setting, with_properties
from tests.rows import by_row


class Colour(Enum):
    RED = 0
    GREEN = 1


@dataclass(frozen=True)
class Config:
    plain: int = 7
    size: int = setting(32, name="pullBatchSize")
    loud: bool = setting(False, name="a.b.loud")
    name: str = "n"
    colour: Colour = Colour.RED
    since_ms: int | None = None

    def __post_init__(self) -> None:
        if self.size < 1:
            raise SettingError(f"size must be at least 1, not {self.size}")


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("127.0.0.1:9876", Address("127.0.0.1", 9876)),
        (" localhost:0 ", Address("localhost", 0)),
        ("broker-a.example:65535", Address("broker-a.example", 65535)),
        ("::1:80", Address("::1", 80)),
        ("[::1]:80", Address("::1", 80)),
        ("[fe80::1%eth0]:10911", Address("fe80::1%eth0", 10911)),
    ],
)
def test_an_address_is_host_and_port(text: str, address: Address) -> None:
    """The last colon parts them; spaces around are nobody's intent."""
    assert parse_address(text) == address


_WRONG = ("", ":", "host", "host:", ":80", "host:x", "host:65536", "host:-1", "h:8 0", "h:٣", "h:" + "9" * 5000)
_WRONG_IPV6 = ("[::1]", "[]:80", "[host]:80", "[::1:80", "::1]:80", "[[::1]]:80", "a:b:80", "[::1]80", "[1::2::3]:80")


@by_row("text", _WRONG + _WRONG_IPV6)
def test_what_is_no_address_is_named(text: str) -> None:
    """The error shows the text and an example of a right one."""
    with pytest.raises(SettingError, match="write host:port, for example"):
        parse_address(text)


@given(st.text(max_size=30))
def test_any_text_is_an_address_or_a_setting_error(text: str) -> None:
    """Nothing else comes out, and what parses prints as it can be parsed again."""
    try:
        address = parse_address(text)
    except SettingError:
        return
    assert parse_address(str(address)) == address


def test_several_addresses() -> None:
    """Semicolons as in NAMESRV_ADDR, commas too, empty places ignored, order kept."""
    assert parse_addresses("a:1;b:2, c:3;;") == (Address("a", 1), Address("b", 2), Address("c", 3))
    for text in ("", " ; ,", "a:1;b"):
        with pytest.raises(SettingError):
            parse_addresses(text)


def test_properties_under_both_names() -> None:
    """Ours and RocketMQ's mean the same; what is not given keeps its value; the original is not touched."""
    config = Config()
    ours = with_properties(config, {"size": "64", "loud": "TRUE", "name": "x", "plain": "-1"})
    theirs = with_properties(config, {"pullBatchSize": "64", "a.b.loud": "true", "name": "x", "plain": "-1"})
    assert ours == theirs == Config(-1, 64, True, "x")
    assert config == Config()
    assert with_properties(config, {}) == config


def test_properties_of_every_kind() -> None:
    """Enums by their names, and numbers that may be absent."""
    changed = with_properties(Config(), {"colour": "GREEN", "since_ms": "5"})
    assert (changed.colour, changed.since_ms) == (Colour.GREEN, 5)


@by_row(
    "name, value, words",
    [
        ("size", "many", "'size' must be a whole number, not 'many'"),
        ("pullBatchSize", "1.5", "'pullBatchSize' must be a whole number, not '1.5'"),
        ("plain", "", "'plain' must be a whole number"),
        ("since_ms", "now", "'since_ms' must be a whole number"),
        ("loud", "yes", "'loud' must be true or false, not 'yes'"),
        ("colour", "green", "'colour' must be one of RED, GREEN, not 'green'"),
        ("size", "0", "size must be at least 1, not 0"),
        ("volume", "1", "unknown property 'volume'; known are a.b.loud, colour, loud"),
    ],
)
def test_a_bad_property_is_named(name: str, value: str, words: str) -> None:
    """One line that names the property as it was written, its value, and what is allowed."""
    with pytest.raises(SettingError, match=words):
        with_properties(Config(), {name: value})


def test_the_consumers_own_settings() -> None:
    """Where consumption starts can be given as text, and arrives as what it must be."""
    config = with_properties(
        ConsumerConfig(), {"consume_from_where": "CONSUME_FROM_FIRST_OFFSET", "consume_timestamp_ms": "17"}
    )
    assert config.consume_from_where is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    assert config.consume_timestamp_ms == 17
