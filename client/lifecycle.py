"""The life of every client: `start()` and `shutdown()`, each once, or both by `async with`."""

from abc import ABC, abstractmethod
from enum import Enum
from typing import ClassVar, Final, Self

from lockstep.client.errors import ClientError, DuplicateGroupError

__all__ = ["Lifecycle", "ServiceState"]


class ServiceState(Enum):
    CREATE_JUST = 0  # constructed and not started
    RUNNING = 1
    SHUTDOWN_ALREADY = 2
    START_FAILED = 3  # its start runs, or failed


_S = ServiceState
_WHY_NOT: Final = {
    _S.CREATE_JUST: "it is not started; use `async with` or await start()",
    _S.RUNNING: "it was started before; make a new one",
    _S.SHUTDOWN_ALREADY: "it was started before and is shut down; make a new one",
    _S.START_FAILED: "it was started before, and its start has not succeeded; make a new one",
}


class Lifecycle(ABC):
    """A subclass does the work in `_start` and `_shutdown`. Calls in the wrong state raise `error`."""

    error: ClassVar[type[ClientError]] = ClientError
    _state = ServiceState.CREATE_JUST

    @property
    def state(self) -> ServiceState:
        return self._state

    async def start(self) -> None:
        """Start, once. A failed start cannot be repeated, but one that was refused at its very beginning can.

        Raises:
            ClientError, ConsumerError: the state is not CREATE_JUST, or something must be given before the start.
            DuplicateGroupError: another client of this process is in the group; the start may be repeated.
        """
        if self._state is not _S.CREATE_JUST:
            raise self.wrong_state()
        self._check_complete()
        self._state = _S.START_FAILED
        try:
            await self._start()
        except DuplicateGroupError:
            self._state = _S.CREATE_JUST
            raise
        self._state = _S.RUNNING

    async def shutdown(self) -> None:
        """Shut down. Does nothing when the client does not run."""
        if self._state is _S.RUNNING:
            self._state = _S.SHUTDOWN_ALREADY
            await self._shutdown()

    def wrong_state(self) -> ClientError:
        """Return the error for a call that this state does not allow."""
        name, state = type(self).__name__, self._state
        return self.error(f"the service state of this {name} is {state.name}: {_WHY_NOT[state]}")

    def _check_complete(self) -> None:  # noqa: B027 - most have nothing to check
        """Raise if something is missing that must be given before the start."""

    @abstractmethod
    async def _start(self) -> None:
        """Start; if that fails, undo what was begun, then raise."""

    @abstractmethod
    async def _shutdown(self) -> None: ...

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.shutdown()
