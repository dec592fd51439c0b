"""The attack of tests/fuzz/frames: that it finds what is wrong, and that nothing is."""

import gc
import time
from pathlib import Path
from typing import Any

import pytest

from lockstep.broker.acl.control import AccessControl
from lockstep.broker.acl.required_permissions import Requirement
from lockstep.broker.server import BrokerServer
from lockstep.remoting.tls.port import TlsPort
from lockstep.simulation import simulate
from lockstep.testing.control_port.calls import CALLS, ControlledBroker
from tests.fuzz.frames.__main__ import ALL_MODES, Played, Totals, World, run_world, worlds_of
from tests.fuzz.frames.world import Report, play

FRAMES = 1_500  # enough for the faults that are put in below


def played(mode: str, folder: Path, *, frames: int = FRAMES, number: int = 0, seed: int = 3) -> Report:
    return play(mode, seed, number, frames, folder)


@pytest.mark.parametrize("mode", ALL_MODES)
def test_a_few_frames(mode: str) -> None:
    """Nothing goes wrong, and the attack reaches handlers: some requests are served, most are not."""
    frames = 300 if mode == "ports" else FRAMES  # there a frame has 19 calls on average
    report = run_world(World(mode, 1, 0, frames))
    assert not report.fault
    assert report.requests > frames / 4
    assert report.answers["success"] > 10
    assert mode == "ports" or sum(report.answers.values()) > report.answers["success"] * 2


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.parametrize("mode", ALL_MODES)
def test_many_frames(mode: str) -> None:
    """153,000 in all: no crash, no stall, nothing served that should not be, no table without a bound."""
    frames = 25_000 if mode != "ports" else 3_000
    reports = [run_world(world) for world in worlds_of(mode, 2, frames)]
    assert [report.fault for report in reports] == [""] * len(reports)
    assert sum(report.frames for report in reports) >= frames
    assert sum(report.requests for report in reports) > 10_000


@pytest.mark.parametrize("mode", ["plain", "acl", "client", "grpc", pytest.param("ports", marks=pytest.mark.long)])
def test_the_same_seed_is_the_same_attack(mode: str, tmp_path: Path) -> None:
    """Also when the state is looked at after each frame: so a fault can be shown again, frame by frame."""
    one, other = played(mode, tmp_path), play(mode, 3, 0, FRAMES, tmp_path, look_every=1)
    assert (one.answers, one.events, one.requests) == (other.answers, other.events, other.requests)
    assert played(mode, tmp_path, seed=4).answers != one.answers


def test_each_persona_under_acl(tmp_path: Path) -> None:
    """No copy is served, the owner of a few rights is, and an administrator has worlds of its own."""
    answers = played("acl", tmp_path, frames=5_000).answers
    assert answers["few: served"] > 20
    assert answers["thief: not served"] > 50
    assert "thief: served" not in answers
    assert played("acl", tmp_path, number=3).answers["admin: served"] > 50


