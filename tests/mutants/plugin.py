"""A pytest plugin: `--mutant NAME` switches one protection of `tests.mutants.protections` off for this run.

The module that holds the protection is compiled from its changed text when it is imported; no file is written. Load
the plugin with `-p tests.mutants.plugin`, so that it stands before anything of Lockstep is imported.
"""

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType

import pytest

from tests.mutants.protections import PROTECTIONS, Protection


class MutantLoader(SourceFileLoader):
    """Loads one module from its source with a protection taken out; nothing is cached."""

    def __init__(self, fullname: str, path: str, protection: Protection) -> None:
        super().__init__(fullname, path)
        self._protection = protection

    def get_code(self, fullname: str) -> CodeType:
        source = self._protection.mutate(self.get_data(self.path).decode("utf-8"))
        return compile(source, self.path, "exec", dont_inherit=True)


class MutantFinder(MetaPathFinder):
    """Finds the module of one protection, and leaves every other one to Python."""

    def __init__(self, protection: Protection) -> None:
        self._protection = protection
        self.loaded = False

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._protection.module:
            return None
        for finder in sys.meta_path:
            spec = finder.find_spec(fullname, path, target) if finder is not self else None
            if spec is not None and spec.origin is not None:
                spec.loader = MutantLoader(fullname, spec.origin, self._protection)
                spec.cached = None
                self.loaded = True
                return spec
        return None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--mutant", help="the protection to take out, by its name in tests/mutants/protections.py")


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before conftest files, which import Lockstep."""
    name = early_config.known_args_namespace.mutant
    if name is None:
        return
    protection = next((protection for protection in PROTECTIONS if protection.name == name), None)
    if protection is None:
        raise pytest.UsageError(f"no protection is called {name!r}; tests/mutants/protections.py lists them")
    if protection.module in sys.modules:
        raise pytest.UsageError(f"{protection.module} is imported already: the plugin came too late to change it")
    sys.meta_path.insert(0, MutantFinder(protection))
