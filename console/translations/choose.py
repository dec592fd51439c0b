"""Which language a reader gets, and the text of a key in it."""

from collections.abc import Mapping
from itertools import chain
from typing import Final

from lockstep.console.translations import actions, brokers, common, doctor, groups, messages, order, topics

__all__ = ["LANGUAGES", "TEXTS", "Texts", "choose_language"]

LANGUAGES: Final = {"en": "English", "zh": "中文"}
_TABLES: Final = (common, order, groups, topics, messages, brokers, doctor, actions)
TEXTS: Final[Mapping[str, tuple[str, str]]] = dict(chain.from_iterable(table.TEXTS.items() for table in _TABLES))


def choose_language(chosen: str | None, accepted: str) -> str:
    """A language of LANGUAGES.

    Args:
        chosen: What the reader chose before; it goes first.
        accepted: The header Accept-Language.
    """
    if chosen in LANGUAGES:
        return chosen
    weighted = []
    for number, part in enumerate(accepted.split(",")):
        tag, _, quality = part.strip().partition(";")
        try:
            weight = float(quality.strip().removeprefix("q=")) if quality else 1.0
        except ValueError:
            weight = 0.0
        weighted.append((-weight, number, tag.split("-")[0].lower()))
    return next((name for _, _, name in sorted(weighted) if name in LANGUAGES), "en")


class Texts:
    """`t("key", name=value)` in a template."""

    def __init__(self, language: str) -> None:
        self._column = list(LANGUAGES).index(language)

    def __call__(self, key: str, /, **fields: object) -> str:
        text = TEXTS[key][self._column]
        return text.format(**fields) if fields else text

    def cause(self, cause: str) -> str:
        """A broker's word for why an owner changed; a word of a newer broker as it is."""
        key = f"cause.{cause}"
        return self(key) if key in TEXTS else cause

    def has(self, key: str) -> bool:
        return key in TEXTS
