"""A small model for `lock_states`: a client, two brokers with one queue each, and requests that overtake each other."""

from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

from lockstep.client.consumer.ownership.lock_states import NO_LOCK, LockAction, LockState, LockStep, Outcome, QueueLock

__all__ = ["Budget", "Move", "World", "check", "is_settled", "moves"]

NOBODY, ME, RIVAL = range(3)
TIMED = (LockState.UNLOCK_DUE, LockState.IN_DOUBT)


class Stage(IntEnum):
    SENT = 0
    GRANTED = 1
    REFUSED = 2
    UNLOCKED = 3
    FAILED = 4
    DROPPED = 5


class Request(NamedTuple):
    """`call`: the lock call that waits for it; -1 when nothing waits, as for an unlock."""

    is_lock: bool
    queue: int
    call: int
    stage: Stage = Stage.SENT
    connected: bool = True


class Call(NamedTuple):
    """`answers` of the queues it asked for; None where it still waits."""

    number: int
    answers: tuple[tuple[int, Outcome | None], ...]


class Budget(NamedTuple):
    """How often each may still happen."""

    calls: int = 2
    unlocks: int = 1
    timeouts: int = 1
    losses: int = 1
    failures: int = 0
    rivals: int = 1
    fences: int = 0


EPOCH = 7  # of all grants; with a budget for fences


class World(NamedTuple):
    """By queue: what the client knows, whether it is in its table, whether it believes in the lock, the owner at the
    broker, the timer."""

    budget: Budget
    locks: tuple[QueueLock, ...] = (NO_LOCK, NO_LOCK)
    table: tuple[bool, ...] = (False, False)
    believes: tuple[bool, ...] = (False, False)
    owners: tuple[int, ...] = (NOBODY, NOBODY)
    timers: tuple[bool, ...] = (False, False)
    calls: tuple[Call, ...] = ()
    requests: tuple[Request, ...] = ()


class Move(NamedTuple):
    name: str
    world: World
    is_free: bool = True  # it costs nothing of the budget: it happens sooner or later


def _put(values: tuple, index: int, value: object) -> tuple:  # type: ignore[type-arg]
    return (*values[:index], value, *values[index + 1 :])


def _pay(world: World, name: str) -> World:
    return world._replace(budget=world.budget._replace(**{name: getattr(world.budget, name) - 1}))


def _with_request(world: World, old: Request | None, new: Request | None) -> World:
    requests = list(world.requests)
    if old is not None:
        requests.remove(old)
    if new is not None:
        requests.append(new)
    return world._replace(requests=tuple(sorted(requests)))


def _do(world: World, queue: int, step: LockStep) -> World:
    """What the shell does: keep the lock, send, start and stop timers."""
    world = world._replace(locks=_put(world.locks, queue, step.lock))
    for action in step.actions:
        if action is LockAction.UNLOCK:
            world = _with_request(world, None, Request(False, queue, -1))
        elif action is LockAction.STOP_TIMER:
            assert world.timers[queue], "a timer is stopped that does not run"
            world = world._replace(timers=_put(world.timers, queue, False))
        elif action is not LockAction.LOG_GIVEN_UP:
            world = world._replace(timers=_put(world.timers, queue, True))
    return world


def check(world: World) -> None:
    """What must hold at every moment."""
    for queue, lock in enumerate(world.locks):
        assert not world.believes[queue] or world.owners[queue] == ME, "the client believes in a lock that is gone"
        assert world.timers[queue] == (lock.state in TIMED), f"timer {world.timers[queue]} in {lock.state.name}"
        unlocks = [request for request in world.requests if not request.is_lock and request.queue == queue]
        assert len(unlocks) == (not lock.may_ask), f"{len(unlocks)} unlocks under way in {lock.state.name}"
        assert (lock.calls > 0) == (lock.state in (LockState.ASKING, LockState.ASKING_UNWANTED))
    if is_settled(world):
        for queue, lock in enumerate(world.locks):
            assert world.owners[queue] != ME or world.table[queue], "a lock stays that nobody wants"
            assert lock.doubts == 0
            assert lock.state is LockState.FREE or (lock.state is LockState.HELD and world.table[queue])


