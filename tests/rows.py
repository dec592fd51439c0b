"""A table as one test: it goes through all rows and names every row that fails.

A test that is a table from end to end takes `@by_row` in place of `@pytest.mark.parametrize`; what it asks of fixtures
is made once and shared by its rows. `each_row` is for a table inside a test.
"""

import functools
import inspect
import reprlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import pytest

__all__ = ["by_row", "each_row"]

SHOWN_MAX = 5  # tracebacks; the names are all there
_SHORT = reprlib.Repr()  # a row may have a megabyte
_SHORT.maxstring = _SHORT.maxother = _SHORT.maxlong = 80
_SHORT.maxtuple = _SHORT.maxlist = _SHORT.maxdict = 8


@contextmanager
def each_row() -> Iterator[Callable[[object], AbstractContextManager[None]]]:
    """`with each_row() as row:`, and inside `with row(name):` for each row. A row that fails does not end the test.

    Raises:
        ExceptionGroup: At the end, with the names of all rows that failed and the first errors.
        AssertionError: When there was no row.
    """
    names: list[str] = []
    errors: dict[str, BaseException] = {}

    @contextmanager
    def row(name: object) -> Iterator[None]:
        names.append(str(name))
        try:
            yield
        except (Exception, pytest.fail.Exception) as error:  # the second is how pytest.raises fails, and no Exception
            error.add_note(f"row: {name}")
            errors[str(name)] = error

    yield row
    assert names, "the table has no rows"
    if errors:
        failed = "; ".join(errors)
        message = f"{len(errors)} of {len(names)} rows failed: {failed}"
        raise BaseExceptionGroup(message, list(errors.values())[:SHOWN_MAX])


def by_row(
    names: str, rows: Iterable[Any], *, ids: Sequence[str] | None = None
) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Call the test once for each row.

    Args:
        names: The arguments that a row gives, as `parametrize` takes them.
        rows: A value each, or a tuple of values if there are several names, or a `pytest.param`.
        ids: What the rows are called when they fail; without it their values.
    """
    arguments = [name.strip() for name in names.split(",")]
    table = list(rows)
    names_of_rows = ids if ids is not None else list(map(_name, table))
    values_of_rows = [dict(zip(arguments, _values(row, len(arguments)), strict=True)) for row in table]

    def decorate(test: Callable[..., Any]) -> Callable[..., Any]:
        def all_rows(**fixtures: Any) -> None:
            with each_row() as row:
                for name, values in zip(names_of_rows, values_of_rows, strict=True):
                    with row(name):
                        test(**values, **fixtures)

        async def all_rows_async(**fixtures: Any) -> None:
            with each_row() as row:
                for name, values in zip(names_of_rows, values_of_rows, strict=True):
                    with row(name):
                        await test(**values, **fixtures)

        whole = functools.update_wrapper(all_rows_async if inspect.iscoroutinefunction(test) else all_rows, test)
        for drawn in ("hypothesis", "is_hypothesis_test"):  # the test of a row may draw examples; the whole does not
            whole.__dict__.pop(drawn, None)
        fixtures = [value for name, value in inspect.signature(test).parameters.items() if name not in arguments]
        whole.__dict__["__signature__"] = inspect.Signature(fixtures)
        return whole

    return decorate


def _values(row: Any, count: int) -> Sequence[Any]:
    if isinstance(row, type(pytest.param())):
        return row.values
    return row if count > 1 else (row,)


def _name(row: Any) -> str:
    if isinstance(row, type(pytest.param())) and row.id:
        return str(row.id)
    return getattr(row, "__name__", None) or _SHORT.repr(row)
