"""Finds the Java for Spark in the places where Spark looks, and checks its version."""

import os
import re
import shutil
import subprocess
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Final

from lockstep.pipeline.errors import PipelineError

__all__ = ["JAVA_OLDEST", "JavaMissing", "find_java"]

JAVA_OLDEST: Final = 17
"""Spark 4 runs on nothing older."""
_ASK_TIMEOUT_S: Final = 30


class JavaMissing(PipelineError):
    """No Java, or one that is too old; the text is one line that says what to do."""


def find_java(environment: Mapping[str, str] = os.environ) -> Path:
    """The Java of JAVA_HOME if that is set, as in Spark, else the one on the PATH. Raises JavaMissing."""
    home = environment.get("JAVA_HOME")
    folder = str(Path(home) / "bin") if home else environment.get("PATH", os.defpath)
    found = shutil.which("java", path=folder)
    if found is None:
        where = f"JAVA_HOME={home} has no bin/java" if home else "no `java` on the PATH, and JAVA_HOME is not set"
        raise JavaMissing(f"Spark needs Java {JAVA_OLDEST} or newer: {where}")
    version = _major_version(found)
    if version is None or version < JAVA_OLDEST:
        has = f"is Java {version}" if version else "does not print its version"
        raise JavaMissing(f"Spark needs Java {JAVA_OLDEST} or newer: {found} {has}")
    return Path(found)


@cache
def _major_version(java: str) -> int | None:
    """17 of `openjdk version "17.0.15"`, 8 of `java version "1.8.0_392"`; None if there is no number."""
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=_ASK_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r'version "(?:1\.)?(\d+)', answer.stderr + answer.stdout)
    return int(found[1]) if found and answer.returncode == 0 else None
