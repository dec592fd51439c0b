"""A protection of ordered consumption, with the change that takes it out and the tests that hold it."""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["ROOT", "Protection"]

ROOT: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Protection:
    """One rule of the product that can be taken out.

    Args:
        name: How the command line calls it.
        without: What goes wrong without it, as a sentence.
        file: The file that holds it, below the root.
        old, new: The text that is replaced, found exactly once in the file, and what replaces it.
        tests: Files or node ids for pytest, at least one test of which fails without the protection.
    """

    name: str
    without: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def module(self) -> str:
        """`client/consumer/pull_loop.py` as `lockstep.client.consumer.pull_loop`."""
        return "lockstep." + self.file.removesuffix(".py").replace("/", ".")

    def mutate(self, source: str) -> str:
        """The file's text without the protection. Raises ValueError when `old` is not there exactly once."""
        found = source.count(self.old)
        if found != 1:
            raise ValueError(
                f"{self.name}: its text stands {found} times in {self.file}, must stand once: {self.old!r}"
            )
        return source.replace(self.old, self.new)
