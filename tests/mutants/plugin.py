"""A pytest plugin: `--mutant NAME` takes one protection of `tests.mutants.protections` out for this run."""

from contextlib import ExitStack
from typing import Final

import pytest

from tests.mutants.protections import BY_NAME

_WITHOUT: Final = ExitStack()  # until the process ends


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--mutant", help="the protection to take out, by its name in tests/mutants/protections.py")


def pytest_configure(config: pytest.Config) -> None:
    name = config.getoption("--mutant")
    if name is None:
        return
    if name not in BY_NAME:
        raise pytest.UsageError(f"no protection is called {name!r}; tests/mutants/protections.py lists them")
    _WITHOUT.enter_context(BY_NAME[name].taken_out())
