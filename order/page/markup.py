"""HTML and SVG as text, with every value escaped."""

from html import escape
from typing import Final

__all__ = ["Html", "join", "tag"]

_EMPTY: Final = frozenset({"meta", "br"})
_SHAPES: Final = frozenset({"rect", "path", "line", "circle"})


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def tag(name: str, /, *content: str | Html | None, **attributes: str | float | bool | None) -> Html:
    """An element. Content is escaped unless it is Html.

    Args:
        name: The element's name.
        content: The children. None is left out.
        attributes: `class_` and the like lose the underscore at the end; other underscores become hyphens. None and
            False leave an attribute out, True writes its name alone.
    """
    words = [name]
    for key, value in attributes.items():
        key = key.rstrip("_").replace("_", "-") if key != "viewBox" else key
        if value is True:
            words.append(key)
        elif value is not None and value is not False:
            text = f"{value:.10g}" if isinstance(value, float) else str(value)
            words.append(f'{key}="{escape(text)}"')
    if name in _SHAPES and not any(content):
        return Html(f"<{' '.join(words)}/>")
    begin = f"<{' '.join(words)}>"
    return Html(begin if name in _EMPTY else f"{begin}{join(*content)}</{name}>")


def join(*content: str | Html | None) -> Html:
    """Several pieces as one. What is no Html is escaped; None is left out."""
    return Html(
        "".join(one if isinstance(one, Html) else escape(one, quote=False) for one in content if one is not None)
    )
