"""`make hostile`: attacks of clumsy and hostile peers, one after the other, each beside a quiet probe.

Each attack has its own broker process on loopback, or a console beside it. The table shows the probe's median and worst
reply times and the peak memory of the attacked process; build/hostile.json has all figures. `--only` picks attacks by
name or number, `--list` shows them, `--markdown` prints the table of docs/hostile.md.
"""

import argparse
import asyncio
import json
import sys
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from scripts.hostile.answers import ANSWER_ATTACKS
from scripts.hostile.console import CONSOLE_ATTACKS
from scripts.hostile.frames import FRAME_ATTACKS
from scripts.hostile.groups import GROUP_ATTACKS
from scripts.hostile.grpc import GRPC_ATTACKS
from scripts.hostile.large import LARGE_ATTACKS
from scripts.hostile.run import Attack, Findings, run_attack
from scripts.hostile.tables import TABLE_ATTACKS

_OF_A_BROKER = (*GROUP_ATTACKS, *FRAME_ATTACKS, *TABLE_ATTACKS, *ANSWER_ATTACKS, *LARGE_ATTACKS, *GRPC_ATTACKS)
_ALL = (*_OF_A_BROKER, *CONSOLE_ATTACKS)
ATTACKS: tuple[Attack, ...] = tuple(sorted(_ALL, key=lambda attack: attack.point))
OUTPUT = Path(__file__).resolve().parents[2] / "build" / "hostile.json"
WORST_CPU_MS_MAX = 50.0  # processor time of the broker between a request of the probe and its reply
TITLES = ("attack", "sends", "answer", "p50 ms", "worst ms", "CPU ms", "idle MiB", "peak MiB", "after MiB", "log lines")


def cells(found: Findings) -> tuple[str, ...]:
    outcome = found.outcome + (f"; PROBE FAILED: {found.failure}" if found.failure else "")
    if found.raw_control_lines:
        outcome += f"; {found.raw_control_lines} log lines with raw control characters"
    numbers = (found.p50_ms, found.worst_ms, found.worst_cpu_ms, found.idle_mib, found.peak_mib, found.after_mib)
    return (found.name, found.sends, outcome, *(f"{number:.1f}" for number in numbers), str(found.log_lines))


def markdown(rows: Iterable[tuple[str, ...]]) -> str:
    ruler = ("---",) * 3 + ("--:",) * (len(TITLES) - 3)
    lines = (TITLES, ruler, *(tuple(cell.replace("|", "\\|") for cell in row) for row in rows))
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def chosen(only: list[str]) -> list[Attack]:
    """Attacks by name, start of a name, or point; all without `only`."""
    return [
        attack
        for attack in ATTACKS
        if not only or any(attack.name.startswith(one) or str(attack.point) == one for one in only)
    ]


async def run_all(attacks: Iterable[Attack]) -> list[Findings]:
    results = []
    for attack in attacks:
        print(f"{attack.point} {attack.name}: {attack.sends}", flush=True)
        found = await run_attack(attack)
        results.append(found)
        print("   ", "  ".join(f"{t}={c}" for t, c in zip(TITLES[2:], cells(found)[2:], strict=True)), flush=True)
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", action="append", default=[], metavar="NAME", help="may be repeated")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--markdown", action="store_true")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    given = parser.parse_args()
    attacks = chosen(given.only)
    if given.list:
        for attack in attacks:
            print(f"{attack.point}  {attack.name:28} {attack.sends}")
        return 0
    results = asyncio.run(run_all(attacks))
    given.output.parent.mkdir(parents=True, exist_ok=True)
    given.output.write_text(json.dumps([asdict(found) for found in results], indent=1) + "\n", encoding="utf-8")
    if given.markdown:
        print(markdown(map(cells, results)))
    bad = [found.name for found in results if found.failure or found.worst_cpu_ms > WORST_CPU_MS_MAX]
    print(f"over {WORST_CPU_MS_MAX:.0f} ms, or no answer: {', '.join(bad) or 'none'}")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
