"""Which clients `make interop` could set up here, and where they are."""

import os
from pathlib import Path

import pytest

__all__ = ["BUILD", "ROOT", "jars", "require", "version_of"]

ROOT = Path(__file__).parents[3]
BUILD = ROOT / "build" / "interop"


def require(part: str) -> Path:
    """The folder of a part of scripts/interop/set_up.py. Without it the test fails in CI, is skipped elsewhere."""
    folder = BUILD / part
    if (folder / ".ready").exists():
        return folder
    reason = folder / "missing.txt"
    why = reason.read_text(encoding="utf-8").strip() if reason.exists() else "not set up yet: run `make interop`"
    if os.environ.get("CI"):
        pytest.fail(f"{part}: {why}", pytrace=False)
    pytest.skip(f"{part}: {why}")


def jars(part: str) -> Path:
    """The folder of a part's jars: java for client and mqadmin, java5 for the client 5.x, apache for the servers."""
    return require(part) / "lib"


def version_of(part: str, artifact: str) -> str:
    """The version of a jar, by its file's name: version_of("java", "rocketmq-client")."""
    (jar,) = jars(part).glob(f"{artifact}-[0-9]*.jar")
    return jar.stem.removeprefix(f"{artifact}-")
