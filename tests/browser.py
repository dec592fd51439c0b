"""Pages in a real browser: headless Chromium runs a script in a page, and says what the script found."""

import json
import os
import re
import shutil
import subprocess
from html import unescape
from pathlib import Path
from typing import Any, Final

import pytest

from tests.commands import TIMEOUT_S

__all__ = ["BROWSER", "NEEDS_BROWSER", "needed_arguments", "said_by"]

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
BROWSER: Final = next(filter(None, map(shutil.which, _NAMES)), None)
_QUIET: Final = ("--headless", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
                 "--disable-component-update", "--disable-sync")  # fmt: skip
_SAYS: Final = """
const results = {};
ACTS
const said = document.createElement("pre");
said.id = "results";
said.textContent = JSON.stringify(results);
document.body.append(said);
"""

NEEDS_BROWSER: Final = pytest.mark.skipif(BROWSER is None, reason="no Chromium here (apt install chromium)")


def needed_arguments() -> tuple[str, ...]:
    """What Chromium needs to start here: root has no sandbox."""
    return () if os.geteuid() else ("--no-sandbox",)


def said_by(folder: Path, text: str, acts: str, width: int = 1280) -> dict[str, Any]:
    """Load a page, run the script `acts` in it, and return what that has put into the object `results`."""
    path = folder / "page.html"
    head, found_end, tail = text.rpartition("</body>")
    path.write_text(f"{head}<script>{_SAYS.replace('ACTS', acts)}</script>{found_end}{tail}", encoding="utf-8")
    command = [str(BROWSER), *_QUIET, *needed_arguments(), f"--user-data-dir={folder / 'profile'}",
               f"--window-size={width},900", "--dump-dom", path.as_uri()]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    found = re.search(r'<pre id="results">(.*?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    results: dict[str, Any] = json.loads(unescape(found[1]))
    return results
