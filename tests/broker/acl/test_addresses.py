"""Patterns of addresses."""

import pytest

from lockstep.broker.acl.addresses import address_pattern
from lockstep.broker.acl.errors import RuleError
from tests.rows import by_row


@by_row(
    "pattern, inside, outside",
    [
        ("*", ["10.0.0.1", "::1", "host"], []),
        ("*.*.*.*", ["10.0.0.1"], []),
        ("10.0.0.1", ["10.0.0.1", "::ffff:10.0.0.1"], ["10.0.0.2", "::1", "host", ""]),
        ("10.0.0.*", ["10.0.0.0", "10.0.0.255"], ["10.0.1.0", "11.0.0.0"]),
        ("10.0.*.*", ["10.0.7.255"], ["10.1.0.0"]),
        ("10.0.1-9.*", ["10.0.1.0", "10.0.9.9"], ["10.0.0.1", "10.0.10.1"]),
        ("10.0.1-9.7", ["10.0.1.7"], ["10.0.1.8"]),
        ("10.0.0.5-5", ["10.0.0.5"], ["10.0.0.4", "10.0.0.50"]),
        ("10.0.0.{1,2}", ["10.0.0.1", "10.0.0.2"], ["10.0.0.3", "10.0.0.12"]),
        ("10.0.0.1,10.0.0.9", ["10.0.0.1", "10.0.0.9"], ["10.0.0.5"]),
        ("1050:0:0:0:5:600:300c:326b", ["1050::5:600:300c:326b"], ["1050::5:600:300c:326c"]),
        ("1050::5:600:300c:*", ["1050::5:600:300c:1"], ["1050::5:600:300d:1"]),
        ("1050::5:600:1-a:*", ["1050::5:600:a:ffff"], ["1050::5:600:b:0"]),
        ("::1,10.0.0.1", ["::1", "10.0.0.1"], ["::2", "fe80::1%eth0"]),
        ("fe80::*", ["fe80::1%eth0", "fe80::1"], ["fe81::1%eth0"]),
        ("", [], ["10.0.0.1", "::1", ""]),
        (None, [], ["10.0.0.1"]),
    ],
)
def test_patterns(pattern: str | None, inside: list[str], outside: list[str]) -> None:
    """Each part of an address is compared with the part of the pattern."""
    fits = address_pattern(pattern)
    assert [host for host in inside if not fits(host)] == []
    assert [host for host in outside if fits(host)] == []


@by_row(
    "pattern",
    [
        *("1.2", "10.0.0", "10.0.0.0.1", "10.0.0.256", "10.0.0.9-1", "10.0.0.-1", "host", "10.0.0.x"),
        *(
            "1:2:3",
            "1::2::3",
            "10.0.0.1{2}",
            "10.0.0.*,10.0.0.1",
            "10.0.0.1-3,10.0.0.9",
            "10.0.0.{1,{2}}",
            "\u0661.0.0.1",
        ),
    ],
)
def test_no_patterns(pattern: str) -> None:
    """What is no pattern is refused with RocketMQ's text, and with the pattern."""
    with pytest.raises(RuleError, match="etaddress examine"):
        address_pattern(pattern)
