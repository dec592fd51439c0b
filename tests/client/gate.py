"""Gate: proves that questions are asked together."""

import asyncio
from typing import Any

import pytest

__all__ = ["Gate"]


class Gate:
    """Lets its callers pass when `count` of them wait, and all later ones.

    Args:
        answer: What each gets.
    """

    def __init__(self, count: int, answer: Any = None) -> None:
        self._count = count
        self._answer = answer
        self._is_open = asyncio.Event()
        self.passed = 0

    async def __call__(self, *_: object, **__: object) -> Any:
        self.passed += 1
        if self.passed == self._count:
            self._is_open.set()
        try:
            async with asyncio.timeout(30):
                await self._is_open.wait()
        except TimeoutError:
            pytest.fail(f"only {self.passed} of {self._count} were asked, the others wait for their answers")
        return self._answer
