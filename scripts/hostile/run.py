"""Runs one attack against its own broker, beside a quiet probe: the worst stall and the peak of memory."""

import asyncio
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lockstep.testing.process import BrokerProcess, ChildProcess
from scripts.hostile.target import Target

__all__ = ["Attack", "Findings", "run_attack"]

MIB = 1024 * 1024
_ROOT = Path(__file__).parents[2]
_PROBE = (sys.executable, "-m", "scripts.hostile.probe")
_CONSOLE = (str(Path(sys.executable).with_name("lockstep")), "console")
_PAGES = re.compile(r"console is at http://127.0.0.1:(\d+)/")
_QUIET_S = 0.5  # the probe alone, before an attack
_AFTER_S = 1.5  # the probe after an attack: it sees the cost of its end
_PROBE_END_S = 130.0  # its last request may wait for its whole timeout


@dataclass(frozen=True)
class Attack:
    """An attack of the list.

    `sends` describes it in the table. `run` does it once and returns the result in a few words; it is stopped after
    `seconds`. `options` are for the broker; in them {folder} is a temporary folder. `on_console`: a console of the
    broker is attacked and measured, not the broker.
    """

    name: str
    point: int
    sends: str
    run: Callable[[Target], Awaitable[str]]
    seconds: float = 30.0
    options: tuple[str, ...] = ()
    on_console: bool = False


@dataclass
class Findings:
    """Milliseconds and MiB. `worst_cpu_ms` is the attacked process's processor time while the probe waited once."""

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
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hostile-")))
        options = [option.format(folder=folder) for option in attack.options]
        broker = stack.enter_context(BrokerProcess(*options, folder=folder))
        attacked: ChildProcess = broker
        grpc_port = int(broker.addresses.grpc.rpartition(":")[2] or 0)
        target = Target(broker.pid, broker.port, broker.name_server_port, grpc_port)
        if attack.on_console:
            attacked = stack.enter_context(ConsoleProcess(broker.name_server, folder))
            target = Target(attacked.pid, attacked.port, broker.name_server_port)
        idle = _memory(attacked.pid, "VmRSS")
        outcome, found = await _beside_the_probe(attack, target, folder)
        after, peak = _memory(attacked.pid, "VmRSS"), _memory(attacked.pid, "VmHWM")
        said = (folder / f"{attacked.name}.err").read_bytes()
    return Findings(
        name=attack.name, point=attack.point, sends=attack.sends, outcome=outcome, p50_ms=found["p50_ms"],
        worst_ms=found["worst_ms"], worst_cpu_ms=found["worst_cpu_ms"], idle_mib=idle, peak_mib=peak, after_mib=after,
        log_lines=said.count(b"\n"), raw_control_lines=_raw_control_lines(said), failure=found["failure"],
    )  # fmt: skip


async def _beside_the_probe(attack: Attack, target: Target, folder: Path) -> tuple[str, dict[str, Any]]:
    """The outcome, and what the probe found."""
    asked = "console" if attack.on_console else "broker"
    command = [*_PROBE, str(target.port), str(target.pid), asked]
    with ChildProcess("probe", command, folder, stdin=subprocess.PIPE, cwd=_ROOT) as probe:
        probe.wait_until(probe.stdout, "its first answer")
        await asyncio.sleep(_QUIET_S)
        outcome = await _attack(attack, target)
        await asyncio.sleep(_AFTER_S)
        probe.ask_to_end()
        probe.wait_until(lambda: probe.status is not None, "its end", _PROBE_END_S)
        return outcome, json.loads(probe.stdout().splitlines()[-1])


class ConsoleProcess(ChildProcess):
    """`lockstep console` on a free port."""

    def __init__(self, name_server: str, folder: Path) -> None:
        super().__init__("console", [*_CONSOLE, "-n", name_server, "--port", "0"], folder)
        found = self.wait_until(lambda: _PAGES.search(self.stderr()), "its line with the address")
        self.port = int(found[1])


async def _attack(attack: Attack, target: Target) -> str:
    with target:
        try:
            async with asyncio.timeout(attack.seconds):
                return await attack.run(target)
        except TimeoutError:
            return f"not done in {attack.seconds:g} s"
        except OSError as error:
            return f"{type(error).__name__}: {error}"


def _memory(pid: int, field: str) -> float:
    """A row of /proc/PID/status in MiB; 0 when the process has ended."""
    try:
        status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    except OSError:
        return 0.0
    found = re.search(rf"{field}:\s+(\d+) kB", status)
    return round(int(found[1]) / 1024, 1) if found else 0.0


def _raw_control_lines(said: bytes) -> int:
    """Number of log lines with a control character that a terminal would obey."""
    return sum(re.search(rb"[\x00-\x08\x0b-\x1f\x7f]|\xc2[\x80-\x9f]", line) is not None for line in said.split(b"\n"))
