"""A variant: the product without one of its rules, while something runs; all is put back after it.

Exhibits of the museum and the mutants of the tests are variants. Three kinds of parts make one:

replaced   a method becomes another function, made from the original
edited     a part of the code of a function becomes other code
put        a constant, or a row of a table, gets another value
"""

import ast
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from copy import deepcopy
from functools import cache, partial
from importlib import import_module
from inspect import unwrap
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any, NamedTuple

__all__ = ["Make", "Variant", "VariantError", "edited", "put", "replaced", "variant"]

Make = Callable[[Callable[..., Any]], Callable[..., Any]]
Variant = Callable[[], AbstractContextManager[None]]
_Function = ast.FunctionDef | ast.AsyncFunctionDef


class VariantError(ValueError):
    """The code that a variant changes is not there, or is there more than once, or would stay the same."""


def variant(*parts: Variant) -> Variant:
    """Return a variant that begins all parts."""

    @contextmanager
    def begin() -> Iterator[None]:
        with ExitStack() as stack:
            for part in parts:
                stack.enter_context(part())
            yield

    return begin


def replaced(owner: type, name: str, make: Make) -> Variant:
    """The method `name` of a class is `make(original)`."""

    @contextmanager
    def begin() -> Iterator[None]:
        original = vars(owner)[name]
        setattr(owner, name, make(original))
        try:
            yield
        finally:
            setattr(owner, name, original)

    return begin


def put(module: str, target: str, value: str) -> Variant:
    """A constant of a module, or a row of a table in it, has another value.

    Args:
        module: its full name.
        target: what stands left of an assignment, and has a value already: `_LIMIT`, `TABLE[KEY]`.
        value: an expression, in the names of the module.
    """

    @contextmanager
    def begin() -> Iterator[None]:
        names = vars(import_module(module))
        try:
            original = eval(target, names)
        except (NameError, KeyError) as error:
            raise VariantError(f"{module} has no {target}: {error!r}") from None
        name = target.partition("[")[0].partition(".")[0]
        assign = partial(exec, f"global {name}; {target} = value", names)
        changed = eval(value, names)
        if changed == original:
            raise VariantError(f"{module}: {target} is {value} already")
        assign({"value": changed})
        try:
            yield
        finally:
            assign({"value": original})

    return begin


# Edited code ----------------------------------------------------------------------------------------------------------


class _Place(NamedTuple):
    """A function in its source.

    Args:
        owners: the classes around it, the outermost first.
        node: its tree, a copy that may be changed.
    """

    function: Any  # a FunctionType; as such a type checker takes it for a method
    owners: tuple[str, ...]
    node: _Function


def edited(module: str, function: str, old: str, new: str) -> Variant:
    """A function runs with a part of its code changed, wherever it is called from.

    The code is compared as trees: lines, spaces, quotes and comments do not matter, nor does the rest of the function.

    Args:
        module: its full name.
        function: its name in the module: `Class.method`.
        old: an expression, or statements that follow each other. It stands once in the body of the function.
        new: what is there instead; empty for statements that are left out.
    """

    @contextmanager
    def begin() -> Iterator[None]:
        place = _find(module, function)
        _edit(place.node, old, new, f"{module}:{function}")
        changed, original = place.function, place.function.__code__
        changed.__code__ = _compiled(place)
        try:
            yield
        finally:
            changed.__code__ = original

    return begin


def _find(module: str, path: str) -> _Place:
    """Raises VariantError when there is no such function."""
    where = f"{module}:{path}"
    *owners, name = path.split(".")
    found: Any = import_module(module)
    try:
        for part in owners:
            found = getattr(found, part)
        found = vars(found)[name]
    except (AttributeError, KeyError):
        raise VariantError(f"{where}: there is no such function") from None
    for holder in ("fget", "func", "__func__"):  # of a property, a cached property, a class method
        found = getattr(found, holder, None) or found
    function = unwrap(found)
    if not isinstance(function, FunctionType):
        raise VariantError(f"{where} is no function of Python")
    line = function.__code__.co_firstlineno
    for node in ast.walk(_tree(function.__code__.co_filename)):
        if isinstance(node, _Function) and node.name == function.__code__.co_name and _first_line(node) == line:
            return _Place(function, tuple(owners), deepcopy(node))
    raise VariantError(f"{where}: its source is not where it was")