def is_settled(world: World) -> bool:
    return not (world.requests or world.calls or any(world.timers))


def moves(world: World) -> Iterator[Move]:
    """All that may happen next."""
    yield from _client_moves(world)
    if world.budget.fences:
        yield from _fence_moves(world)
    for request in dict.fromkeys(world.requests):
        yield from _request_moves(world, request)
    for call in world.calls:
        if all(answer is not None for _, answer in call.answers):
            yield from _call_ends(world, call)
    for queue, owner in enumerate(world.owners):
        if owner == RIVAL:
            yield Move("rival leaves", world._replace(owners=_put(world.owners, queue, NOBODY)))
        elif owner == NOBODY and world.budget.rivals:
            taken = _pay(world, "rivals")
            yield Move("rival locks", taken._replace(owners=_put(world.owners, queue, RIVAL)), False)


def _fence_moves(world: World) -> Iterator[Move]:
    """A lease ends, first by the client's clock; then the broker refuses a request under its epoch."""
    for queue, lock in enumerate(world.locks):
        if world.owners[queue] == ME:
            if _is_being_granted(world, queue):
                continue  # whoever takes a grant looks at its lease first
            gone = _pay(world, "fences")._replace(
                owners=_put(world.owners, queue, NOBODY), believes=_put(world.believes, queue, False)
            )
            yield Move(f"lease {queue} ends", gone, False)
        elif lock.epoch:
            over = _pay(world, "fences")._replace(
                table=_put(world.table, queue, False), believes=_put(world.believes, queue, False)
            )
            yield Move(f"fenced {queue}", _do(over, queue, lock.fenced(lock.epoch)), False)


def _is_being_granted(world: World, queue: int) -> bool:
    answers = [answer for call in world.calls for asked, answer in call.answers if asked == queue]
    stages = [request.stage for request in world.requests if request.is_lock and request.queue == queue]
    return Outcome.GRANTED in answers or Stage.GRANTED in stages


def _client_moves(world: World) -> Iterator[Move]:
    if world.budget.calls:
        for wanted in ((0, 1), (0,)):  # the queues are alike: (1,) would add nothing
            if all(world.locks[queue].may_ask for queue in wanted):
                yield Move(f"call {wanted}", _call(_pay(world, "calls"), wanted), False)
    for queue, lock in enumerate(world.locks):
        if world.timers[queue]:
            fired = world._replace(timers=_put(world.timers, queue, False))
            yield Move(f"timer {queue}", _do(fired, queue, lock.timer(in_table=world.table[queue])))
        if world.budget.unlocks:  # also of what is not its own
            gone = _pay(world, "unlocks")._replace(
                table=_put(world.table, queue, False), believes=_put(world.believes, queue, False)
            )
            yield Move(f"unlock {queue}", _do(gone, queue, lock.unlock()), False)
            yield Move(f"unlock later {queue}", _do(gone, queue, lock.unlock_later()), False)
        if world.budget.losses and any(r.queue == queue and r.connected for r in world.requests):
            yield Move(f"connection {queue} ends", _lose(_pay(world, "losses"), queue), False)


def _call(world: World, wanted: tuple[int, ...]) -> World:
    number = min(set(range(9)) - {call.number for call in world.calls})
    for queue in wanted:
        world = _do(world, queue, world.locks[queue].ask())
        world = _with_request(world, None, Request(True, queue, number))
    call = Call(number, tuple((queue, None) for queue in wanted))
    return world._replace(calls=tuple(sorted((*world.calls, call), key=lambda c: c.number)))


