"""The life of every client: `start()` and `shutdown()`, each once, or both by `async with`."""

import inspect
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import fields
from enum import Enum
from typing import Any, ClassVar, Final, Self

from lockstep.client.errors import ClientError, DuplicateGroupError
from lockstep.remoting.settings import SettingError

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
    _config_class: type[Any]  # of its `config`
    _state = ServiceState.CREATE_JUST

    def __new__(cls, *args: Any, **arguments: Any) -> Self:
        """Say which argument has the setting that was given as an argument of its own.

        Raises:
            SettingError: such a setting, or a `config` of another kind of client.
        """
        _check_arguments(cls, cls._config_class, arguments)
        return super().__new__(cls)

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


def _check_arguments(client: type[Lifecycle], settings: type[Any], arguments: Mapping[str, Any]) -> None:
    config = arguments.get("config")
    if config is not None and not isinstance(config, settings):
        raise SettingError(f"config of a {client.__name__} must be a {settings.__name__}, not {type(config).__name__}")
    names = {name: one.name for one in fields(settings) for name in (one.name, one.metadata.get("property", one.name))}
    for name in names.keys() & arguments.keys():
        if name not in inspect.signature(client.__init__).parameters:
            example = f"config={settings.__name__}({names[name]}=...)"
            raise SettingError(f"{name} is a setting: write {client.__name__}(..., {example})")
