"""`lockstep` inside of the test's process, for the many calls that need no process of their own."""

import signal
import sys
from pathlib import Path

import pytest

from lockstep.cli import app as cli
from tests.commands import NO_SETTINGS, Result

__all__ = ["Inside"]


class Inside:
    """Called like `tests.commands.Lockstep`; stdin is the test's own."""

    def __init__(
        self,
        name_server: str,
        monkeypatch: pytest.MonkeyPatch,
        capfd: pytest.CaptureFixture[str],
        settings: Path = NO_SETTINGS,
    ) -> None:
        monkeypatch.setenv("XDG_CONFIG_HOME", str(settings))
        monkeypatch.delenv("LOCKSTEP_CONTEXT", raising=False)
        self._name_server = name_server
        self._monkeypatch = monkeypatch
        self._capfd = capfd

    def __call__(self, *arguments: str) -> Result:
        self._monkeypatch.setattr(sys, "argv", ["lockstep", *arguments])
        self._monkeypatch.setenv("NAMESRV_ADDR", self._name_server)
        self._capfd.readouterr()
        before = signal.getsignal(signal.SIGINT)
        try:
            status = cli._status()
        finally:
            signal.signal(signal.SIGINT, before)
        return Result(status, *self._capfd.readouterr())
