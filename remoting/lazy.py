"""Names of a package that are imported when they are first asked for, and not with the package (PEP 562)."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__all__ = ["lazy_exports"]


def lazy_exports(package: str, modules: Mapping[str, str]) -> Callable[[str], Any]:
    """A `__getattr__` for `package`. `modules`: "package.module" -> the names that it exports, by spaces."""
    origins = {name: module for module, names in modules.items() for name in names.split()}

    def get(name: str) -> Any:
        module = origins.get(name)
        if module is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(import_module(module), name)
        setattr(import_module(package), name, value)  # so that this is asked once
        return value

    return get
