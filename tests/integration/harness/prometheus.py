"""A real Prometheus that scrapes one target, where it is installed (Debian: apt install prometheus)."""

import json
import shutil
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from lockstep.testing.process import ChildProcess
from tests.integration.harness.ports import free_port

__all__ = ["Ask", "prometheus"]

TIMEOUT_S = 60
Ask = Callable[[str, Callable[[float], bool]], None]


@contextmanager
def prometheus(url: str, folder: Path) -> Iterator[Ask]:
    """Scrape `url` each second. The test is skipped where there is no Prometheus.

    Yields a function that waits until a query has a series with a wanted value.
    """
    path = shutil.which("prometheus")
    if path is None:
        pytest.skip("no Prometheus here (apt install prometheus)")
    config, address = folder / "prometheus.yml", f"127.0.0.1:{free_port()}"
    job = {"job_name": "lockstep", "static_configs": [{"targets": [urllib.parse.urlsplit(url).netloc]}]}
    config.write_text(json.dumps({"global": {"scrape_interval": "1s"}, "scrape_configs": [job]}))
    command = [path, f"--config.file={config}", f"--storage.tsdb.path={folder / 'data'}",
               f"--web.listen-address={address}"]  # fmt: skip
    with ChildProcess("prometheus", command, folder) as program:

        def ask(query: str, wanted: Callable[[float], bool]) -> None:
            program.wait_until(lambda: any(map(wanted, _values(address, query))), f"an answer to {query}")

        yield ask


def _values(address: str, query: str) -> list[float]:
    """What it answers at this moment; nothing while it starts."""
    try:
        url = f"http://{address}/api/v1/query?{urllib.parse.urlencode({'query': query})}"
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
            return [float(one["value"][1]) for one in json.load(answer)["data"]["result"]]
    except OSError:
        return []
