"""`make mutants`: take each protection out, one at a time, and see whether the tests that hold it fail.

`python -m tests.mutants [--jobs N] [NAME ...]`. First the tests run on the code as it is: they must pass, or a
failure would prove nothing. Exit status 0: every protection is held; 1: a mutant survived, or the run was broken.
"""

import argparse
import os
import re
import subprocess
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from tests.mutants.protections import PROTECTIONS, ROOT, Protection

RUN_SECONDS_MAX = 900  # of one mutant
TEST_SECONDS_MAX = 60  # of one test: without a protection it may never end
PASSED, FAILED = 0, 1  # pytest's exit status
# A slow machine ends a healthy test so too, hence the report says it.
NO_END = re.compile(r"Failed: Timeout \(>")
FIRST_FAILURE = re.compile(r"^(?:FAILED|ERROR) (\S+)", re.MULTILINE)


class Outcome(NamedTuple):
    """What the tests said of one mutant: `found_by` is the first test that failed, None when it survived."""

    protection: Protection
    found_by: str | None
    broken: str
    seconds: float


def pytest_run(tests: Sequence[str], *arguments: str) -> tuple[int, str]:
    """Exit status and output of pytest in a process of its own; a run that does not end counts as failed."""
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", "-p", "no:cacheprovider"]
    command += [f"--timeout={TEST_SECONDS_MAX}", *arguments, *tests]
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=RUN_SECONDS_MAX, env=os.environ, check=False
        )
    except subprocess.TimeoutExpired:
        return FAILED, f"FAILED no-end-within-{RUN_SECONDS_MAX}-s"
    return done.returncode, done.stdout + done.stderr


def try_mutant(protection: Protection) -> Outcome:
    """Run the tests that hold `protection` without it."""
    began = time.monotonic()
    status, output = pytest_run(
        protection.tests, "--tier=nightly", "-p", "tests.mutants.plugin", f"--mutant={protection.name}"
    )
    seconds = time.monotonic() - began
    failure = FIRST_FAILURE.search(output)
    if status == FAILED and failure is not None:
        slow = f", no end within {TEST_SECONDS_MAX} s" if NO_END.search(output) else ""
        return Outcome(protection, failure.group(1).removeprefix("tests/") + slow, "", seconds)
    return Outcome(protection, None, "" if status == PASSED else output[-2000:], seconds)


def report(outcome: Outcome) -> str:
    told = f"found by {outcome.found_by}" if outcome.found_by else "BROKEN RUN" if outcome.broken else "SURVIVED"
    return f"{outcome.seconds:6.1f} s  {outcome.protection.name:34}  {told}"


def chosen(names: Sequence[str]) -> list[Protection]:
    known = {protection.name: protection for protection in PROTECTIONS}
    unknown = [name for name in names if name not in known]
    if unknown:
        sys.exit(f"no such protection: {', '.join(unknown)}; allowed: {', '.join(known)}")
    return [known[name] for name in names] if names else list(PROTECTIONS)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="protections to take out; all, unless given")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mutants at a time")
    options = parser.parse_args()
    protections = chosen(options.names)
    tests = sorted({test for protection in protections for test in protection.tests})
    print(f"{len(protections)} protections; first their {len(tests)} tests on the code as it is", flush=True)
    status, output = pytest_run(tests, "-n", str(options.jobs))
    if status != PASSED:
        print(output[-4000:])
        return 1
    outcomes = []
    with ThreadPoolExecutor(options.jobs) as pool:
        for outcome in pool.map(try_mutant, protections):
            outcomes.append(outcome)
            print(report(outcome), flush=True)
            if outcome.broken:
                print(outcome.broken)
    survivors = [outcome.protection.name for outcome in outcomes if outcome.found_by is None]
    print(f"{len(outcomes) - len(survivors)} of {len(outcomes)} found")
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
