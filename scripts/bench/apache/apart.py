"""The parts of a run that have brokers of their own: start and memory, sends with --flush sync, handovers."""

import os
import socket
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import uvloop

from scripts.bench import cases
from scripts.bench.apache.figures import Case, Measure, in_turns
from scripts.bench.apache.parts import measure_client
from scripts.bench.apache.servers import APACHE, FILES, cpu_s, served
from scripts.bench.handover import Rounds, measure_handover
from tests.interop import handover as java_handover

__all__ = ["Numbers", "measure_handovers", "measure_start", "measure_sync"]

SETTLE_S: Final = 1.0  # until the memory is read
TOPICS: Final = ((cases.SEND_TOPIC, 4),)
Tell = Callable[[str, int], None]
Numbers = dict[str, list[float]]


def measure_start(folder: Path, keys: tuple[str, ...], rounds: int, tell: Tell) -> dict[str, Numbers]:
    """By broker: `seconds` from the start of its processes to the first answer, their `cpu_s`, then `rss_mb`."""
    found: dict[str, Numbers] = {key: {"seconds": [], "cpu_s": [], "rss_mb": []} for key in keys}
    for number in range(rounds):
        for key in keys:
            home = folder / f"start-{number}"
            home.mkdir(exist_ok=True)
            began = time.perf_counter()
            with served(home, (key,), ()) as contenders:
                host, _, port = contenders[key].server.broker.rpartition(":")
                socket.create_connection((host, int(port)), timeout=1).close()
                found[key]["seconds"].append(round(time.perf_counter() - began, 3))
                found[key]["cpu_s"].append(round(sum(map(cpu_s, contenders[key].server.pids)), 2))
                time.sleep(SETTLE_S)
                found[key]["rss_mb"].append(round(sum(map(_rss_mb, contenders[key].server.pids)), 1))
            tell("start and memory", 1)
    return found


def _rss_mb(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGESIZE") / (1 << 20)


# --flush sync ------------------------------------------------------------------------------------------------------


def measure_sync(
    folder: Path, keys: tuple[str, ...], rounds: int, seconds: float, warm_up_s: float, tell: Tell
) -> dict[str, Case]:
    """Sends of our client that are answered when they are on the disk."""
    (folder / "sync").mkdir()
    with served(folder / "sync", keys, TOPICS, flush="sync") as contenders:
        if APACHE in contenders:
            tell("warming up: --flush sync", 0)
            measure_client("send_64", warm_up_s / 2, contenders[APACHE])
        measured: dict[str, dict[str, Measure]] = {
            f"sync_{name}": {key: partial(measure_client, name, seconds, one) for key, one in contenders.items()}
            for name in ("send_64", "send_1")
        }
        return in_turns(measured, rounds, tell)


# Handovers ---------------------------------------------------------------------------------------------------------


def measure_handovers(keys: tuple[str, ...], tell: Tell) -> dict[str, dict[str, float]]:
    """How long queues rest, by broker, in s: when a member joins and leaves, and after a kill of an owner or a broker.

    Apache's broker has Java's clients, ours has our clients with fenced locks; all settings are the defaults.
    """
    found: dict[str, dict[str, float]] = {}
    tell("handovers: our clients, fenced locks", 0)
    ours = uvloop.run(measure_handover(True, Rounds(2, 1, 1)))
    found[FILES] = {
        "planned_p50": round(ours["planned"]["p50_ms"] / 1000, 4),
        "planned_longest": round(ours["planned"]["max_ms"] / 1000, 4),
        "killed": ours["killed"]["max_ms"] / 1000,
        "restart": ours["restart"]["max_ms"] / 1000,
    }
    tell("handovers", 1)
    if APACHE in keys:
        tell("handovers: Java's clients (minutes)", 0)
        theirs = uvloop.run(java_handover.measure(1))
        found[APACHE] = {
            "planned_p50": theirs["planned"]["p50_s"],
            "planned_longest": theirs["planned"]["longest_s"],
            "killed": round(max(theirs["killed"]), 2),
            "restart": round(max(theirs["restart"]), 2),
        }
        tell("handovers", 1)
    return found
