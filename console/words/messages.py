"""Texts of the page Messages: key -> English, Chinese."""

from collections.abc import Mapping
from typing import Final

__all__ = ["TEXTS"]

TEXTS: Final[Mapping[str, tuple[str, str]]] = {}