def _answer(world: World, number: int, queue: int, outcome: Outcome) -> World:
    calls = tuple(
        call._replace(answers=tuple((q, outcome if q == queue else answer) for q, answer in call.answers))
        if call.number == number
        else call
        for call in world.calls
    )
    return world._replace(calls=calls)


def _call_ends(world: World, call: Call) -> Iterator[Move]:
    """The caller takes what was granted, or does not want it any more."""
    for takes in (True, False):
        after = world._replace(calls=tuple(other for other in world.calls if other is not call))
        for queue, outcome in call.answers:
            assert outcome is not None
            lock, in_table = after.locks[queue], after.table[queue]
            after = _do(after, queue, lock.end(outcome, in_table=in_table))
            if takes and outcome is Outcome.GRANTED and lock.is_wanted and not in_table:
                after = after._replace(table=_put(after.table, queue, True), believes=_put(after.believes, queue, True))
        yield Move(f"call {call.number} ends, {takes=}", after)


def _unheard(world: World, request: Request, connected: bool) -> World:
    """A lock call waits no longer for this request."""
    world = _with_request(world, request, request._replace(call=-1, connected=connected))
    world = _do(world, request.queue, world.locks[request.queue].doubt())
    return _answer(world, request.call, request.queue, Outcome.UNKNOWN)


def _lose(world: World, queue: int) -> World:
    for request in world.requests:
        if request.queue != queue or not request.connected:
            continue
        if request.call >= 0:
            world = _unheard(world, request, False)
        else:
            world = _with_request(world, request, request._replace(connected=False))
    return world


def _request_moves(world: World, request: Request) -> Iterator[Move]:
    queue = request.queue
    if request.stage is Stage.SENT:
        yield Move(f"handled {request}", _handle(world, request))
        if not request.connected:
            yield Move(f"dropped {request}", _with_request(world, request, request._replace(stage=Stage.DROPPED)))
        if not request.is_lock and world.budget.failures:
            failed = _with_request(_pay(world, "failures"), request, request._replace(stage=Stage.FAILED))
            yield Move(f"failed {request}", failed, False)
    elif request.connected:
        yield Move(f"answered {request}", _answered(world, request))
    elif request.is_lock:
        gone = _with_request(world, request, None)
        yield Move(f"lapsed {request}", _do(gone, queue, gone.locks[queue].end_doubt(perhaps_granted=True)))
    else:
        gone = _with_request(world, request, None)
        yield Move(f"lapsed {request}", _do(gone, queue, gone.locks[queue].unlock_failed(lapsed=True)))
    if request.call >= 0 and world.budget.timeouts:
        yield Move(f"timeout {request}", _unheard(_pay(world, "timeouts"), request, True), False)


def _handle(world: World, request: Request) -> World:
    queue, owner = request.queue, world.owners[request.queue]
    if request.is_lock:
        stage = Stage.REFUSED if owner == RIVAL else Stage.GRANTED
        owner = ME if owner == NOBODY else owner
    else:
        stage = Stage.UNLOCKED
        owner = NOBODY if owner == ME else owner
    world = world._replace(owners=_put(world.owners, queue, owner))
    return _with_request(world, request, request._replace(stage=stage))


def _answered(world: World, request: Request) -> World:
    queue = request.queue
    world, lock = _with_request(world, request, None), world.locks[request.queue]
    if request.stage is Stage.UNLOCKED:
        return _do(world, queue, lock.unlocked())
    if request.stage is Stage.FAILED:
        return _do(world, queue, lock.unlock_failed(lapsed=False))
    granted = request.stage is Stage.GRANTED
    if request.call < 0:
        return _do(world, queue, lock.end_doubt(perhaps_granted=granted, epoch=EPOCH if world.budget.fences else 0))
    if not granted:  # a renewal that is refused: the lock is lost
        world = world._replace(believes=_put(world.believes, queue, False))
    elif world.budget.fences:
        world = _do(world, queue, lock.granted(EPOCH))
    return _answer(world, request.call, queue, Outcome.GRANTED if granted else Outcome.REFUSED)