def _edit(function: _Function, old: str, new: str, where: str) -> None:
    """Change the tree of a function. Raises VariantError."""
    before, after = ast.parse(old).body, ast.parse(new).body
    if _texts(before) == _texts(after):
        raise VariantError(f"{where}: {old!r} would stay as it is")
    old_part, new_part = _expression(before), _expression(after)
    if old_part is not None and new_part is not None:
        changes = list(_of_expression(function, old_part, new_part))
    else:
        changes = list(_of_statements(function, before, after))
    if len(changes) != 1:
        raise VariantError(f"{where} has {old!r} {len(changes)} times, and must have it once")
    changes[0]()


def _expression(code: list[ast.stmt]) -> ast.expr | None:
    """The expression that the code is; None: it is statements."""
    return code[0].value if len(code) == 1 and isinstance(code[0], ast.Expr) else None


def _of_expression(function: _Function, old: ast.expr, new: ast.expr) -> Iterator[Callable[[], None]]:
    """A change for each place where the expression stands."""
    text = ast.unparse(old)
    for holder in (one for statement in function.body for one in ast.walk(statement)):
        for field, value in ast.iter_fields(holder):
            if isinstance(value, ast.expr) and ast.unparse(value) == text:
                yield partial(setattr, holder, field, _at(value, new))
            elif isinstance(value, list):
                for number, one in enumerate(value):
                    if isinstance(one, ast.expr) and ast.unparse(one) == text:
                        yield partial(value.__setitem__, number, _at(one, new))


def _of_statements(function: _Function, old: list[ast.stmt], new: list[ast.stmt]) -> Iterator[Callable[[], None]]:
    """A change for each place where the statements stand."""
    texts = _texts(old)
    for holder in (function, *(one for statement in function.body for one in ast.walk(statement))):
        for _, block in ast.iter_fields(holder):
            if not isinstance(block, list) or not block or not isinstance(block[0], ast.stmt):
                continue
            for first in range(len(block) - len(old) + 1):
                here = slice(first, first + len(old))
                if _texts(block[here]) == texts:
                    instead = [ast.Pass()] if not new and len(block) == len(old) else new
                    yield partial(block.__setitem__, here, [_at(block[first], one) for one in instead])


def _at(old: ast.AST, new: Any) -> Any:
    """The new code, as if it stood in the line of the old."""
    for node in ast.walk(new):
        ast.copy_location(node, old)
    return new


def _texts(nodes: list[ast.stmt]) -> list[str]:
    return [ast.unparse(node) for node in nodes]


def _compiled(place: _Place) -> CodeType:
    """The code of a function. Its classes stand around it, for `super()` and for names with two underscores."""
    body: list[ast.stmt] = [place.node]
    for owner in reversed(place.owners):
        body = [ast.ClassDef(owner, [], [], body, [])]
    original = place.function.__code__
    tree = ast.fix_missing_locations(ast.Module(body, []))
    found = next(
        code
        for code in _codes(compile(tree, original.co_filename, "exec", dont_inherit=True))
        if (code.co_name, code.co_firstlineno) == (original.co_name, original.co_firstlineno)
    )
    if found.co_freevars != original.co_freevars:
        raise VariantError(f"{original.co_qualname} would use other names of what is around it")
    return found


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _codes(one)


@cache
def _tree(path: str) -> ast.Module:
    return ast.parse(Path(path).read_text(encoding="utf-8"))


def _first_line(node: _Function) -> int:
    return min([node.lineno, *(one.lineno for one in node.decorator_list)])
