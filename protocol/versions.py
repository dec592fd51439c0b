"""Names of the version ordinals in headers (wire.md 1.4). Lists of connections show them."""

from collections.abc import Iterator

__all__ = ["version_name", "version_number"]


def _names() -> Iterator[str]:
    """Yield the names in ordinal order. RocketMQ reserves an ordinal for every possible release."""
    yield "V3_0_0_SNAPSHOT"
    yield "V3_0_0_ALPHA1"
    for beta in range(1, 10):
        if beta >= 6:
            yield f"V3_0_0_BETA{beta}_SNAPSHOT"
        yield f"V3_0_0_BETA{beta}"
    yield "V3_0_0_FINAL"
    for minor in range(10):
        first, last = {0: (1, 15), 1: (0, 9), 2: (0, 9)}.get(minor, (1, 9))
        yield from _releases(3, minor, range(first, last + 1))
    for major in (4, 5):
        for minor in range(10):
            yield from _releases(major, minor, range(10))
    yield "HIGHER_VERSION"


def _releases(major: int, minor: int, patches: range) -> Iterator[str]:
    for patch in patches:
        yield f"V{major}_{minor}_{patch}_SNAPSHOT"
        yield f"V{major}_{minor}_{patch}"


_VERSIONS = tuple(_names())


def version_name(ordinal: int) -> str:
    """The name of an ordinal: "V4_9_8" for 409, "HIGHER_VERSION" above the list, the number if negative."""
    return _VERSIONS[min(ordinal, len(_VERSIONS) - 1)] if ordinal >= 0 else str(ordinal)


def version_number(text: str) -> int | None:
    """The ordinal of a release such as "5.1.2"; None: RocketMQ has none for it."""
    name = "V" + text.replace(".", "_")
    return _VERSIONS.index(name) if name in _VERSIONS else None
