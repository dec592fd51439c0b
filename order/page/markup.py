"""Elements of HTML and SVG as text, with every value escaped."""

from typing import Final

from markupsafe import Markup, escape

__all__ = ["join", "tag"]

_EMPTY: Final = frozenset({"meta", "br"})
_SHAPES: Final = frozenset({"rect", "path", "line", "circle"})


def tag(name: str, /, *content: str | None, **attributes: str | float | bool | None) -> Markup:
    """An element. Content is escaped unless it is Markup.

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
        return Markup(f"<{' '.join(words)}/>")
    begin = f"<{' '.join(words)}>"
    return Markup(begin if name in _EMPTY else f"{begin}{join(*content)}</{name}>")


def join(*content: str | None) -> Markup:
    """Several pieces as one. What is no Markup is escaped; None is left out."""
    return Markup("").join(one for one in content if one is not None)
