"""A table as one test: it goes through all rows and names every row that fails."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

__all__ = ["each_row"]

SHOWN_MAX = 5  # tracebacks; the names are all there


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
