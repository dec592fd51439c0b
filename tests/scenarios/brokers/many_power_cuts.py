"""Thousands of power cuts, 50 in each simulation, each simulation with its own seed; `make nightly` runs it."""

import sys
import time
from concurrent.futures import ProcessPoolExecutor
from typing import NamedTuple

from lockstep.client import SerializeType
from tests.scenarios.brokers.power_cuts import PowerCuts
from tests.scenarios.cluster import Cluster
from tests.scenarios.scenario import Mode, Scenario

__all__ = ["Result", "main", "run"]

CUTS, CUTS_EACH, FIRST_SEED = 2000, 50, 1


class Result(NamedTuple):
    seed: int
    cuts: int
    kills: int
    acknowledged: int
    unknown: int
    virtual_ms: int
    failure: str


def run(seed: int, count: int = CUTS_EACH) -> Result:
    """One simulation, and what became of it."""
    stories: list[PowerCuts] = []

    async def story(cluster: Cluster) -> None:
        stories.append(PowerCuts(cluster, cluster.world.rng, faults=seed % 2 == 0))
        await stories[0].run(count)

    failure, virtual_ms = "", 0
    try:
        virtual_ms = Scenario("power cuts", story, None).run(Mode(SerializeType.MSGPACK), seed).elapsed_ms
    except BaseException as error:
        failure = f"{type(error).__name__}: {error}"
    done = stories[0]
    return Result(seed, done.cuts, done.kills, len(done.acknowledged), done.unknown, virtual_ms, failure)


def main(arguments: list[str]) -> int:
    cuts = int(arguments[0]) if arguments else CUTS
    first = int(arguments[1]) if arguments[1:] else FIRST_SEED
    began = time.perf_counter()
    results: list[Result] = []
    with ProcessPoolExecutor() as pool:
        seeds = range(first, first + -(-cuts // CUTS_EACH))
        for result in pool.map(run, seeds):
            results.append(result)
            if result.failure:
                print(
                    f"seed {result.seed} failed (python -m tests.scenarios.brokers.many_power_cuts 50 {result.seed}):"
                )
                print(f"  {result.failure[:2000]}", flush=True)
    took_s = time.perf_counter() - began
    cut, killed, sent = (
        sum(counts) for counts in zip(*[(r.cuts, r.kills, r.acknowledged) for r in results], strict=True)
    )
    minutes = sum(result.virtual_ms for result in results) / 60_000
    bad = sum(bool(result.failure) for result in results)
    print(f"{cut:,} power cuts and {killed:,} kills, {minutes:,.0f} virtual minutes in {took_s:.0f} s")
    print(f"{sent:,} messages acknowledged; {bad} of {len(results)} seeds failed")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
