"""`python -m tests.simulation.worlds.grpc.sweep --seeds 1-500 --lock-mode fenced`: many worlds over gRPC.

Prints each world that fails as it comes, and at the end what happened in which share of the seeds.
"""

import argparse
import gc
from collections import Counter

from lockstep.simulation.lab.experiment import LockMode
from lockstep.simulation.lab.runner import run_seed
from tests.simulation.worlds.grpc.grpc_world import GRPC_WORLDS


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", default="1-100")
    parser.add_argument("--lock-mode", type=LockMode, default=LockMode.FENCED)
    options = parser.parse_args()
    first, _, last = options.seeds.partition("-")
    happened, wrong, count, failed = Counter[str](), Counter[str](), 0, 0
    for seed in range(int(first), int(last or first) + 1):
        outcome = run_seed(GRPC_WORLDS, seed, options.lock_mode)
        count += 1
        happened.update(outcome.sometimes.keys())
        wrong.update(outcome.wrong.keys())
        if GRPC_WORLDS.fails(outcome):
            failed += 1
            print(f"seed {seed}: {outcome.wrong} {outcome.error}", *outcome.texts[:2], sep="\n  ", flush=True)
        if not seed % 8:
            gc.collect()  # a simulation freezes what is there, also the worlds that are over
    print(f"{options.lock_mode}: {count} seeds, {failed} failed")
    for name, number in sorted((happened + wrong).items()):
        print(f"{100 * number / count:6.1f} %  {name}{'  (a violation)' if name in wrong else ''}")
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
