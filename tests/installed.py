"""The project as a wheel brings it, for tests that run it away from its tree."""

import os
import subprocess
import sys
from pathlib import Path

from tests.tidy.source import PACKAGES, ROOT

__all__ = ["installed"]

COPIED = ["pyproject.toml", "setup.py", "native", "README.md", "LICENSE", *PACKAGES]


def installed(folder: Path) -> Path:
    """A folder with a wheel's files and nothing else, as `pip install --no-deps --target` makes it."""
    site, source = folder / "site", folder / "source"
    source.mkdir()
    for name in COPIED:  # built in a copy, so that the tree gets no build folder
        (source / name).symlink_to(ROOT / name)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--target", str(site)]
    environment = {**os.environ, "LOCKSTEP_NATIVE": "0"}  # the native part has its own build and its own tests
    command = [sys.executable, "-m", "pip", "install", *options, str(source)]
    subprocess.run(command, check=True, timeout=600, env=environment)
    return site
