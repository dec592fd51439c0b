"""A message's body as a person reads it: text, JSON or bytes in hex."""

import json
from enum import StrEnum
from typing import Final, NamedTuple

__all__ = ["FormattedBody", "View", "excerpt", "format_body"]

_TEXT_MAX: Final = 65_536
_HEX_MAX: Final = 16_384
_INDENTED_MAX: Final = 8 * _TEXT_MAX  # deep arrays grow by their indents
_LINE: Final = 16
_EXCERPT: Final = 90


class View(StrEnum):
    TEXT = "text"
    JSON = "json"
    HEX = "hex"


class FormattedBody(NamedTuple):
    """
    Args:
        view: How it is shown; None was wanted: JSON when it is JSON, then text, then hex.
        cut: How many bytes at its end are not shown.
        is_wanted: False: the body cannot be shown as it was wanted.
    """

    view: View
    text: str
    cut: int
    is_wanted: bool = True


def format_body(body: bytes, wanted: View | None = None) -> FormattedBody:
    """The body in the wanted view, or in the best one that it has."""
    if wanted in (None, View.JSON):
        pretty = _json(body)
        if pretty is not None:
            return FormattedBody(View.JSON, pretty, 0)
    if wanted is not View.HEX:
        try:
            text = body[:_TEXT_MAX].decode("utf-8", "strict" if len(body) <= _TEXT_MAX else "ignore")
        except UnicodeDecodeError:
            if wanted is View.TEXT:
                return FormattedBody(View.TEXT, body.decode("utf-8", "backslashreplace"), 0)
        else:
            return FormattedBody(View.TEXT, text, max(len(body) - _TEXT_MAX, 0), wanted is not View.JSON)
    return FormattedBody(View.HEX, _hex(body[:_HEX_MAX]), max(len(body) - _HEX_MAX, 0), wanted in (None, View.HEX))


def _json(body: bytes) -> str | None:
    """Indented; None for what is no object or array, and for what is too large to be worth it."""
    if len(body) > _TEXT_MAX or not body.lstrip().startswith((b"{", b"[")):
        return None
    parts, size = list[str](), 0
    try:
        for part in json.JSONEncoder(indent=2, ensure_ascii=False).iterencode(json.loads(body)):
            size += len(part)
            if size > _INDENTED_MAX:
                return None
            parts.append(part)
    except (ValueError, RecursionError):
        return None
    return "".join(parts)


def _hex(body: bytes) -> str:
    """ "00000010  30 31 ..  01.." """
    lines = []
    for begin in range(0, len(body), _LINE):
        line = body[begin : begin + _LINE]
        letters = "".join([chr(one) if 32 <= one < 127 else "." for one in line])
        lines.append(f"{begin:08x}  {line.hex(' '):<{_LINE * 3}} {letters}")
    return "\n".join(lines)


def excerpt(body: bytes) -> str:
    """The begin of a body, on one line."""
    text = " ".join(body[: _EXCERPT * 4].decode("utf-8", "backslashreplace").split())
    return text if len(text) <= _EXCERPT else text[: _EXCERPT - 1] + "…"
