"""Which arm is used: the native part, unless it is missing, unwanted or of another version."""

import sys
from types import ModuleType

import pytest

from lockstep.protocol import native


@pytest.mark.parametrize(
    ("choice", "interface", "used"),
    [("", native.INTERFACE, True), ("0", native.INTERFACE, False), ("", 0, False), ("", native.INTERFACE + 1, False)],
)
def test_which_arm(monkeypatch: pytest.MonkeyPatch, choice: str, interface: int, used: bool) -> None:
    found = ModuleType("_native")
    found.INTERFACE = interface  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lockstep.protocol._native", found)
    monkeypatch.setenv("LOCKSTEP_NATIVE", choice)
    assert (native._load() is found) == used


def test_a_stale_part_is_said_where_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lockstep.protocol._native", ModuleType("_native"))
    monkeypatch.setenv("LOCKSTEP_NATIVE", "1")
    with pytest.raises(ImportError, match="make native"):
        native._load()
