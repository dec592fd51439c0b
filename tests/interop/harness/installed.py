"""Which clients `make interop` could set up here, and where they are."""

import os
from pathlib import Path

import pytest

__all__ = ["BUILD", "ROOT", "jars", "require", "version_of"]

ROOT = Path(__file__).parents[3]
BUILD = ROOT / "build" / "interop"
NOT_IN_CI = frozenset({"rust5"})  # it compiles for minutes, and more on a slow machine


def require(part: str) -> Path:
    """The folder of a part of scripts/interop/set_up.py. Without it the test is skipped; in CI it fails.

    What is NOT_IN_CI is skipped there too.
    """
    folder = BUILD / part
    if (folder / ".ready").exists():
        return folder
    reason = folder / "missing.txt"
    why = reason.read_text(encoding="utf-8").strip() if reason.exists() else "not set up yet: run `make interop`"
    if os.environ.get("CI") and part not in NOT_IN_CI:
        pytest.fail(f"{part}: {why}", pytrace=False)
    pytest.skip(f"{part}: {why}")


def jars(part: str) -> Path:
    """The folder of a part's jars: java for client and mqadmin, java5 for the client 5.x, apache for the servers."""
    return require(part) / "lib"


def version_of(part: str, artifact: str) -> str:
    """The version of a jar, by its file's name: version_of("java", "rocketmq-client")."""
    (jar,) = jars(part).glob(f"{artifact}-[0-9]*.jar")
    return jar.stem.removeprefix(f"{artifact}-")
