"""RocketMQ 5.5's broker and ours, and what both answered: asked once, however few tests are chosen."""

import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import Final, NamedTuple

import pytest

from tests.differential.comparing import Outcome
from tests.differential.conftest import side_of
from tests.differential.pop.cases import POP_CASES
from tests.differential.pop.differences import POP_DIFFERENCES
from tests.differential.pop.player import Moment, Scene
from tests.differential.pop.scenes import SCENES, Play
from tests.differential.run import PLAYS_MAX, first_explained, run_cases
from tests.differential.side import address
from tests.interop.harness.servers import Server, apache_server, lockstep_server

AT_ONCE: Final = 6  # scenes: most of their time is waiting
TICK_S: Final = 0.02


class Played(NamedTuple):
    """What was seen of one scene. `late_s`: by how much this machine was late meanwhile, at most."""

    apache: list[Moment]
    lockstep: list[Moment]
    play: Play
    late_s: float

    def is_same(self) -> bool:
        """Whether the same was seen in the same order, times aside."""
        return [moment[:2] for moment in self.apache] == [moment[:2] for moment in self.lockstep]

    def apart(self) -> list[tuple[Moment, Moment]]:
        """Moments whose times differ by more than the scene allows and what the machine itself was late."""
        return [
            (left, right)
            for left, right in zip(self.apache, self.lockstep, strict=False)
            if left.at_s is not None
            and right.at_s is not None
            and abs(left.at_s - right.at_s - self.play.earlier_s) > self.play.within_s + self.late_s
        ]


@contextmanager
def start_both(folders: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    settings = {"recallMessageEnable": "true"}
    with ExitStack() as stack:
        apache = apache_server(folders.mktemp("apache5"), settings, part="apache5")
        ours = lockstep_server(folders.mktemp("lockstep"), "-D", "enablePropertyFilter=true")
        yield stack.enter_context(apache), stack.enter_context(ours)


@pytest.fixture(scope="session")
def pop_servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Server]]:
    """Apache's servers of 5.5 and ours, started once for all cases and scenes."""
    with start_both(tmp_path_factory) as servers:
        yield servers


@pytest.fixture(scope="session")
def pop_outcomes(pop_servers: tuple[Server, Server], tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Outcome]:
    """By the id of the case."""

    def ask_all(servers: tuple[Server, Server]) -> list[Outcome]:
        with ExitStack() as stack:
            return run_cases(POP_CASES, *(stack.enter_context(side_of(server)) for server in servers))

    def plays() -> Iterator[list[Outcome]]:
        yield ask_all(pop_servers)
        while True:
            with start_both(tmp_path_factory) as servers:
                yield ask_all(servers)

    return {outcome.case.id: outcome for outcome in first_explained(plays(), POP_DIFFERENCES)}


@pytest.fixture(scope="session")
def played(pop_outcomes: Mapping[str, Outcome], pop_servers: tuple[Server, Server]) -> Mapping[str, Played]:
    """By the name of the scene; after the cases, so that Java has compiled what it needs."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        return dict(pool.map(lambda name: (name, _play_on_both(name, SCENES[name], pop_servers)), SCENES))


def _play_on_both(name: str, play: Play, servers: tuple[Server, Server]) -> Played:
    """Anew, with another topic, where something differs: a pause of one process or a lost race is no difference.

    RocketMQ gives nothing to a pop that finds the queue's lock taken, as right after another pop.
    """
    for number in range(PLAYS_MAX):
        late = _Lateness()
        with ThreadPoolExecutor(2) as pool, late:
            theirs, ours = pool.map(lambda server: _play(f"{name}-{number}", play, server), servers)  # noqa: B023
        played = Played(theirs, ours, play, late.most_s)
        if played.is_same() and not played.apart():
            break
    return played


def _play(name: str, play: Play, server: Server) -> list[Moment]:
    scene = Scene(address(server.broker), name.replace("_", "-"), play.queues, in_order=play.in_order)
    try:
        play.play(scene)
    except KeyError as missing:
        scene.see("not given", missing.args)
    finally:
        scene.close()
    return scene.moments


class _Lateness:
    """By how much a thread that sleeps wakes too late: what this machine adds to every time that is measured."""

    most_s = 0.0

    def __enter__(self) -> None:
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _watch(self) -> None:
        before_s = time.monotonic()
        while not self._over.wait(TICK_S):
            now_s = time.monotonic()
            self.most_s, before_s = max(self.most_s, now_s - before_s - TICK_S), now_s
