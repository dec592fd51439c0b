"""The summary of a run names what waits for its turn: see `tests.tiers`."""

from collections import Counter
from typing import Any

import pytest

from tests.tiers import LEFT_OUT, TURN_VARIABLE, TURNS

__all__ = ["LeftOut"]

_FILES_MAX = 8  # that are named, of many


class LeftOut:
    """A plugin of pytest: the workers of xdist collect, and their controller writes the summary."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def pytest_sessionfinish(self) -> None:
        if hasattr(self._config, "workeroutput"):
            left = self._config.stash[LEFT_OUT]
            self._config.workeroutput["left out"] = dict(left)

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        """All workers collect the same, so the last to end speaks for all."""
        left: dict[str, int] = getattr(node, "workeroutput", {}).get("left out", {})
        self._config.stash[LEFT_OUT] = Counter[str](left)

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        left = self._config.stash[LEFT_OUT]
        if not left:
            return
        named = ", ".join(f"{file} ({count})" for file, count in left.most_common(_FILES_MAX))
        more = f" and {len(left) - _FILES_MAX} more files" if len(left) > _FILES_MAX else ""
        terminalreporter.write_line(
            f"left out: {left.total()} repeated tests wait for their turn, one run in {TURNS} "
            f"(change {TURN_VARIABLE}; `make nightly` runs all): {named}{more}"
        )