def test_it_finds_a_handler_that_raises(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Whatever a handler lets through is a fault, although the peer gets an answer."""

    def raising(*_: Any) -> None:
        raise KeyError("x")

    monkeypatch.setattr("lockstep.broker.catalog.offsets.ConsumerOffsetManager.query_or_start", raising)
    assert "request_failed" in played("plain", tmp_path).fault


def test_it_finds_a_client_that_breaks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An answer may be unreadable, but not raise something that no caller expects."""

    def raising(*_: Any) -> None:
        raise KeyError("x")

    monkeypatch.setattr("lockstep.remoting.connections.agreement.Agreement._agree", raising)
    assert "KeyError" in played("client", tmp_path).fault


def test_it_finds_a_stall(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A stall is of the thread's processor time: what other programs take does not count."""

    def slow(*_: Any) -> None:
        until_ns = time.thread_time_ns() + 60_000_000
        while time.thread_time_ns() < until_ns:
            pass

    monkeypatch.setattr("lockstep.broker.core.broker.Broker.scan", slow)
    report = played("plain", tmp_path)
    assert report.stalls
    assert report.longest_ms >= 60


@pytest.mark.parametrize("mode", ["acl", "both"])
def test_it_finds_a_check_that_is_left_out(mode: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An account with few rights changes what is not its own: the state tells, without asking the checks."""
    monkeypatch.setattr("lockstep.broker.acl.control.required_of", lambda *_, **__: Requirement())
    assert played(mode, tmp_path).fault


def test_it_finds_a_signature_that_is_not_compared(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A stranger with the name of an account is served then, or changes what is not its own."""
    monkeypatch.setattr(AccessControl, "_is_signed", lambda *_: True)
    assert played("acl", tmp_path).fault


def test_it_finds_copies_that_are_served(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A thief sends recorded requests again."""
    monkeypatch.setattr("lockstep.broker.acl.replay.ReplayWindow.check", lambda *_: None)
    assert "thief" in played("acl", tmp_path).fault


def test_it_finds_plain_connections_beside_tls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Under `enforcing` no plain frame may reach a handler."""
    made = TlsPort.__init__
    monkeypatch.setattr(TlsPort, "__init__", lambda *args, **named: made(*args, **{**named, "plain_allowed": True}))
    assert "without TLS" in played("tls", tmp_path).fault


def test_it_finds_a_call_that_is_served_by_mistake(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The control port may take no call with a field that it does not know."""

    async def careless(broker: ControlledBroker, name: str, arguments: dict[str, Any]) -> Any:
        return await CALLS[name][0](broker, arguments) if name in CALLS else None

    monkeypatch.setattr(ControlledBroker, "call", careless)
    assert played("ports", tmp_path).fault


def test_it_finds_calls_that_keep_the_loop(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Many lines in one read may not be answered in one step; a task's steps are measured as callbacks are."""

    async def slow(_: ControlledBroker, name: str, arguments: dict[str, Any]) -> None:
        until_ns = time.thread_time_ns() + 60_000_000
        while time.thread_time_ns() < until_ns:
            pass

    monkeypatch.setattr(ControlledBroker, "call", slow)
    assert played("ports", tmp_path, frames=10).stalls


@pytest.mark.parametrize("name", ["CONNECTION_LIFE_MS", "CONNECTIONS_MAX"])
def test_it_finds_slow_readers_of_metrics(name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A connection to the metrics port without a deadline, and more of them than there may be."""
    monkeypatch.setattr(f"lockstep.broker.metrics.server.{name}", 1 << 30)
    assert "the metrics port" in played("ports", tmp_path).fault


def test_it_finds_a_table_without_a_bound(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The tables are found by walking the server's objects."""
    opened = BrokerServer._on_opened

    def remember(server: BrokerServer, endpoint: Any) -> None:
        vars(server).setdefault("leak", []).extend(range(500))
        opened(server, endpoint)

    monkeypatch.setattr(BrokerServer, "_on_opened", remember)
    assert played("plain", tmp_path).fault.startswith("BrokerServer.leak has ")


def test_it_finds_a_request_without_an_answer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Only the pulls that wait, and the ends of transactions that decide nothing, may have none."""
    monkeypatch.setattr("lockstep.broker.server.dispatch", lambda *_: None)
    fault = played("plain", tmp_path).fault
    assert "has no answer" in fault or "without an answer" in fault


def test_worlds_of_a_run() -> None:
    """All modes in turn, each world with its own number, and as many frames as were asked for."""
    worlds = list(worlds_of("all", 5, 132_000))
    assert sum(world.frames for world in worlds) == 132_000
    assert worlds[6].frames == 2_000
    assert [world.mode for world in worlds[:7]] == ["plain", "acl", "tls", "both", "client", "grpc", "ports"]
    assert len({(world.mode, world.number) for world in worlds}) == len(worlds)
    assert worlds[7].command == "python -m tests.fuzz.frames --mode plain --seed 5 --world 1 --frames 10000"


def test_what_is_kept_of_a_fault(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The command that shows it again, in a file and on the terminal."""
    monkeypatch.chdir(tmp_path)
    totals = Totals(1)
    report = Report(77, 70, {}, {}, 0.0, "", (0, ""), "it broke", ())
    totals.add(Played(World("acl", 5, 2, 20_000), report, 1, 10.0))
    (line,) = totals.faults
    assert "--mode acl --seed 5 --world 2 --frames 77" in line
    assert "it broke" in (tmp_path / "build/fuzz/acl-5-2.json").read_text()


def test_a_simulation_in_the_same_process_is_left_alone() -> None:
    """What measures callbacks here reads a clock that has no place in one, also at a collection of garbage."""

    async def scenario(_: object) -> None:
        gc.collect()

    simulate(scenario)
