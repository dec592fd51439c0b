"""What every client has in common: `start()` and `shutdown()`, or both in `async with`."""

from abc import ABC, abstractmethod
from typing import Self

__all__ = ["Lifecycle"]


class Lifecycle(ABC):
    @abstractmethod
    async def start(self) -> None: ...

    @abstractmethod
    async def shutdown(self) -> None: ...

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shutdown()
