"""Whoever reaches around the Runtime fails the run, also when the failure is swallowed."""

import asyncio
import builtins
import concurrent.futures
import datetime as dt
import logging
import multiprocessing
import os
import pathlib
import queue
import random
import secrets
import select
import socket
import subprocess
import tempfile
import threading
import time
import types
import uuid
from collections.abc import Callable
from random import randint as imported_randint
from time import time as imported_time

import pytest

from lockstep.simulation import NondeterminismError, World, simulate
from lockstep.simulation.virtual_time.callers import Caller
from lockstep.simulation.virtual_time.cures import NETWORK
from tests.rows import by_row

nap = vars(time)["sleep"]

NONDETERMINISTIC: dict[str, Callable[[], object]] = {
    "time.time": lambda: time.time(),
    "time.time_ns": lambda: time.time_ns(),
    "time.monotonic": lambda: time.monotonic(),
    "time.monotonic_ns": lambda: time.monotonic_ns(),
    "time.perf_counter": lambda: time.perf_counter(),
    "time.perf_counter_ns": lambda: time.perf_counter_ns(),
    "time.process_time": lambda: time.process_time(),
    "time.localtime": lambda: time.localtime(),
    "time by name": lambda: imported_time(),
    "sleep by another name": lambda: nap(0),
    "datetime.now": lambda: dt.datetime.now(dt.UTC),
    "date.today": lambda: dt.date.today(),  # noqa: DTZ011
    "random.random": lambda: random.random(),
    "random.choice": lambda: random.choice([1]),
    "random.shuffle": lambda: random.shuffle([1]),
    "random.seed": lambda: random.seed(1),
    "randint by name": lambda: imported_randint(1, 2),
    "a Random without a seed": lambda: random.Random(),
    "SystemRandom": lambda: random.SystemRandom().random(),
    "os.urandom": lambda: os.urandom(1),
    "secrets": lambda: secrets.token_hex(),
    "secrets.randbelow": lambda: secrets.randbelow(5),
    "uuid1": lambda: uuid.uuid1(),
    "uuid4": lambda: uuid.uuid4(),
    "getpid": lambda: os.getpid(),
    "gethostname": lambda: socket.gethostname(),
    "a thread": lambda: threading.Thread(target=print).start(),
    "an executor": lambda: concurrent.futures.ThreadPoolExecutor().submit(print),
    "a socket": lambda: socket.socket(),
    "a connection": lambda: socket.create_connection(("127.0.0.1", 9)),
    "a socket pair": lambda: socket.socketpair(),
    "DNS": lambda: socket.getaddrinfo("localhost", 80),
    "Event.wait": lambda: threading.Event().wait(0.001),
    "Queue.get": lambda: queue.Queue[int]().get(timeout=0.001),
    "select": lambda: select.select([], [], [], 0.001),
    "loop.run_in_executor": lambda: asyncio.get_running_loop().run_in_executor(None, print),
    "loop.create_connection": lambda: asyncio.get_running_loop().create_connection(asyncio.Protocol, "::1", 9),
    "loop.add_signal_handler": lambda: asyncio.get_running_loop().add_signal_handler(15, print),
    "loop.add_reader": lambda: asyncio.get_running_loop().add_reader(0, print),
}


@by_row("name", NONDETERMINISTIC)
def test_a_violation_fails_the_run_though_it_is_swallowed(name: str) -> None:
    """Each way out raises where it is taken, and the run fails with it whatever the code does then."""
    raised: list[Exception] = []

    async def scenario(world: World) -> None:
        try:
            NONDETERMINISTIC[name]()
        except NondeterminismError as error:
            raised.append(error)
        await asyncio.sleep(1)

    with pytest.raises(NondeterminismError) as caught:
        simulate(scenario)
    assert raised == [caught.value]


def test_a_violation_says_where_and_what_instead() -> None:
    """File, line, and the cure."""

    async def scenario(world: World) -> None:
        time.monotonic()

    with pytest.raises(
        NondeterminismError,
        match=r"time.monotonic\(\) at test_nondeterminism.py:\d+ .*get_running_loop\(\).time\(\)",
    ):
        simulate(scenario)


class Job(multiprocessing.Process):
    """As users write one."""


WRITTEN: dict[str, tuple[Callable[[], object], str]] = {
    "multiprocessing.Process": (lambda: multiprocessing.Process(target=print), "other processes do not run here"),
    "multiprocessing.Process of a subclass": (lambda: Job(), "other processes do not run here"),
    "multiprocessing.Queue": (lambda: multiprocessing.Queue(), "other processes do not run here"),
    "multiprocessing.Pool": (lambda: multiprocessing.Pool(1), "other processes do not run here"),
    "concurrent.futures.ProcessPoolExecutor": (
        lambda: concurrent.futures.ProcessPoolExecutor(1).submit(print),
        "other processes do not run here",
    ),
    "concurrent.futures.ThreadPoolExecutor.submit": (
        lambda: concurrent.futures.ThreadPoolExecutor().submit(print),
        "call the function itself",
    ),
    "subprocess.run": (lambda: subprocess.run(["true"], check=False), "other processes do not run here"),
    "subprocess.Popen": (lambda: subprocess.Popen(["true"]), "other processes do not run here"),
    "threading.Event.wait": (lambda: threading.Event().wait(1), "no other thread runs"),
    "queue.Queue.get": (lambda: queue.Queue[int]().get(timeout=0.001), "no other thread runs"),
    "random.Random": (lambda: random.Random(), "a random.Random with a seed"),
    "secrets.randbelow": (lambda: secrets.randbelow(5), "a random.Random with a seed"),
    "tempfile.mkdtemp": (lambda: tempfile.mkdtemp(), "choose the name yourself"),
    "socket.create_connection": (lambda: socket.create_connection(("127.0.0.1", 9)), "keeps its data in memory"),
    "time.time": (lambda: time.time(), "use message.store_timestamp"),
}


