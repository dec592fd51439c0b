"""Rooms a reader can see across: file and function lengths, `__init__` files, `__all__`."""

import ast
from collections.abc import Iterator

from tests.tidy.source import ROOT, Source, modules, report, sources

FILE_LINES_MAX = 600
FUNCTION_LINES_MAX = 60
EXAMPLE_LINES_MAX = 25
PARAMETERS_MAX = 9

# What is longer than it may be: "path" or "path::function" -> its lines. Entries only shrink, and go.
RATCHET: dict[str, int] = {
    "examples/fenced_sqlite.py": 71,  # a whole service: its fence, its effects and its end
}

Function = ast.FunctionDef | ast.AsyncFunctionDef
Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def lengths(source: Source) -> Iterator[tuple[str, int, int, int]]:
    """(name, line, length, ceiling) of the file and of every function in it.

    Decorators of a function are not counted.
    """
    file_max = EXAMPLE_LINES_MAX if source.top == "examples" else FILE_LINES_MAX
    yield source.path.as_posix(), 1, len(source.text.splitlines()), file_max
    for node in ast.walk(source.tree):
        if isinstance(node, Function):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            yield f"{source.path.as_posix()}::{node.name}", node.lineno, length, FUNCTION_LINES_MAX


def test_files_and_functions_are_short() -> None:
    """Nothing is longer than its ceiling, or than RATCHET remembers it."""
    offences = [
        source.at(line, f"{name} has {length} lines; at most {RATCHET.get(name, ceiling)}: split it")
        for source in sources()
        for name, line, length, ceiling in lengths(source)
        if length > RATCHET.get(name, ceiling)
    ]
    assert not offences, report(offences)


def test_the_ratchet_only_turns_one_way() -> None:
    """What has become shorter must be remembered shorter, or be forgotten when it fits."""
    actual = {name: (length, ceiling) for source in sources() for name, _, length, ceiling in lengths(source)}
    offences = [
        f"tests/tidy/test_shape.py:1: RATCHET has {remembered} for {name}, which is now {actual.get(name, 'gone')}"
        for name, remembered in RATCHET.items()
        if name not in actual or actual[name][0] < remembered or actual[name][0] <= actual[name][1]
    ]
    assert not offences, report(offences)


def test_functions_have_few_parameters() -> None:
    """More than nine are a value with a name; a constructor names what people give by keyword."""
    offences = [
        source.at(node.lineno, f"{node.name} has {count} parameters; at most {PARAMETERS_MAX}: make a value of some")
        for source in sources()
        for node in ast.walk(source.tree)
        if isinstance(node, Function) and node.name != "__init__"
        if (count := len([*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs])) > PARAMETERS_MAX
    ]
    assert not offences, report(offences)


def test_init_files_only_export() -> None:
    """An `__init__.py` holds its docstring, imports, `__all__`, and at most a dispatch table of what it imports.

    What is imported when first used has its imports under TYPE_CHECKING, and a `__getattr__` where that is not so.
    """
    offences = [
        source.at(node.lineno, "an __init__.py only imports and exports; move this into a module")
        for source in sources()
        if source.path.name == "__init__.py"
        for node in source.tree.body
        if not (isinstance(node, ast.Import | ast.ImportFrom) or is_docstring(node) or is_table(node) or is_lazy(node))
    ]
    assert not offences, report(offences)


def is_docstring(node: ast.stmt) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def is_table(node: ast.stmt) -> bool:
    """`__all__ = [...]`, or an upper-case name bound to a dict literal."""
    match node:
        case ast.Assign(targets=[ast.Name(id="__all__")], value=ast.List()):
            return True
        case ast.Assign(targets=[ast.Name(id=name)], value=ast.Dict()):
            return name.isupper()
        case ast.AnnAssign(target=ast.Name(id=name), value=ast.Dict()):
            return name.isupper()
    return False


def is_lazy(node: ast.stmt) -> bool:
    match node:
        case ast.If(test=ast.Name(id="TYPE_CHECKING"), body=body, orelse=[]):
            return all(isinstance(inner, ast.ImportFrom) for inner in body)
        case ast.If(
            test=ast.UnaryOp(op=ast.Not(), operand=ast.Name(id="TYPE_CHECKING")),
            body=[ast.Assign(targets=[ast.Name(id="__getattr__")], value=ast.Call())],
            orelse=[],
        ):
            return True
    return False


def exported(source: Source) -> tuple[list[str], int] | None:
    """The names in `__all__` and its line, or None where there is none."""
    for node in source.tree.body:
        match node:
            case ast.Assign(targets=[ast.Name(id="__all__")], value=value):
                return list(ast.literal_eval(value)), node.lineno
    return None


def bound_names(source: Source) -> set[str]:
    """What the module's top level binds, branches of an if or a try included."""
    names = {found.bound for found in source.imports}
    pending: list[ast.stmt] = list(source.tree.body)
    while pending:
        node = pending.pop()
        if isinstance(node, Definition):
            names.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign | ast.AugAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names |= {part.id for t in targets for part in ast.walk(t) if isinstance(part, ast.Name)}
        elif isinstance(node, ast.If | ast.Try | ast.For | ast.With):
            pending += [child for child in ast.walk(node) if isinstance(child, ast.stmt) and child is not node]
    return names


def test_all_names_what_is_there() -> None:
    """Each name in `__all__` is bound in the module, once; each public class and function of the module is in it."""
    offences = []
    for source in modules().values():
        if (found := exported(source)) is None:
            continue
        names, line = found
        offences += [
            source.at(line, f"__all__ names {name}, which is not here")
            for name in names
            if name not in bound_names(source)
        ]
        offences += [
            source.at(line, f"__all__ names {name} twice") for name in sorted(set(names)) if names.count(name) > 1
        ]
        offences += [
            source.at(node.lineno, f"{node.name} is public but not in __all__")
            for node in source.tree.body
            if isinstance(node, Definition) and not node.name.startswith("_") and node.name not in names
        ]
    assert not offences, report(offences)


def test_imports_ask_for_what_is_exported() -> None:
    """What one module of ours imports by name from another is in that one's `__all__`, where it has one."""
    offences = []
    for source in sources():
        for found in source.imports:
            target = modules().get(found.module)
            public = exported(target) if target else None
            if (
                found.name
                and public
                and found.name not in public[0]
                and f"{found.module}.{found.name}" not in modules()
            ):
                offences.append(source.at(found.line, f"{found.name} is not in the __all__ of {found.module}"))
    assert not offences, report(offences)


def test_packages_have_init_files() -> None:
    """Every folder of a package that holds modules is a package itself; only `lockstep` is a namespace."""
    offences = [
        f"{source.path}:1: {source.path.parent} has no __init__.py"
        for source in modules().values()
        if not (ROOT / source.path.parent / "__init__.py").exists()
    ]
    assert not offences, report(offences)
