"""The two pictures of docs/scale.md: `python -m scripts.bench.scale` draws them from scale.json and the formulas.

scale.json has, by size, processor time and memory of `lockstep-sim run takeover --rate 20 --kill c1@30s --for 2m`, as
`/usr/bin/time -v` tells them.
"""

import json
from collections.abc import Mapping, Sequence
from math import log
from pathlib import Path
from statistics import linear_regression
from typing import Any, Final

from lockstep.remoting.texts import counted
from lockstep.simulation.lab.costs import REQUEST_US
from lockstep.simulation.lab.formulas import asked_a_second
from lockstep.simulation.lab.setup import Setup
from scripts.bench.growth.draw import draw

ROOT: Final = Path(__file__).resolve().parents[2]
QUEUES: Final = (100, 300, 1000, 3000, 10_000, 30_000, 100_000)
QUEUES_OF_A_MEMBER: Final = 4
MEMBERS_MAX: Final = 1000
MESSAGES_OF_A_QUEUE: Final = 0.1  # a second


def exponent(rows: Sequence[Mapping[str, Any]], figure: str) -> float:
    """Of consumers: the slope of the line through all points, both axes logarithmic."""
    return linear_regression([log(row["consumers"]) for row in rows], [log(row[figure]) for row in rows]).slope


def of_a_core(queues: int, brokers: int, of_a_queue: float) -> float:
    """The share that each broker takes of its core, in percent."""
    members = min(queues // QUEUES_OF_A_MEMBER, MEMBERS_MAX)
    setup = Setup(consumers=members, queues=queues // brokers, brokers=brokers, rate=queues * of_a_queue)
    return sum(asked_a_second(setup).values()) / brokers * REQUEST_US / 1e4


def main() -> None:
    rows = json.loads((Path(__file__).with_suffix(".json")).read_text(encoding="utf-8"))
    large = [row for row in rows if row["consumers"] >= 100]
    for figure in ("seconds", "mb"):
        print(f"{figure}: exponent {exponent(rows, figure):.2f}, from 100 on {exponent(large, figure):.2f}")
    draw(
        ROOT / "docs" / "scale-simulator.svg",
        "Two virtual minutes of a group in the simulator",
        ("consumers, with four queues each", "seconds of a core, MB"),
        {
            "processor, s": [(row["consumers"], row["seconds"]) for row in rows],
            "memory, MB": [(row["consumers"], row["mb"]) for row in rows],
        },
        is_log=True,
    )
    draw(
        ROOT / "docs" / "scale-broker.svg",
        "What each broker takes of its core, by the formulas",
        ("queues of the group", "percent of a core"),
        {
            counted(brokers, "broker"): [(queues, of_a_core(queues, brokers, MESSAGES_OF_A_QUEUE)) for queues in QUEUES]
            for brokers in (1, 4, 26)
        },
        is_log=True,
    )


if __name__ == "__main__":
    main()
