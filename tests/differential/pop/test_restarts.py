"""What of order outlives a broker that is killed: the same on RocketMQ 5.5's and ours (docs/wire.md 18.3)."""

import os
import re
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Final

import pytest

from tests.differential.pop.player import Scene
from tests.differential.side import address
from tests.interop.harness.servers import Server, apache_server, lockstep_server

pytestmark = [pytest.mark.long, pytest.mark.timeout(540)]
POLL_S: Final = 0.1
WRITTEN_S: Final = 60.0  # RocketMQ writes order records every 10 s, ours every 5 s
SECOND_IS_ACKNOWLEDGED: Final = re.compile(r'"cm"\s*:\s*2\b')
HOLD_S: Final = 300.0


@contextmanager
def killed_at_the_end(server: AbstractContextManager[Server]) -> Iterator[Server]:
    with server as running:
        yield running
        os.kill(running.pids[0], signal.SIGKILL)


def wait_until_written(record: Path) -> None:
    deadline = time.monotonic() + WRITTEN_S
    while not (record.exists() and SECOND_IS_ACKNOWLEDGED.search(record.read_text(encoding="utf-8"))):
        assert time.monotonic() < deadline, f"no record in {record}"
        threading.Event().wait(POLL_S)


def seen(start: Callable[[], AbstractContextManager[Server]], record: Path) -> list[Any]:
    """What a broker says before and after two kills. `record`: its file."""
    found: list[Any] = []
    with start() as server:
        scene = scene_on(server)
        scene.send("m0", "m1", "m2", "m3")
        client = scene.client()
        given = client.pop(2, invisible_s=HOLD_S)
        found += [given.bodies, client.ack(given.receipts["m1"]), client.committed()]
        wait_until_written(record)
        scene.close()
    kept = {path: path.read_bytes() for path in record.parent.iterdir() if path.is_file()}
    with start() as server:
        scene = scene_on(server)
        client = scene.client()
        found += ["kept", client.pop(2).bodies, client.ack(given.receipts["m0"]), client.committed()]
        given = client.pop(2, invisible_s=HOLD_S)
        found += [given.bodies, client.ack(given.receipts["m3"])]
        scene.close()
    # What comes next is of a broker that was killed before it wrote this; whether it was is a matter of its clock.
    for path, data in kept.items():
        path.write_bytes(data)
    with start() as server:
        scene = scene_on(server)
        client = scene.client()
        again = client.pop(2, poll_s=1)
        found += ["lost", again.bodies, again.counts, client.ack(given.receipts["m2"]), client.pop(2).bodies]
        scene.close()
    return found


def scene_on(server: Server) -> Scene:
    return Scene(address(server.broker), "restarts", 1, in_order=True)


def test_a_kill_keeps_and_loses_the_same(tmp_path: Path) -> None:
    """A record that was written blocks as before, and old receipts count; one that was not is gone."""
    theirs, ours = tmp_path / "apache", tmp_path / "lockstep"
    for folder in (theirs, ours):
        folder.mkdir()
    starts = (
        lambda: apache_server(theirs, part="apache5"),
        lambda: killed_at_the_end(lockstep_server(ours, "--data-dir", str(ours / "data"))),
    )
    records = [folder / "config" / "consumerOrderInfo.json" for folder in (theirs / "store", ours / "data")]
    with ThreadPoolExecutor(2) as pool:
        apache, lockstep = pool.map(seen, starts, records)
    assert lockstep == apache
    assert "kept" in lockstep
