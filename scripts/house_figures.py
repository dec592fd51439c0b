"""Sizes of the source tree as a table: files a folder, lines, functions, parameters, imports.

    python scripts/house_figures.py [[NAME=]FOLDER ...]

Each FOLDER is a checkout; each becomes a column, so that a tree can be laid beside an earlier one
(`git archive COMMIT | tar -x -C FOLDER`). Without a folder it is this checkout. Packages are counted; tests, examples
and scripts are in rows of their own.
"""

import argparse
import ast
import io
import tokenize
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

PACKAGES = (
    "protocol", "remoting", "store", "order", "broker", "client", "simulation", "console", "cli", "testing", "pipeline",
)  # fmt: skip
MANY_PARAMETERS = 8
SMALL_FILE = 60
LAYOUT = frozenset({tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER})
Function = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass
class Figures:
    """What was counted in some Python files, a number a file or a function."""

    folders: Counter[str] = field(default_factory=Counter)  # files in each
    lines: list[int] = field(default_factory=list)
    code_lines: int = 0  # without blank lines, comments and docstrings
    comment_lines: int = 0
    import_lines: int = 0
    internal_imports: list[int] = field(default_factory=list)  # modules of ours that a file imports
    function_lines: list[int] = field(default_factory=list)
    parameters: list[int] = field(default_factory=list)  # without self and cls

    def add(self, path: Path, folder: str) -> None:
        """Count one file."""
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        self.folders[folder] += 1
        self.lines.append(len(text.splitlines()))
        code, comments = code_and_comments(text, tree)
        self.code_lines += code
        self.comment_lines += comments
        modules = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.Import | ast.ImportFrom):
                self.import_lines += (node.end_lineno or node.lineno) - node.lineno + 1
                modules |= {name for name in imported(node) if name.startswith("lockstep.")}
            elif isinstance(node, Function):
                self.function_lines.append((node.end_lineno or node.lineno) - node.lineno + 1)
                given = node.args.posonlyargs + node.args.args + node.args.kwonlyargs
                self.parameters.append(sum(argument.arg not in ("self", "cls") for argument in given))
        self.internal_imports.append(len(modules))


def imported(node: ast.Import | ast.ImportFrom) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""]


def code_and_comments(text: str, tree: ast.Module) -> tuple[int, int]:
    """Lines that hold code, docstrings left out, and lines that hold nothing but a comment."""
    docstrings: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            docstrings |= set(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    code: set[int] = set()
    comments: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            comments.add(token.start[0])
        elif token.type not in LAYOUT:
            code |= set(range(token.start[0], token.end[0] + 1))
    return len(code - docstrings), len(comments - code)


def count(root: Path, tops: Iterable[str]) -> Figures:
    """The Python files below these folders of a checkout."""
    figures = Figures()
    for top in tops:
        for path in sorted((root / top).rglob("*.py")):
            parts = path.relative_to(root).parts
            if not any(part.startswith(".") or part in ("build", "__pycache__") for part in parts):
                figures.add(path, "/".join(parts[:-1]))
    return figures


def at(numbers: Sequence[int], share: float) -> int:
    """The number that this share of all numbers does not exceed."""
    return sorted(numbers)[min(int(share * len(numbers)), len(numbers) - 1)] if numbers else 0


def spread(numbers: Sequence[int]) -> str:
    return f"{at(numbers, 0.5)} / {at(numbers, 0.9)} / {max(numbers, default=0)}"


def percent(part: int, whole: int) -> str:
    return f"{100 * part / max(whole, 1):.1f} %"


def column(root: Path) -> dict[str, str]:
    """Each row's name and its figure in one checkout."""
    of = count(root, PACKAGES)
    room, most = of.folders.most_common(1)[0]
    lines = sum(of.lines)
    small = sum(number < SMALL_FILE for number in of.lines)
    scripts = count(root, ["scripts"]).folders
    return {
        "files; folders": f"{len(of.lines)}; {len(of.folders)}",
        "largest folder": f"{most} files (`{room}/`)",
        "largest folder of scripts": f"{max(scripts.values(), default=0)} files",
        "lines": f"{lines:,}",
        "lines of code, without docstrings and comments": f"{of.code_lines:,}",
        "lines of a file: median / p90 / max": spread(of.lines),
        f"files under {SMALL_FILE} lines": percent(small, len(of.lines)),
        "lines of a function: median / p90 / max": spread(of.function_lines),
        "parameters of a function: p90 / max": f"{at(of.parameters, 0.9)} / {max(of.parameters)}",
        f"functions with {MANY_PARAMETERS} parameters or more": str(
            sum(number >= MANY_PARAMETERS for number in of.parameters)
        ),
        "lines that import": percent(of.import_lines, lines),
        "modules of ours that a file imports: median / p90": " / ".join(
            str(at(of.internal_imports, share)) for share in (0.5, 0.9)
        ),
        "lines that are comments": f"{of.comment_lines} ({percent(of.comment_lines, lines)})",
        "lines of code in tests": f"{count(root, ['tests']).code_lines:,}",
        "README": f"{(root / 'README.md').stat().st_size:,} bytes",
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="Sizes of the source tree as a table.")
    parser.add_argument("trees", nargs="*", metavar="[NAME=]FOLDER", help="checkouts, a column each; none: this one")
    given = [argument.rpartition("=") for argument in parser.parse_args().trees]
    trees = [(name or folder, Path(folder)) for name, _, folder in given] or [("now", Path(__file__).parents[1])]
    for _, root in trees:
        if not (root / "README.md").is_file():
            parser.error(f"{root} is no checkout of this project: it has no README.md")
    columns = [(name, column(root)) for name, root in trees]
    print(f"| | {' | '.join(name for name, _ in columns)} |")
    print("|---" * (len(columns) + 1) + "|")
    for row in columns[0][1]:
        print(f"| {row} | {' | '.join(figures[row] for _, figures in columns)} |")


if __name__ == "__main__":
    main()
