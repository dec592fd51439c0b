"""What every test shares: async tests run on asyncio in debug mode and again on uvloop.

A module whose tests cost too much to run twice says so: `pytestmark = pytest.mark.asyncio(loop_factories=["uvloop"])`.
Tests under `integration/` and `interop/` start processes of their own and run once, on uvloop.

What shares something that takes long to start runs in one worker: see `TogetherScheduling`.
"""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import uvloop
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

# How long an example takes is the machine's business: a loaded one is no finding.
settings.register_profile("lockstep", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("lockstep")

TESTS = Path(__file__).parent
RUN_ONCE = (TESTS / "integration", TESTS / "interop")
TOGETHER = "tests/pipeline/"  # one Spark
MODULES_TOGETHER = "tests/interop/"  # servers of their own


class TogetherScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """A folder, and each module of another, that a worker gets as a whole, the largest first; the rest test by test."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(MODULES_TOGETHER):
            return nodeid.partition("::")[0]
        return TOGETHER if nodeid.startswith(TOGETHER) else nodeid


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> TogetherScheduling:
    return TogetherScheduling(config, log)


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
