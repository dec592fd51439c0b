"""Tags by hash and by text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lockstep.protocol.errors import RemoteProtocolError
from lockstep.protocol.filter import FilterError, java_string_hash, parse_tags, tags_code
from tests.rows import by_row


@by_row(
    "text, value",
    [
        ("", 0),
        ("a", 97),
        ("ab", 3105),
        ("TagA", 2598919),
        ("TagB", 2598920),
        ("Hello, world!", -1880044555),
        ("polygenelubricants", -2147483648),
        ("Aa", 2112),
        ("BB", 2112),
        ("ä", 228),
        ("中", 20013),
        ("中文", 646394),
        ("\U0001f600", 1772899),
        ("a\U0001f600", 97 * 31 * 31 + 1772899),
        ("\ud83d", 0xD83D),
    ],
)
def test_java_string_hash(text: str, value: int) -> None:
    """String.hashCode over UTF-16 units with a 32-bit wrap: a character outside the BMP is two units."""
    assert java_string_hash(text) == value


@given(st.text(min_size=1), st.integers(200, 700), st.integers(-(2**31), 2**31 - 1))
def test_a_long_text_has_the_same_hash(text: str, length: int, before: int) -> None:
    """It is computed in another way: all units at once. Lone halves of surrogates count too."""
    text = (text * length)[:length] + "\ud83d"
    expected = before
    units = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(units[::2], units[1::2], strict=True):
        expected = (31 * expected + (high << 8 | low)) % 2**32
    assert java_string_hash(text, before) % 2**32 == expected
    plain = "".join(chr(33 + ord(unit) % 90) for unit in text)
    whole = java_string_hash(plain)
    assert whole == java_string_hash(plain[100:], java_string_hash(plain[:100]))


def test_tags_code() -> None:
    """No tag and an empty tag are 0 in a consume queue."""
    assert [tags_code(tags) for tags in (None, "", "TagA")] == [0, 0, 2598919]


@by_row(
    "expression, tags",
    [
        (None, ()),
        ("", ()),
        ("*", ()),
        ("TagA", ("TagA",)),
        ("TagA||TagB", ("TagA", "TagB")),
        (" TagB || TagA || ", ("TagB", "TagA")),
        ("TagA || TagA", ("TagA",)),
        ("a | b", ("a | b",)),
        ("|||a", ("|a",)),
    ],
)
def test_parse_tags(expression: str | None, tags: tuple[str, ...]) -> None:
    """Tags between ||, trimmed, in order and each once; nothing, "" and * stand for everything."""
    assert parse_tags(expression) == tags


@pytest.mark.parametrize("expression", [" ", "||", " || ", "||||"])
def test_an_expression_without_a_tag(expression: str) -> None:
    """It is refused, not taken for everything: the broker answers 23."""
    with pytest.raises(FilterError, match="names no tag"):
        parse_tags(expression)
    assert issubclass(FilterError, RemoteProtocolError)
