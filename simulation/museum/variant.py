"""A variant: methods of the product that are replaced while an exhibit runs, and put back after it."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

__all__ = ["Make", "Variant", "replaced", "variant"]

Make = Callable[[Callable[..., Any]], Callable[..., Any]]
Variant = Callable[[], AbstractContextManager[None]]


@contextmanager
def replaced(owner: type, name: str, make: Make) -> Iterator[None]:
    """Replace the method `name` of a class by `make(original)`."""
    original = vars(owner)[name]
    setattr(owner, name, make(original))
    try:
        yield
    finally:
        setattr(owner, name, original)


def variant(*parts: tuple[type, str, Make]) -> Variant:
    """Return a function that begins the variant; its parts are the class, the method, and `make`."""

    @contextmanager
    def begin() -> Iterator[None]:
        with ExitStack() as stack:
            for owner, name, make in parts:
                stack.enter_context(replaced(owner, name, make))
            yield

    return begin
