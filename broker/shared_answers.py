"""Answers that serve all who ask for the same: after a change all members of a group ask."""

from collections.abc import Callable, Generator
from typing import Final

from lockstep.broker.sliced_work import Wait

__all__ = ["SharedAnswers"]

_ANSWERS_MAX: Final = 16


class _Answer:
    """`written`: None until it is ready; `waiting`: those who wait for it."""

    def __init__(self, version: object) -> None:
        self.of = version
        self.written: bytes | None = None
        self.waiting: list[Callable[[], None]] = []


class SharedAnswers:
    """The last answers of a broker, by group and encoding."""

    def __init__(self) -> None:
        self._answers: dict[tuple[str, int], _Answer] = {}

    def steps(
        self, asked: tuple[str, int], version: object, write: Callable[[], Generator[Wait | None, None, bytes]]
    ) -> Generator[Wait | None, None, bytes]:
        """Write an answer, in steps, or wait for the one that is being written.

        Args:
            version: An answer of another one serves no more.
        """
        answers, known = self._answers, self._answers.get(asked)
        if known is not None and known.of == version:
            if known.written is None:
                yield known.waiting.append
            if known.written is not None:
                return known.written
        answers.pop(asked, None)
        one = answers[asked] = _Answer(version)
        if len(answers) > _ANSWERS_MAX:
            del answers[next(iter(answers))]
        try:
            one.written = yield from write()
        finally:
            if one.written is None and answers.get(asked) is one:  # too long: each of the others then says so itself
                del answers[asked]
            for go_on in one.waiting:
                go_on()
        return one.written
