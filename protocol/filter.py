"""Filters by tag: the broker compares the hash of the tag, the client compares its text (wire.md 6.5)."""

from typing import Final

from lockstep.protocol.errors import RemoteProtocolError

__all__ = ["SQL92", "SUBSCRIBE_ALL", "TAG", "FilterError", "is_tag_type", "java_string_hash", "parse_tags", "tags_code"]

SUBSCRIBE_ALL: Final = "*"
TAG: Final = "TAG"
SQL92: Final = "SQL92"


class FilterError(RemoteProtocolError):
    """The expression is invalid. The broker answers SUBSCRIPTION_PARSE_FAILED (23)."""


def is_tag_type(expression_type: str | None) -> bool:
    """Whether an expression type means a filter by tags, which is the default."""
    return expression_type in (None, "", TAG)


def java_string_hash(text: str, before: int = 0) -> int:
    """Java's String.hashCode on UTF-16 units, a signed 32-bit number; `before` is the hash of the text before it."""
    result = before
    if text.isascii():
        for unit in text.encode("ascii"):
            result = (31 * result + unit) & 0xFFFFFFFF
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for i in range(0, len(units), 2):
            result = (31 * result + (units[i] << 8 | units[i + 1])) & 0xFFFFFFFF
    return result - 0x100000000 if result >= 0x80000000 else result


def tags_code(tags: str | None) -> int:
    """The hash of a message's tag, for its consume queue entry. 0 if there is no tag."""
    return java_string_hash(tags) if tags else 0


def parse_tags(expression: str | None) -> tuple[str, ...]:
    """The tags of "TagA || TagB", in order, each once. () selects every message.

    Raises FilterError if the expression has no tag.
    """
    if expression is None or expression in ("", SUBSCRIBE_ALL):
        return ()
    tags = tuple(dict.fromkeys(tag for part in expression.split("||") if (tag := part.strip())))
    if not tags:
        raise FilterError(f"the tag expression {expression!r} names no tag; use '*' or 'TagA || TagB'")
    return tags
