"""One world: a server, its peers, and an attack of some thousand frames on it."""

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any, Final, NamedTuple

from lockstep.broker.messages.sql import parser as _sql  # noqa: F401 - a broker loads it when it is switched on, in 60 ms
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.errors import ProtocolError
from lockstep.remoting.tls.session import TlsError
from tests.fuzz.frames.attack import Attack
from tests.fuzz.frames.census import largest_table
from tests.fuzz.frames.client import ClientWorld
from tests.fuzz.frames.grpc import GrpcWorld
from tests.fuzz.frames.oracle import Fault, answer_fault, protected, secrets_fault
from tests.fuzz.frames.peers import Peer
from tests.fuzz.frames.ports import PortsWorld
from tests.fuzz.frames.runtime import COLLECTIONS, FuzzRuntime, Turns
from tests.fuzz.frames.servers import FuzzLog, Watch, end_server, furnish, new_server, rng_of
from tests.fuzz.frames.words import Words

__all__ = ["TABLE_MAX", "TURN_MS_MAX", "Report", "play"]

TURN_MS_MAX: Final = 50
TABLE_MAX: Final = 5_000  # entries; every setting of a limit is below 1,000 in these worlds
_LOOK_EVERY: Final = 50  # frames between two looks at what is protected
_TAKE_EVERY: Final = 50  # frames between two looks at the answers of all peers
_SETTLE_STEPS: Final = 200
_SETTLE_MS: Final = 20_000  # a question of a client to another waits for 10 s at most
# Pulls wait for as long as they say. The end of a transaction without a decision has no answer, as in RocketMQ.
_UNANSWERED: Final = frozenset({RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE, RequestCode.END_TRANSACTION})


class Report(NamedTuple):
    """What a world showed.

    Args:
        frames: That were sent, or in a world with a fault those before it.
        requests: That reached a server, before its checks.
        answers: How many, by response code, and by persona.
        events: Of the server's log.
        longest_ms: The processor time of the longest callback; `longest` says what it was.
        largest: The entries of the largest table, and which it is.
        fault: Empty when all was well.
        stalls: The callbacks that computed for more than TURN_MS_MAX.
    """

    frames: int
    requests: int
    answers: dict[str, int]
    events: dict[str, int]
    longest_ms: float
    longest: str
    largest: tuple[int, str]
    fault: str
    stalls: tuple[str, ...]


