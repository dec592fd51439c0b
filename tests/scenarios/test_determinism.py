"""Equal seeds make equal runs, of every scenario, in any process; other seeds make others; nothing escapes."""

import asyncio
import os
import random
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lockstep.client import ConsumeOrderlyContext, MessageExt, SerializeType
from lockstep.simulation import NondeterminismError
from tests.scenarios.all_hashes import load
from tests.scenarios.cluster import Cluster
from tests.scenarios.scenario import ENCODINGS, HASHES, INSTANT, SEED, STORIES, Mode, Scenario

ROOT = Path(__file__).parents[2]


def start(hash_seed: int, *arguments: str) -> "subprocess.Popen[str]":
    """A process of its own that runs all scenarios and prints their hashes."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.scenarios.all_hashes", *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        stdout=subprocess.PIPE,
        text=True,
    )


def hashes(process: "subprocess.Popen[str]") -> dict[tuple[str, str], str]:
    """(scenario, mode) -> hash, once the process has ended well."""
    output, _ = process.communicate()
    assert process.returncode == 0
    return read(output)


def read(lines: str) -> dict[tuple[str, str], str]:
    return {(name, mode): digest for name, mode, _, digest in map(str.split, lines.splitlines())}


def recorded() -> dict[tuple[str, str], str]:
    """What the tests of this check's earlier step wrote, if it had one."""
    return read(Path(HASHES).read_text(encoding="utf-8")) if HASHES and Path(HASHES).exists() else {}


@pytest.mark.timeout(600)
def test_every_scenario_is_the_same_in_every_process() -> None:
    """Two processes with different PYTHONHASHSEED get the same trace hash for each scenario."""
    load()
    first, second = recorded(), dict[tuple[str, str], str]()
    if first:  # the tests themselves were the first process
        with start(2, "--like", str(HASHES)) as other:
            second = hashes(other)
    if missing := sorted(set(STORIES) - {name for name, _ in first}):
        with start(1, *missing) as one, start(2, *missing) as other:  # at the same time
            first, second = first | hashes(one), second | hashes(other)
    assert sorted({name for name, _ in first}) == sorted(STORIES)
    assert {encoding.name for encoding in ENCODINGS} <= {mode for _, mode in first}
    assert len(STORIES) >= 190
    assert first == second


@pytest.mark.timeout(300)
@pytest.mark.parametrize("path", sorted(Path(__file__).parent.rglob("test_*.py")), ids=lambda path: path.stem)
def test_another_seed_makes_another_run(path: Path) -> None:
    """Each scenario of a file holds under another seed too; its trace is another one then, if its network draws
    latencies."""
    load()
    stories = [story for name, story in STORIES.items() if name.startswith(f"{path.stem.removeprefix('test_')}.")]
    known = recorded()
    mode = Mode(SerializeType.MSGPACK)
    for story in stories:
        first = known.get((story.name, mode.name)) or story.run(mode).trace_hash
        other = story.run(mode, SEED + 1)
        draws = story.options is not INSTANT and any("  data  " in line for line in other.trace)
        assert not draws or first != other.trace_hash, story.name


NONDETERMINISTIC: dict[str, Callable[[], object]] = {
    "real time": lambda: time.time(),
    "a thread": lambda: threading.Thread(target=int).start(),
    "the default executor": lambda: asyncio.get_running_loop().run_in_executor(None, int),
    "a socket": lambda: socket.socket(),
    "global random": lambda: random.random(),
    "the system's random": lambda: os.urandom(8),
}


@pytest.mark.parametrize("call", NONDETERMINISTIC.values(), ids=NONDETERMINISTIC)
def test_a_nondeterministic_listener_fails_its_scenario(call: Callable[[], object]) -> None:
    """A listener that uses the real clock or another thing outside the Runtime fails the scenario, although a consumer
    survives a listener's exception."""

    def answer(_: MessageExt, __: ConsumeOrderlyContext) -> None:
        call()

    async def story(cluster: Cluster) -> None:
        await cluster.broker_and_producer(queues=1)
        await cluster.consumer("c1", answer=answer)
        await cluster.send()
        await cluster.world.sleep_ms(30_000)

    with pytest.raises(NondeterminismError, match=r"bypasses the simulation|does not exist on virtual time"):
        Scenario("an escape", story, None).run(Mode(SerializeType.MSGPACK))


def test_a_listener_that_behaves_passes() -> None:
    """The same scenario without that passes: the tests above fail for the reason that they name."""

    async def story(cluster: Cluster) -> None:
        await cluster.broker_and_producer(queues=1)
        await cluster.consumer("c1", answer=lambda _message, _context: None)
        await cluster.send()
        await cluster.world.sleep_ms(30_000)

    Scenario("no escape", story, None).run(Mode(SerializeType.MSGPACK))
