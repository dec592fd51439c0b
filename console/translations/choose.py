"""Which language a reader gets, and the text of a key in it."""

from collections.abc import Mapping
from itertools import chain
from typing import Final

from lockstep.console.translations import (
    actions,
    brokers,
    changes,
    common,
    doctor,
    groups,
    login,
    messages,
    order,
    send,
    topics,
)
from lockstep.console.translations.evidence import chinese_evidence, chinese_place
from lockstep.console.translations.reasons import chinese_reason

__all__ = ["LANGUAGES", "TEXTS", "Texts", "choose_language"]

LANGUAGES: Final = {"en": "English", "zh": "中文"}
_TABLES: Final = (common, order, groups, topics, messages, brokers, doctor, actions, changes, send, login)
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
        self._is_english = language == "en"

    def __call__(self, key: str, /, **fields: object) -> str:
        text = TEXTS[key][self._column]
        return text.format(**fields) if fields else text

    def get(self, key: str, default: str) -> str:
        """The text of what brokers and members name; a newer one may name what has no text here."""
        return self(key) if key in TEXTS else default

    def reason(self, reason: str) -> str:
        """A member's sentence for why it has a queue, or does not have it."""
        return reason if self._is_english else chinese_reason(reason)

    def evidence(self, evidence: str) -> str:
        """What a rule of the doctor saw."""
        return evidence if self._is_english else chinese_evidence(evidence)

    def place(self, where: str) -> str:
        """Where it saw that, such as "group shop"."""
        return where if self._is_english else chinese_place(where)
