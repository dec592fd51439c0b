"""What every test shares: async tests run on asyncio in debug mode and again on uvloop.

A module whose tests cost too much to run twice says so: `pytestmark = pytest.mark.asyncio(loop_factories=["uvloop"])`.
Tests under `integration/` and `interop/` start processes of their own and run once, on uvloop.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import uvloop
from hypothesis import HealthCheck, settings

# How long an example takes is the machine's business: a loaded one is no finding.
settings.register_profile("lockstep", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("lockstep")

TESTS = Path(__file__).parent
RUN_ONCE = (TESTS / "integration", TESTS / "interop")


class DebugLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop with its checks on; pytest-asyncio's runner, which would turn them off, cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.slow_callback_duration = 1.0  # debug mode is slow by itself, and a loaded machine is no finding

    def set_debug(self, enabled: bool) -> None:
        """Debug mode, whatever is asked for."""
        super().set_debug(True)


LOOPS: Mapping[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": DebugLoop,
    "uvloop": uvloop.new_event_loop,
}


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loops of one async test."""
    if any(item.path.is_relative_to(folder) for folder in RUN_ONCE):
        return {"uvloop": LOOPS["uvloop"]}
    return LOOPS
