"""One attack against a broker process of its own, beside a quiet probe: the worst stall and the peak of memory."""

import asyncio
import json
import re
import sys
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from broker_process import end_process
from hostile_peer import Target

__all__ = ["Attack", "Findings", "run_attack"]

MIB = 1024 * 1024
_LISTENING = re.compile(rb"listening broker=\S+:(\d+) name-server=\S+:(\d+)\n")
_PROBE = Path(__file__).with_name("hostile_probe.py")
_QUIET_S = 0.5  # the probe alone, before an attack
_AFTER_S = 1.5  # the probe after an attack, which sees what its end costs
_PROBE_END_S = 130.0  # its last request may wait for its whole timeout
_START_S = 30.0


@dataclass(frozen=True)
class Attack:
    """`name` and `point`: which attack, of which point of the list; `sends`: what it sends, for the table.

    `run` does it once and returns what was answered in a few words. It is ended after `seconds`. `options` are given to
    the broker; in them {folder} is one that goes when the attack has ended.
    """

    name: str
    point: int
    sends: str
    run: Callable[[Target], Awaitable[str]]
    seconds: float = 30.0
    options: tuple[str, ...] = ()


@dataclass
class Findings:
    """Milliseconds and MiB. `worst_cpu_ms` counts the broker's own CPU time while the probe waited for one answer."""

    name: str
    point: int
    sends: str
    outcome: str
    p50_ms: float
    worst_ms: float
    worst_cpu_ms: float
    idle_mib: float
    peak_mib: float
    after_mib: float
    log_lines: int
    raw_control_lines: int
    failure: str


async def run_attack(attack: Attack) -> Findings:
    """Starts a broker and the probe, lets the attack run, ends both."""
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        log = Path(folder) / "stderr"
        async with _broker(log, tuple(option.format(folder=folder) for option in attack.options)) as (pid, ports):
            idle = _memory(pid, "VmRSS")
            async with _probe(ports[0], pid) as probe:
                await asyncio.sleep(_QUIET_S)
                outcome = await _attack(attack, Target(pid, *ports))
                await asyncio.sleep(_AFTER_S)
                found = await probe()
            after, peak = _memory(pid, "VmRSS"), _memory(pid, "VmHWM")
        said = log.read_bytes()
    return Findings(
        name=attack.name, point=attack.point, sends=attack.sends, outcome=outcome, p50_ms=found["p50_ms"],
        worst_ms=found["worst_ms"], worst_cpu_ms=found["worst_cpu_ms"], idle_mib=idle, peak_mib=peak, after_mib=after,
        log_lines=said.count(b"\n"), raw_control_lines=_raw_control_lines(said), failure=found["failure"],
    )  # fmt: skip


async def _attack(attack: Attack, target: Target) -> str:
    with target:
        try:
            async with asyncio.timeout(attack.seconds):
                return await attack.run(target)
        except TimeoutError:
            return f"not done in {attack.seconds:g} s"
        except OSError as error:
            return f"{type(error).__name__}: {error}"


@asynccontextmanager
async def _broker(log: Path, options: tuple[str, ...]) -> AsyncIterator[tuple[int, tuple[int, int]]]:
    command = (sys.executable, "-m", "lockstep.broker", "--port", "0", "--name-server-port", "0", *options)
    with log.open("wb") as stderr:
        process = await asyncio.create_subprocess_exec(*command, stdout=asyncio.subprocess.PIPE, stderr=stderr)
    try:
        assert process.stdout is not None
        async with asyncio.timeout(_START_S):
            line = await process.stdout.readline()
        found = _LISTENING.search(line)
        if found is None:
            raise RuntimeError("the broker did not start")
        yield process.pid, (int(found[1]), int(found[2]))
    finally:
        await end_process(process)


@asynccontextmanager
async def _probe(port: int, pid: int) -> AsyncIterator[Callable[[], Awaitable[dict[str, Any]]]]:
    """Gives a function that ends the probe and returns its findings."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(
        sys.executable, str(_PROBE), str(port), str(pid), stdin=pipe, stdout=pipe
    )
    try:
        assert process.stdin is not None
        assert process.stdout is not None
        async with asyncio.timeout(_START_S):
            await process.stdout.readline()

        async def findings() -> dict[str, Any]:
            async with asyncio.timeout(_PROBE_END_S):
                said, _ = await process.communicate(b"")  # which closes its stdin
            result: dict[str, Any] = json.loads(said)
            return result

        yield findings
    finally:
        await end_process(process)


def _memory(pid: int, field: str) -> float:
    """A row of /proc/PID/status in MiB; 0 when the process has died."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0.0
    found = re.search(rf"{field}:\s+(\d+) kB", status)
    return round(int(found[1]) / 1024, 1) if found else 0.0


def _raw_control_lines(said: bytes) -> int:
    """Lines of the log with a control character that a terminal would obey."""
    return sum(re.search(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]", line) is not None for line in said.split(b"\n"))
