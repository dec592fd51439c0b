"""A Java for Spark is found where Spark would look, and one that does not do is named in one line."""

from pathlib import Path

import pytest

from lockstep.pipeline.spark.java import JavaMissing, find_java

SAID = [
    ('openjdk version "17.0.15" 2025-04-15', None),
    ('openjdk version "21" 2023-09-19', None),
    ('java version "1.8.0_392"', "is Java 8"),
    ('openjdk version "11.0.2"', "is Java 11"),
    ("no JVM here", "does not print its version"),
]


def java_that_says(folder: Path, text: str) -> Path:
    """A `java` that says this on stderr, as Java does."""
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(f"#!/bin/sh\necho '{text}' >&2\n", encoding="utf-8")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(("text", "wrong"), SAID, ids=[text for text, _ in SAID])
def test_a_java_must_be_17_or_newer(tmp_path: Path, text: str, wrong: str | None) -> None:
    """Old names of versions count too: 1.8 is Java 8."""
    path = java_that_says(tmp_path, text)
    environment = {"PATH": str(path.parent)}
    if wrong is None:
        assert find_java(environment) == path
        return
    with pytest.raises(JavaMissing, match=wrong) as raised:
        find_java(environment)
    assert "\n" not in str(raised.value)


def test_java_home_wins_over_the_path(tmp_path: Path) -> None:
    """As Spark's own scripts have it; a JAVA_HOME without Java is an error even where the PATH has one."""
    home = java_that_says(tmp_path / "home", 'openjdk version "21"')
    other = java_that_says(tmp_path / "other", 'openjdk version "17"')
    assert find_java({"JAVA_HOME": str(tmp_path / "home"), "PATH": str(other.parent)}) == home
    with pytest.raises(JavaMissing, match="has no bin/java"):
        find_java({"JAVA_HOME": str(tmp_path), "PATH": str(other.parent)})


def test_no_java_at_all_is_said(tmp_path: Path) -> None:
    """In one line that names both places."""
    with pytest.raises(JavaMissing, match="no `java` on the PATH, and JAVA_HOME is not set"):
        find_java({"PATH": str(tmp_path)})