@by_row("name", WRITTEN)
def test_a_violation_names_what_was_written(name: str) -> None:
    """Not the function deep inside of the standard library that was refused. The cure is for what was written."""
    call, cure = WRITTEN[name]

    async def scenario(world: World) -> None:
        call()

    with pytest.raises(NondeterminismError) as caught:
        simulate(scenario)
    text = str(caught.value)
    assert text.startswith(f"{name.partition(' ')[0]}() at test_nondeterminism.py:"), text
    assert cure in text


def test_a_loop_of_its_own_is_refused_as_what_it_is() -> None:
    """Not as the connection that asyncio makes first. Told without a run: asyncio never closes a loop half made."""
    text = Caller("shop.py:3", "asyncio.run", "asyncio.runners", is_ours=False).refusal("socket.socketpair", NETWORK)
    assert text.endswith("the loop runs already; write an async def, and await the coroutine")


def test_asyncio_to_thread_is_a_violation() -> None:
    """asyncio's own ways into threads and sockets end at the loop."""

    async def thread(world: World) -> None:
        await asyncio.to_thread(print)

    async def stream(world: World) -> None:
        await asyncio.open_connection("127.0.0.1", 9)

    here = r"^asyncio\.{} at test_nondeterminism.py:\d+ bypasses the simulation: "
    with pytest.raises(NondeterminismError, match=here.format(r"to_thread\(\)") + "threads do not run here"):
        simulate(thread)
    with pytest.raises(NondeterminismError, match=here.format(r"open_connection\(\)") + "the network is simulated"):
        simulate(stream)


def test_a_callback_of_a_host_is_watched_as_well() -> None:
    """Not only the scenario's own lines."""

    async def scenario(world: World) -> None:
        world.host("c1").call_later_ms(10, lambda: time.time())
        await world.sleep_ms(100)

    with pytest.raises(NondeterminismError, match=r"time.time\(\)"):
        simulate(scenario)


def test_what_is_harmless_goes_on_working() -> None:
    """Seeded generators, conversions of given times, logging, and a scenario's own files."""

    async def scenario(world: World) -> None:
        assert random.Random(7).random() == random.Random(7).random()
        assert time.gmtime(0).tm_year == 1970
        assert dt.datetime.fromtimestamp(0, dt.UTC).year == 1970
        assert isinstance(dt.datetime(2020, 1, 1), dt.date)  # noqa: DTZ001
        assert issubclass(EARLY.__class__, dt.datetime)
        assert isinstance(EARLY, dt.datetime)
        assert uuid.UUID(int=5).int == 5
        logging.getLogger("quiet").warning("a record takes the time")
        assert "def test" in read(pathlib.Path(__file__))

    def read(path: pathlib.Path) -> str:
        return path.read_text(encoding="utf-8")

    simulate(scenario)


EARLY = dt.datetime(1999, 1, 1, tzinfo=dt.UTC)


def test_our_packages_do_not_touch_the_disk() -> None:
    """A file opened by code named lockstep.* is a violation, directly or through pathlib."""
    module = types.ModuleType("lockstep.made_up")
    code = "import pathlib\ndef direct(path): open(path).close()\ndef deeper(path): pathlib.Path(path).read_bytes()\n"
    exec(compile(code, "made_up.py", "exec"), vars(module))

    async def direct(world: World) -> None:
        module.direct(__file__)

    async def deeper(world: World) -> None:
        module.deeper(__file__)

    with pytest.raises(NondeterminismError, match=r"open\(\) at made_up.py:2 .*Runtime.storage"):
        simulate(direct)
    with pytest.raises(NondeterminismError, match=r"pathlib\.Path\.read_bytes\(\) at made_up.py:3 .*Runtime.storage"):
        simulate(deeper)


def test_the_real_world_is_back_afterwards() -> None:
    """Whether the run ended well or not, every name is what it was."""

    def names() -> list[object]:
        functions = [time.time, vars(time)["sleep"], random.random, random.Random.seed, os.urandom, uuid.uuid4]
        classes = [threading.Thread.start, vars(socket.socket)["__init__"], dt.datetime, dt.date]
        return [*functions, *classes, builtins.open, imported_time, imported_randint, nap]

    before = names()

    async def good(world: World) -> None:
        """Nothing."""

    async def bad(world: World) -> None:
        time.time()

    simulate(good)
    with pytest.raises(NondeterminismError):
        simulate(bad)
    assert names() == before
    assert time.time() > 0
    assert uuid.uuid4() != uuid.uuid4()
    with tempfile.TemporaryFile() as file:
        assert file.write(b"as ever") == 7


def test_other_threads_are_left_alone() -> None:
    """A thread of the test runner may look at its clock while a simulation runs."""
    go, seen = threading.Event(), list[float]()

    def look() -> None:
        go.wait(10)
        seen.append(time.monotonic())

    thread = threading.Thread(target=look)
    thread.start()

    async def scenario(world: World) -> None:
        go.set()
        thread.join(10)

    simulate(scenario)
    assert len(seen) == 1
