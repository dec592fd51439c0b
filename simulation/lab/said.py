"""Sentences that know their template and its values, so that a page can say them in another language."""

from functools import cache
from string import Formatter
from typing import Any

__all__ = ["Said", "fields_of", "say", "told"]


class Said(str):
    """A sentence in English. Its values may be such sentences themselves."""

    template: str
    values: dict[str, object]

    @property
    def begun(self) -> "Said":
        """With a capital letter, but for a host's name."""
        return _made(f"T{self[1:]}" if self.startswith("the ") else self, self.template, self.values)

    @property
    def parts(self) -> list[Any]:
        """For JSON: the template, and the values by name."""
        return [self.template, {name: _part(value) for name, value in self.values.items()}]


def say(template: str, /, **values: object) -> Said:
    """The template with its values; those that it does not name are left out."""
    used = {name: values[name] for name in fields_of(template)}
    return _made(template.format(**used), template, used)


def told(text: str) -> dict[str, Any]:
    """A sentence as the page gets it: in English, and what it is made of."""
    return {"text": str(text), "said": _part(text)}


@cache
def fields_of(template: str) -> tuple[str, ...]:
    """The names of the values in a template."""
    return tuple(dict.fromkeys(name for _, name, _, _ in Formatter().parse(template) if name))


def _made(text: str, template: str, values: dict[str, object]) -> Said:
    made = Said(text)
    made.template, made.values = template, values
    return made


def _part(value: object) -> Any:
    return value.parts if isinstance(value, Said) else str(value)
