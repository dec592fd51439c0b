"""What the sweep of random worlds found of each protection, and the table of them that `make docs` writes."""

import json
from collections.abc import Mapping
from typing import Final, NamedTuple

from tests.mutants.beyond_worlds import BEYOND_WORLDS, RARE
from tests.mutants.protections import PROTECTIONS, ROOT
from tests.simulation.worlds.kept import FAILED_ONCE, Case, held_seeds, keep

__all__ = ["Found", "keep_all", "kept_cases", "protections", "read_found", "write_found"]

_FILE: Final = ROOT / "tests" / "mutants" / "found.json"


class Found(NamedTuple):
    """By which world a protection was found missing.

    Args:
        experiment: by name; empty: none found it.
        mode: of the world.
        seed: of the world; 0: no single one, see `excess`.
        kinds: of its violations.
        seeds: how many worlds had run.
        excess: how often a kind of violation was seen that RocketMQ's locks allow, without and with the protection.
    """

    experiment: str
    mode: str
    seed: int
    kinds: tuple[str, ...]
    seeds: int
    excess: str

    @property
    def case(self) -> Case:
        return Case(self.experiment, self.mode, self.seed)

    @property
    def is_found(self) -> bool:
        return bool(self.experiment)

    @property
    def text(self) -> str:
        kinds = ", ".join(f"`{kind}`" for kind in self.kinds)
        if self.excess:
            return f"`{self.experiment}`, {self.mode}: {kinds} in {self.excess}"
        where = f"`{self.experiment}`, {self.mode} seed {self.seed}"
        return f"{where}: {kinds}" if self.is_found else f"no seed of {self.seeds} of any experiment"


def read_found() -> dict[str, Found]:
    if not _FILE.exists():
        return {}
    values = json.loads(_FILE.read_text(encoding="utf-8"))
    return {
        name: Found(**{**dict(zip(Found._fields, one, strict=True)), "kinds": tuple(one[3])})
        for name, one in values.items()
    }


def protections() -> str:
    """The page of all protections: the world that finds each, or why none does."""
    found = read_found()
    lines = [
        "# Protections of order",
        "",
        "| protection | without it | found by worlds | tests that hold it |",
        "|---|---|---|---|",
    ]
    for one in PROTECTIONS:
        known = found.get(one.name)
        worlds = known.text if known is not None and known.is_found else ""
        if not worlds:
            tried = f"no seed of {known.seeds} so far: " if known is not None else ""
            worlds = tried + (BEYOND_WORLDS | RARE).get(one.name, "not searched yet")
        tests = ", ".join(f"`{test}`" for test in one.tests)
        lines.append(f"| `{one.name}` | {one.without} | {worlds} | {tests} |")
    return "\n".join(lines) + "\n"


def write_found(found: Mapping[str, Found]) -> None:
    """Write found.json, and the plans of its worlds."""
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(one)}" for name, one in found.items())
    _FILE.write_text(f"{{\n{rows}\n}}\n", encoding="utf-8")
    keep_all()


def kept_cases() -> set[Case]:
    """All worlds that must stay what they were."""
    held = [Case("worlds", "fenced", seed) for seed in held_seeds().values()]
    return {*held, *FAILED_ONCE, *(one.case for one in read_found().values() if one.seed)}


def keep_all() -> None:
    keep(kept_cases())
