"""What every test shares: async tests run on asyncio in debug mode or on uvloop, by turns.

Tests under `integration/` and `interop/` start processes of their own and run on uvloop. A module that proves what
differs from loop to loop runs on both: `pytestmark = pytest.mark.each_loop`.
`@pytest.mark.by_turns("encoding", {name: value})` parametrizes a test with one of the values, by turns as well.

What shares something that takes long to start runs in one worker: see `TogetherScheduling`. `--tier` chooses what
`make test` and `make test-all` run, and explains the turns: see `tests.tiers`.
"""

import asyncio
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import uvloop
from hypothesis import HealthCheck, settings
from xdist.scheduler import LoadScopeScheduling

from tests.forked.process import stop_server
from tests.left_out import LeftOut
from tests.open_files import open_files
from tests.processor_time import ProcessorTime, add_options
from tests.tiers import COLLECTED, Tier, begin_turn, select, variants

# How long an example takes is the machine's business: a loaded one is no finding.
settings.register_profile("lockstep", deadline=None, suppress_health_check=[HealthCheck.too_slow])
# A test that draws examples runs in one tier, and `make nightly` draws a hundred of each.
settings.register_profile("quick", settings.get_profile("lockstep"), max_examples=25)
settings.load_profile("lockstep")

TESTS = Path(__file__).parent
RUN_ONCE = (TESTS / "integration", TESTS / "interop")
TOGETHER = ("tests/pipeline/", "tests/tidy/")  # one Spark; the sources parsed once
LEFT_OPEN_MAX = 64  # of what the fixtures of a session keep: Spark
MODULES_TOGETHER = "tests/interop/"  # servers of their own


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--tier", choices=[tier.value for tier in Tier], default=Tier.ALL.value, help="see tests/tiers.py")
    until = "begin no test after this time, in seconds since 1970; the summary counts those that did not begin"
    parser.addoption("--until", type=float, help=until)
    add_options(parser)


def pytest_configure(config: pytest.Config) -> None:
    # A shell without job control starts what runs in the background with SIGINT ignored, and the programs that tests
    # start would inherit that: none of them would end when a test interrupts it.
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # `nohup` does the same to SIGHUP. This process still takes no notice of it, but what it starts does.
    if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
        signal.signal(signal.SIGHUP, lambda _number, _frame: None)
    if Tier.of(config) is Tier.QUICK:
        settings.load_profile("quick")
    begin_turn(config)
    config.pluginmanager.register(LeftOut(config))
    config.pluginmanager.register(ProcessorTime(config))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for mark in metafunc.definition.iter_markers("by_turns"):
        argument, values = mark.args
        chosen = {name: values[name] for name in variants(metafunc.config, metafunc.definition, list(values))}
        chosen |= mark.kwargs.get("always", {})
        metafunc.parametrize(argument, chosen.values(), ids=chosen.keys())


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish() -> None:
    stop_server()  # before the processor time is summed up


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if "java" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")
        if item.path.is_relative_to(TESTS / "integration") and "[simulated" not in item.name:
            item.add_marker("process")
        if item.path.name == "test_determinism.py":
            item.add_marker("determinism")
    config.stash[COLLECTED] = list(items)
    items[:], left = select(config, items)
    if left:
        config.hook.pytest_deselected(items=left)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    until = item.config.getoption("--until")
    if until is not None and time.time() > until:
        pytest.skip("not begun: the time of --until is over")


@pytest.fixture(scope="module", autouse=True)
def files_are_closed() -> Iterator[None]:
    """No module leaves files open: a thousand would make later tests fail, in places that are not to blame."""
    before = Counter(open_files())
    yield
    left = Counter(open_files()) - before
    assert left.total() <= LEFT_OPEN_MAX, f"its tests left {left.total()} files open: {sorted(left)[:5]}"


class TogetherScheduling(LoadScopeScheduling):  # type: ignore[misc]
    """A folder, and each module of another, that a worker gets as a whole, the largest first; the rest test by test."""

    def _split_scope(self, nodeid: str) -> str:
        if nodeid.startswith(MODULES_TOGETHER):
            return nodeid.partition("::")[0]
        return next((folder for folder in TOGETHER if nodeid.startswith(folder)), nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> TogetherScheduling:
    return TogetherScheduling(config, log)


class DebugLoop(asyncio.SelectorEventLoop):
    """asyncio's own loop with its checks on; pytest-asyncio's runner, which would turn them off, cannot."""

    def __init__(self) -> None:
        super().__init__()
        self.slow_callback_duration = 1.0  # debug mode is slow by itself, and a loaded machine is no finding

    def set_debug(self, enabled: bool) -> None:
        """Debug mode, whatever is asked for."""
        super().set_debug(True)


LOOPS: Mapping[str, Callable[[], asyncio.AbstractEventLoop]] = {
    "asyncio": DebugLoop,
    "uvloop": uvloop.new_event_loop,
}


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """The loops of one async test."""
    if any(item.path.is_relative_to(folder) for folder in RUN_ONCE):
        return {"uvloop": LOOPS["uvloop"]}
    chooses = any("loop_factories" in mark.kwargs for mark in item.iter_markers("asyncio"))
    if chooses or item.get_closest_marker("each_loop"):
        return LOOPS
    return {name: LOOPS[name] for name in variants(config, item, list(LOOPS))}
