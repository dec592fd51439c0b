"""What may happen to the members and the broker of a random world: each fault of a plan, and healing."""

import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

from lockstep.client import ClientError, MessageQueue
from lockstep.client.admin.client import AdminClient
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.command import RemotingCommand
from lockstep.remoting.errors import RemotingError
from lockstep.simulation.errors import HostCrashedError
from lockstep.simulation.lab.cluster import BROKER
from lockstep.simulation.lab.experiment import FaultEvent
from lockstep.simulation.lab.faults.table import act, holding, in_table, latency
from lockstep.simulation.lab.findings import Findings, Wrong, place_of
from lockstep.simulation.lab.hosts import GROUP, TOPIC
from lockstep.simulation.worlds.calls import Calls
from lockstep.simulation.worlds.plan import MEMBERS, Fault, Store, WorldPlan
from lockstep.simulation.worlds.settings import broker_settings, member_settings
from lockstep.simulation.worlds.watched import WatchedCluster
from lockstep.store.format.lock_table import LOCK_TABLE

__all__ = ["BUSY", "Faults"]

BUSY: Final = "busy"  # not of those that `worlds` draws
_ADMIN: Final = "admin"
_RESET_BACK_MS: Final = 20_000


@dataclass
class Faults:
    """`states`: of each member "down", "changes" while it starts or ends, or "up"."""

    plan: WorldPlan
    cluster: WatchedCluster
    findings: Findings
    calls: Calls
    fenced: bool
    on_broker_started: Callable[[bool, bool], None]  # whether its log may have lost messages, and its locks are lost
    states: dict[str, str] = field(default_factory=lambda: dict.fromkeys(MEMBERS, "down"))
    ends: dict[int, int] = field(default_factory=dict)  # of the queues, when the broker ended last
    busy_percent: int = 0  # of the requests to brokers that are refused unread
    _broker_changes: bool = False
    _clock_max_ms: int = 0  # how far a clock was ahead

    def __post_init__(self) -> None:
        self._rng = random.Random(f"{self.plan.seed}/busy")

    async def play(self, event: FaultEvent) -> None:
        """Do what the event says, if its member or the broker is in a state for it."""
        if not self._is_possible(event):
            return
        self.findings.saw(str(event.fault))
        world, row = self.cluster.world, in_table(event)
        band = self.findings.begin(event.fault, row.target, row.other)
        try:
            if event.fault in _ACTIONS:
                await _ACTIONS[event.fault](self, event)
            else:
                part = 2 if event.fault == Fault.BROKER_STALL else 1
                await act(self.cluster, row._replace(duration_ms=max(event.duration_ms // part, 1)))
        except HostCrashedError:
            pass  # another event ended the host meanwhile
        if event.fault not in _ONE_MOMENT and world.elapsed_ms > band.at_ms:
            band.end_ms = world.elapsed_ms

    def _is_possible(self, event: FaultEvent) -> bool:
        of_broker = event.fault in _OF_BROKER or BROKER in (event.target, event.other)
        if of_broker and (self._broker_changes or not self.cluster.world.host(BROKER).host.can_run):
            return False
        if event.fault == Fault.JOIN:
            return self.states[event.target] == "down"
        members = [name for name in (event.target, event.other) if name in self.states]
        return (
            event.fault == Fault.RESET
            or event.fault in _OF_BROKER
            or all(self.states[name] == "up" for name in members)
        )

    # Members -------------------------------------------------------------------------------------------------

    async def join(self, event: FaultEvent) -> None:
        await self.start_member(event.target)

    async def start_member(self, name: str) -> None:
        plan, runtime = self.plan, self.cluster.world.host(name)
        fenced = self.fenced and not plan.unmodified[MEMBERS.index(name)]
        self.states[name] = "changes"
        listener = self.calls.listener(runtime, plain=plan.plain[MEMBERS.index(name)])
        arguments: dict[str, Any] = member_settings(plan, name, fenced=fenced)
        if fenced:
            arguments["on_acquired"] = self._raise_fence
        try:
            await self.cluster.consumer(name, listener=listener, **arguments)
        except (ClientError, RemotingError):
            self.findings.saw("joins failed")
            self._end(name)
        except HostCrashedError:
            self.states[name] = "down"
        else:
            self.states[name] = "up"

    def _raise_fence(self, queue: MessageQueue, epoch: int) -> None:
        self.calls.database.raise_fence(queue, epoch)

    def _end(self, name: str, *, silently: bool = False) -> None:
        self.calls.died(str(self.cluster.world.host(name).host))
        self.cluster.crash(name, silently=silently)
        self.states[name] = "down"

    async def leave(self, event: FaultEvent) -> None:
        self.states[event.target] = "changes"
        try:
            await self.cluster.leave(event.target)
            self._end(event.target)  # a member that joins again is another process
        finally:
            self.states[event.target] = "down"

    async def crash(self, event: FaultEvent) -> None:
        self._end(event.target, silently=event.fault == Fault.POWER_OFF)
        if event.fault in (Fault.RESTART, Fault.CLOCK):
            if event.fault == Fault.CLOCK:
                self._set_clock(event.target, event)
            self.states[event.target] = "changes"
            await self.cluster.world.sleep_ms(event.duration_ms // 10)
            await self.start_member(event.target)

    def _set_clock(self, host: str, event: FaultEvent) -> None:
        offset_ms = event.duration_ms * (1000 if event.duration_ms % 2 else -1000)
        self.cluster.world.set_clock(host, offset_ms)
        self._clock_max_ms = max(self._clock_max_ms, offset_ms)

    async def slow_answers(self, event: FaultEvent) -> None:
        """Renewals are just answered in time; then no answer comes for a lease."""
        world, member, plan = self.cluster.world, event.target, self.plan
        delays_us = 800 * plan.lock_timeout_ms, 900 * plan.lock_timeout_ms
        late, held = latency(self.cluster, BROKER, member, lambda: delays_us), holding(self.cluster, BROKER, member)
        self.cluster.changes.begin(late)
        await world.sleep_ms(plan.lease_ms + event.duration_ms)
        if not world.healed:
            self.cluster.changes.begin(held)
            await world.sleep_ms(plan.lease_ms)
            self.cluster.changes.end(held)
        self.cluster.changes.end(late)

    # The broker ----------------------------------------------------------------------------------------------

    async def restart_broker(self, event: FaultEvent) -> None:
        self._broker_changes = True
        store = self.cluster.store()
        self.ends = {queue_id: store.max_offset(TOPIC, queue_id) for queue_id in range(self.plan.queues)}
        shrinks = self.plan.store is Store.MEMORY
        if event.fault == Fault.BROKER_STOP:
            await self.cluster.stop_broker()
        elif event.fault == Fault.BROKER_POWER_CUT:
            self.cluster.power_cut()
            shrinks = self.plan.store is not Store.SYNC
        else:
            self.cluster.crash(BROKER)
        if event.fault == Fault.BROKER_CLOCK:
            self._set_clock(BROKER, event)
        elif event.fault == Fault.BROKER_TABLE_LOST:
            self._lose_locks()
        await self.cluster.world.sleep_ms(event.duration_ms // 4)
        await self.start_broker(log_may_shrink=shrinks, table_lost=event.fault == Fault.BROKER_TABLE_LOST)
        forgotten = self.cluster.forgotten_offsets(BROKER, ended_well=event.fault == Fault.BROKER_STOP)
        for queue, text in forgotten if not shrinks else ():
            self.findings.add(Wrong.OFFSETS_FORGOTTEN, f"{queue}: {text}", queue=place_of(queue))
        self.findings.saw("broker restarts")
        self._broker_changes = False

    def _lose_locks(self) -> None:
        """Without the file only a clock that is right says which epochs were given."""
        disk = self.cluster.world.disk(BROKER)
        self.cluster.world.set_clock(BROKER, self._clock_max_ms)
        for path in disk.paths():
            if path.endswith(LOCK_TABLE):
                disk.delete(path)

    async def start_broker(self, name: str = BROKER, *, log_may_shrink: bool = False, table_lost: bool = False) -> None:
        plan = self.plan
        self.cluster.world.disk(name).sync_ms = plan.sync_ms
        await self.cluster.broker(name, queues=plan.queues, **broker_settings(plan, fenced=self.fenced))
        self.cluster.witness_offsets(plan.queues, name)
        self.on_broker_started(log_may_shrink, table_lost)

    async def busy(self, event: FaultEvent) -> None:
        self.busy_percent = event.amount
        await self.cluster.world.sleep_ms(event.duration_ms)
        self.busy_percent = 0

    def refuses(self, command: RemotingCommand) -> bool:
        """Whether a broker refuses a request now."""
        if not self.busy_percent or command.code not in _REFUSED or command.is_one_way:
            return False
        return self._rng.randrange(100) < self.busy_percent

    async def reset(self, _: FaultEvent) -> None:
        """An administrator moves the group's offsets back."""
        self.calls.database.resets = True
        cluster, runtime = self.cluster, self.cluster.world.host(_ADMIN)
        admin = AdminClient(name_server=cluster.name_server, runtime=runtime, log=cluster.log_of(_ADMIN))
        try:
            await runtime.run(admin.start())
            await runtime.run(admin.reset_offsets(GROUP, TOPIC, cluster.world.now_ms - _RESET_BACK_MS, force=False))
        except (ClientError, RemotingError):
            self.findings.saw("resets refused")
        finally:
            await runtime.run(admin.shutdown())

    # The end -------------------------------------------------------------------------------------------------

    async def heal(self) -> None:
        """Let everything run, and have at least one member."""
        world = self.cluster.world
        for name in MEMBERS:
            member = world.host(name).host
            if member.asleep:
                world.wake(name)
            if member.paused:
                world.resume(name)
        for name in self.plan.brokers:
            if world.host(name).host.paused:
                world.resume(name)
        for one, other in sorted(self.cluster.deaf_links):
            world.cut(one, other)  # as TCP gives up an end whose bytes nobody acknowledges
        if all(state == "down" for state in self.states.values()):
            await self.start_member(MEMBERS[0])


_ONE_MOMENT: Final = (Fault.JOIN, Fault.LEAVE, Fault.CRASH, Fault.POWER_OFF, Fault.RESET)
_OF_BROKER: Final = frozenset(fault for fault in Fault if fault.startswith("broker "))
_REFUSED: Final = frozenset(
    {
        *(RequestCode.SEND_MESSAGE_V2, RequestCode.PULL_MESSAGE, RequestCode.CONSUMER_SEND_MSG_BACK),
        *(RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.GET_CONSUMER_LIST_BY_GROUP),
        *(RequestCode.LOCK_BATCH_MQ, RequestCode.UNLOCK_BATCH_MQ, RequestCode.RESET_OWN_OFFSET),
    }
)
_ACTIONS: Final[dict[str, Callable[[Faults, FaultEvent], Awaitable[None]]]] = {
    Fault.JOIN: Faults.join,
    Fault.LEAVE: Faults.leave,
    **dict.fromkeys((Fault.CRASH, Fault.POWER_OFF, Fault.RESTART, Fault.CLOCK), Faults.crash),
    **dict.fromkeys(
        (Fault.BROKER_STOP, Fault.BROKER_KILL, Fault.BROKER_POWER_CUT, Fault.BROKER_CLOCK, Fault.BROKER_TABLE_LOST),
        Faults.restart_broker,
    ),
    Fault.SLOW_ANSWERS: Faults.slow_answers,
    Fault.RESET: Faults.reset,
    BUSY: Faults.busy,
}
