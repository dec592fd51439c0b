"""`lockstep.client` exports its public names, and imports none of them before first use."""

import subprocess
import sys
import typing

import pytest

import lockstep.client
from tests.rows import by_row
from tests.tidy.source import modules


@by_row("name", lockstep.client.__all__)
def test_every_export_is_there(name: str) -> None:
    """Each name of `__all__` is the object of that name in the module that defines it."""
    (module,) = [module for module, names in lockstep.client.EXPORTS.items() if name in names.split()]
    assert getattr(lockstep.client, name) is getattr(sys.modules[module], name)


def test_type_checkers_see_the_same() -> None:
    """The imports that only type checkers follow, the table and `__all__` name the same things."""
    imported = {
        (found.module, found.name)
        for found in modules()["lockstep.client"].imports
        if found.module.startswith("lockstep.") and found.name != "lazy_exports"
    }
    table = {(module, name) for module, names in lockstep.client.EXPORTS.items() for name in names.split()}
    assert imported == table
    assert sorted(name for _, name in table) == sorted(lockstep.client.__all__)


def test_the_package_alone_imports_next_to_nothing() -> None:
    """No asyncio, and no module of the client."""
    program = "import sys, lockstep.client; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120, check=True)
    names = set(done.stdout.split())
    assert "asyncio" not in names
    assert {name for name in names if name.startswith("lockstep.")} == {
        "lockstep.client",
        "lockstep.remoting",
        "lockstep.remoting.lazy",
    }


def test_a_name_that_is_not_exported_is_an_attribute_error() -> None:
    """As of any module, with the name in the text."""
    client: typing.Any = lockstep.client
    with pytest.raises(AttributeError, match="Nothing"):
        _ = client.Nothing
