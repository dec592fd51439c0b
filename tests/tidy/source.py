"""The tree as data for the tidy tests: every source file, parsed at first use, and every module by its import name."""

import ast
import os
import tomllib
from collections.abc import Iterator
from functools import cache, cached_property
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "protocol", "remoting", "store", "order", "broker", "client", "simulation", "console", "cli", "testing", "pipeline",
)  # fmt: skip
PROGRAMS = ("scripts", "examples", "tests")
GENERATED = {"build", "dist", "__pycache__"}
TEXT_SUFFIXES = {".py", ".md", ".toml", ".txt", ".in", ".sh", ".json", ".yml", ".yaml", ".cfg", ""}


class Import(NamedTuple):
    """One imported name: `from a.b import c as d` is ("a.b", "c", "d"), `import a.b` is ("a.b", None, "a")."""

    module: str
    name: str | None
    bound: str
    line: int


class Source:
    """One Python file of the project."""

    def __init__(self, path: Path) -> None:
        self.path = path.relative_to(ROOT)
        self.text = path.read_text(encoding="utf-8")
        self.top = self.path.parts[0]

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, str(self.path))

    @property
    def module(self) -> str:
        """The import name; programs are named after their path, though only tests are ever imported so."""
        parts = self.path.with_suffix("").parts
        prefix = ("lockstep",) if self.top in PACKAGES else ()
        return ".".join(prefix + (parts[:-1] if parts[-1] == "__init__" else parts))

    def at(self, line: int, message: str) -> str:
        return f"{self.path}:{line}: {message}"

    @cached_property
    def imports(self) -> list[Import]:
        """Every import in the file, wherever it stands; relative ones made absolute."""
        found: list[Import] = []
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    bound = alias.asname or alias.name.split(".")[0]
                    found.append(Import(alias.name, None, bound, node.lineno))
            elif isinstance(node, ast.ImportFrom):
                module = self._absolute(node)
                found += [Import(module, a.name, a.asname or a.name, node.lineno) for a in node.names]
        return found

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        is_package = self.path.name == "__init__.py"
        base = self.module.split(".")[: None if is_package and node.level == 1 else is_package - node.level]
        return ".".join([*base, *([node.module] if node.module else [])])

    @cached_property
    def names(self) -> dict[str, str]:
        """What each imported name stands for: {"t": "time"} after `import time as t`."""
        return {
            found.bound: f"{found.module}.{found.name}"
            if found.name
            else (found.bound if found.bound == found.module.split(".")[0] else found.module)
            for found in self.imports
        }

    def qualified(self, node: ast.AST) -> str | None:
        """The dotted name of a Name or Attribute whose root was imported or is a builtin, else None."""
        trail: list[str] = []
        while isinstance(node, ast.Attribute):
            trail.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return None
        root = self.names.get(node.id, f"builtins.{node.id}" if not trail else None)
        return ".".join([root, *reversed(trail)]) if root else None


def project_files() -> Iterator[Path]:
    """Every file that belongs to the project: generated, hidden and cached folders left out (.ci is kept)."""
    for folder, folders, files in os.walk(ROOT):
        folders[:] = sorted(
            name
            for name in folders
            if name == ".ci" or not (name.startswith(".") or name in GENERATED or name.endswith(".egg-info"))
        )
        yield from (Path(folder, name) for name in sorted(files) if name != ".git")  # a file in a linked work tree


@cache
def texts() -> list[tuple[Path, str]]:
    """Path from the root and content of every text file of the project."""
    return [
        (path.relative_to(ROOT), path.read_text(encoding="utf-8"))
        for path in project_files()
        if path.suffix in TEXT_SUFFIXES
    ]


@cache
def sources() -> list[Source]:
    """Every Python file of packages and programs."""
    tops = PACKAGES + PROGRAMS
    files = [path for path in project_files() if path.suffix == ".py"]
    return [Source(path) for path in files if path.relative_to(ROOT).parts[0] in tops]


@cache
def modules() -> dict[str, Source]:
    """The modules of the packages, by import name: {"lockstep.protocol.frame": Source}."""
    return {source.module: source for source in sources() if source.top in PACKAGES}


@cache
def programs() -> dict[str, Source]:
    """The modules of the packages and of scripts/, by import name."""
    return modules() | {source.module: source for source in sources() if source.top == "scripts"}


def imported_modules(source: Source) -> Iterator[tuple[str, int]]:
    """(module of a package or of scripts/, line) for each import; `from package import module` names the module."""
    for found in source.imports:
        deeper = f"{found.module}.{found.name}"
        if found.name and deeper in programs():
            yield deeper, found.line
        elif found.module in programs():
            yield found.module, found.line


@cache
def pyproject() -> dict[str, Any]:
    return tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


@cache
def entry_points() -> frozenset[str]:
    """Modules that pyproject.toml hands to others: commands, and plugins of other programs."""
    project = pyproject()["project"]
    tables = [project.get("scripts", {}), *project.get("entry-points", {}).values()]
    return frozenset(target.partition(":")[0] for table in tables for target in table.values())


def report(offences: list[str]) -> str:
    """The message of a failed tidy test: one offence a line, each starting with file:line."""
    return "\n" + "\n".join(offences)
