"""Broker processes for tests, and the pytest plugin. Exports are imported at their first use."""

from typing import TYPE_CHECKING

from lockstep.remoting.lazy import lazy_exports

if TYPE_CHECKING:
    from lockstep.testing.broker import LockstepBroker

__all__ = ["LockstepBroker"]

EXPORTS: dict[str, str] = {
    "lockstep.testing.broker": "LockstepBroker",
}

if not TYPE_CHECKING:
    __getattr__ = lazy_exports(__name__, EXPORTS)