class World:
    """A server under attack. Every step depends on mode, seed and number alone, but for the keys of TLS."""

    def __init__(self, mode: str, seed: int, number: int, folder: Path) -> None:
        self.mode = mode
        self.turns = Turns(TURN_MS_MAX * 1_000_000)
        self.log = FuzzLog()
        self.peers: dict[str, Peer] = {}
        self.watch = Watch(self.peers)
        self.runtime = FuzzRuntime(rng_of("server", mode, seed, number), self.turns)
        self.words = Words(rng_of("attack", mode, seed, number))
        self.server = new_server(mode, number, self.runtime, self.log, self.watch, folder)
        self.answers: Counter[str] = Counter()
        self.loop_errors: list[str] = []
        self._number = number
        self._folder = folder
        self._before: dict[Any, Any] = {}

    async def open(self) -> Attack:
        """Start the server, and make what the attack is about."""
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(
            lambda _, context: self.loop_errors.append(f"{context['message']}: {context.get('exception')!r}")
        )
        await self.server.start()
        copies = furnish(self.server, self.mode, self.runtime, self.peers, self.words, self._folder)
        if self._checks_state:
            self._before = self._protected()
        return Attack(self.mode, self._number, self.runtime, self.peers, self.words, copies, self._folder)

    @property
    def _checks_state(self) -> bool:
        return self.mode in ("acl", "both") and not Attack.is_of_admins(self.mode, self._number)

    def _protected(self) -> dict[Any, Any]:
        assert self.server.broker is not None
        assert self.server.name_server is not None
        return protected(self.server.broker, self.server.name_server, self.runtime.now_ms(), 0)

    def check(self) -> None:
        """Raises Fault for what the last frames brought about."""
        if self.log.faults:
            event, fields = self.log.faults[0]
            error = fields.get("exc_info")
            raise Fault(f"{event}: {fields.get('reason', fields)}") from error if isinstance(error, Exception) else None
        if self.loop_errors:
            raise Fault(f"the event loop reports {self.loop_errors[0]}")

    def check_state(self) -> None:
        """Raises Fault when something changed that no peer here may change."""
        if self._checks_state:
            now = self._protected()
            for key in self._before.keys() | now.keys():
                if self._before.get(key) != now.get(key):
                    raise Fault(f"{key} was {self._before.get(key)!s:.300} and is {now.get(key)!s:.300}")

    def take_answers(self, peer: Peer) -> None:
        """Raises Fault for an answer that cannot be read, that nobody waits for, or that must not be."""
        data = peer.read()
        if not data:
            return
        if (why := secrets_fault(peer, data)) is not None:
            raise Fault(f"{peer.persona}: {why}: {data!r:.600}")
        try:
            answers = peer.commands(data)
        except ProtocolError as error:
            raise Fault(f"the server sent what cannot be read: {error}") from None
        for answer in answers:
            if not answer.is_reply:
                peer.asked = [*peer.asked[-20:], answer.opaque]
                continue
            codes = peer.outstanding.get(answer.opaque)
            if not codes:
                raise Fault(f"an answer to no request: {answer}")
            code = codes.pop(0)
            if not codes:
                del peer.outstanding[answer.opaque]
            self.answers["success" if answer.code == 0 else f"code {answer.code}"] += 1
            self.answers[f"{peer.persona}: {'served' if answer.code == 0 else 'not served'}"] += 1
            if (why := answer_fault(peer, code, answer)) is not None:
                raise Fault(f"{peer.persona}: request {code}: {why}: {answer!r:.400}")

    async def end(self) -> None:
        """Let everything that waits end; then all requests of open connections must have their answers."""
        for peer in self.peers.values():
            peer.transport.unstick()
        for _ in range(_SETTLE_STEPS):
            self.runtime.advance(_SETTLE_MS // _SETTLE_STEPS)
            await asyncio.sleep(0)
            for peer in self.peers.values():
                self.take_answers(peer)
        self.check()
        self.check_state()
        for peer in self.peers.values():
            left = [code for codes in peer.outstanding.values() for code in codes if code not in _UNANSWERED]
            if left and peer.is_open and not peer.outside:  # an answer on a broken session cannot be read
                raise Fault(f"requests without an answer: codes {left[:10]}")
        await end_server(self.server, self.runtime)
        self.check()


async def _attack(world: World, frames: int, look_every: int) -> tuple[int, str]:
    """Returns the number of frames that were sent, and what went wrong."""
    done = 0
    try:
        attack = await world.open()
        while done < frames:
            world.turns.what = ""
            peer, count = attack.step(world.turns)
            done += count
            world.take_answers(peer)
            if done % 16 < count:
                await asyncio.sleep(0)
            if world.log.faults or world.loop_errors:
                world.check()
            if done % _TAKE_EVERY < count:  # apart from `look_every`, which must not change what comes
                for each in world.peers.values():
                    world.take_answers(each)
            if done % look_every < count:
                world.check_state()
        await world.end()
    except Fault as fault:
        cause = fault.__cause__
        return done, f"{fault}" + (f" ({_where(cause)})" if cause is not None else "")
    except (Exception, TlsError) as error:  # of the server, through a callback
        return done, f"{type(error).__name__}: {error} ({_where(error)})"
    return done, ""


def _where(error: BaseException) -> str:
    places = []
    trace = error.__traceback__
    while trace is not None:
        places.append(f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}")
        trace = trace.tb_next
    return " > ".join(places[-5:])


async def _attack_alone(world: ClientWorld | GrpcWorld | PortsWorld, frames: int) -> str:
    """What went wrong in a world that looks at its own answers."""
    errors: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: errors.append(str(context)))
    try:
        await world.play(frames)
    except Fault as fault:
        return str(fault)
    except Exception as error:
        return f"{type(error).__name__}: {error} ({_where(error)})"
    return errors[0] if errors else ""


def _play_alone(mode: str, seed: int, number: int, frames: int) -> Report:
    turns = Turns(TURN_MS_MAX * 1_000_000)
    with asyncio.Runner() as runner:
        world = runner.run(_new_world(_ALONE[mode], seed, number, turns))
        fault = runner.run(_attack_alone(world, frames))
    stalls = tuple(what for _, what in turns.over)
    found = (turns.longest_ns / 1e6, turns.longest, largest_table(world.server), fault, stalls)
    return Report(frames, world.requests, dict(world.answers), world.log.counts, *found)


_ALONE: Final[dict[str, type[ClientWorld | GrpcWorld | PortsWorld]]] = {
    "client": ClientWorld,
    "grpc": GrpcWorld,
    "ports": PortsWorld,
}


async def _new_world(
    kind: type[ClientWorld | GrpcWorld | PortsWorld], seed: int, number: int, turns: Turns
) -> ClientWorld | GrpcWorld | PortsWorld:
    return kind(seed, number, turns)


def play(mode: str, seed: int, number: int, frames: int, folder: Path, *, look_every: int = _LOOK_EVERY) -> Report:
    """Attack a new server with so many frames; in mode "client" a client, in mode "ports" the ports beside.

    Args:
        look_every: After so many frames the protected state is compared.
    """
    with COLLECTIONS.left_out():
        if mode in _ALONE:
            return _play_alone(mode, seed, number, frames)
        return _play_all(World(mode, seed, number, folder), frames, look_every)


def _play_all(world: World, frames: int, look_every: int) -> Report:
    with asyncio.Runner() as runner:
        done, fault = runner.run(_attack(world, frames, look_every))
    largest = largest_table(world.server)
    if not fault and largest[0] > TABLE_MAX:
        fault = f"{largest[1]} has {largest[0]} entries"
    return Report(
        done, world.watch.requests, dict(world.answers), world.log.counts, world.turns.longest_ns / 1e6,
        world.turns.longest, largest, fault, tuple(what for _, what in world.turns.over),
    )  # fmt: skip
