"""Names of a package that are imported on first use, not with the package (PEP 562)."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["lazy_exports"]


def lazy_exports(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """A `__getattr__` for `package`. `modules`: "package.module" -> the names that it exports, separated by spaces."""
    origins = {name: module for module, names in modules.items() for name in names.split()}

    def get(name: str) -> Any:
        module = origins.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(module), name)
        # So that `get` runs once a name.
        setattr(import_module(package), name, value)
        return value

    return get
