"""The arrows of the house: which room or file of a folder imports which, from the imports."""

from collections import defaultdict
from functools import cache

from tests.tidy.source import Source, imported_modules, programs

__all__ = ["Arrows", "arrows"]

# Room or file -> those of the same folder that it imports, with one line that does so.
Arrows = dict[str, dict[str, tuple[Source, int]]]


@cache
def arrows() -> dict[str, Arrows]:
    """The arrows between the children of each folder ("" has the packages): an import counts where two paths part."""
    found: dict[str, Arrows] = defaultdict(lambda: defaultdict(dict))
    for source in programs().values():
        path = source.path.with_suffix("").parts
        for target, line in imported_modules(source):
            other = programs()[target].path.with_suffix("").parts
            depth = next((n for n, (a, b) in enumerate(zip(path, other, strict=False)) if a != b), None)
            if depth is not None:
                here, there = ("/".join(parts[: depth + 1]) for parts in (path, other))
                found["/".join(path[:depth])][here].setdefault(there, (source, line))
    return found
