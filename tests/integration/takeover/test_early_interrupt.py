"""Ctrl-C while a command is still importing: no traceback, and status 130."""

import subprocess
import sys

import pytest

# The Ctrl-C comes at the moment that a module is looked for, whatever the machine's speed.
PROGRAM = """
import importlib, os, signal, sys

class Interrupt:
    def find_spec(self, name, path=None, target=None):
        if name == wanted:
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)
module, wanted, *arguments = sys.argv[1:]
sys.meta_path.insert(0, Interrupt())
main = importlib.import_module(module).main
sys.argv = ["command", *arguments]
main()
"""


@pytest.mark.parametrize(
    ("module", "wanted", "arguments"),
    [
        ("lockstep.cli.app", "typer", "topic list"),
        ("lockstep.cli.app", "asyncio", "topic list"),
        ("lockstep.cli.app", "lockstep.cli.store.inspect", "store inspect nowhere"),
        ("lockstep.broker.__main__", "asyncio", ""),
        ("lockstep.broker.__main__", "lockstep.broker.server", ""),
    ],
)
def test_an_interrupt_among_the_imports_ends_at_once(module: str, wanted: str, arguments: str) -> None:
    """The command had not begun, so it prints nothing."""
    command = [sys.executable, "-c", PROGRAM, module, wanted, *arguments.split()]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")
