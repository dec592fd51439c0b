"""Watches one run: what happens to its hosts, and each change of its brokers' lock tables.

The watch replaces methods of the objects of this run. A run that is not watched has no cost, and a watched run is the
same run: nothing here awaits, draws or adds to the trace.
"""

from collections.abc import Callable
from functools import wraps
from typing import Any, Final, NamedTuple

from lockstep.broker.ownership.answers import FenceAnswer, LockOutcome
from lockstep.broker.server import BrokerServer
from lockstep.client import MessageQueue
from lockstep.simulation.lab.cluster import BROKER, TRACE, Cluster
from lockstep.simulation.lab.experiment import Experiment, Plan, PlayedWorld
from lockstep.simulation.lab.runner import Run, run_plan
from lockstep.simulation.runtime import SimRuntime
from lockstep.simulation.timeline.evidence import Evidence, HostChange, HostEvent, LockChange, LockEvent, Role
from lockstep.simulation.world import World

__all__ = ["Watch", "watched_run"]

# Methods of both lock tables after which the table is looked at, and what a lock that is gone then is said to be.
_CHANGES: Final = {
    "try_lock_batch": "it was claimed again",
    "renew_all": "",
    "unlock_batch": "unlocked",
    "client_left": "its owner left the group",
    "connection_ended": "the connection of its owner ended",
    "committed": "unlocked, and the last offset is stored",
    "due": "its time was over",
    "expire": "it was not renewed for long",
    "withdraw": "it could not be kept on the disk",
    "begin_epoch": "",
}
_ENDS: Final = frozenset({HostEvent.CRASHED, HostEvent.POWERED_OFF, HostEvent.LOST_POWER, HostEvent.LEFT})
_NOT_OWNED: Final = {LockOutcome.REFUSED, LockOutcome.TABLE_FULL}


class _Row(NamedTuple):
    client_id: str
    epoch: int
    since_ms: int
    ends_ms: int
    draining: bool


class Watch:
    """The evidence of a run, from before its first step on."""

    def __init__(self, world: World, cluster: Cluster, label: str) -> None:
        self.evidence = Evidence(label)
        self._world = world
        self._cluster = cluster
        self._generations: dict[str, int] = {}
        self._tables: dict[str, dict[tuple[str, MessageQueue], _Row]] = {}  # by broker
        self._at_end = False
        self._watch_hosts()
        self._watch_cluster()

    # Hosts ---------------------------------------------------------------------------------------------------

    def _note(self, host: str, event: HostEvent, text: str = "") -> None:
        if not self._at_end:
            self.evidence.hosts.append(HostChange(self._world.elapsed_ms, host, event, text))

    def _watch_hosts(self) -> None:
        world = self._world
        start, crash, power_cut, power_off = world.host, world.crash, world.power_cut, world.power_off

        def host(name: str, **options: Any) -> SimRuntime:
            runtime = start(name, **options)
            if self._generations.get(name) != runtime.host.generation:
                self._generations[name] = runtime.host.generation
                self.evidence.addresses[runtime.address] = name
                self._note(name, HostEvent.STARTED)
            return runtime

        def crashed(name: str, *, silently: bool = False) -> None:
            self._note(name, HostEvent.POWERED_OFF if silently else HostEvent.CRASHED)
            crash(name, silently=silently)

        def lost_power(name: str) -> None:
            self._note(name, HostEvent.LOST_POWER)
            power_cut(name)

        def all_off() -> None:
            self._at_end = True  # the scenario is over: this is no fault
            power_off()

        def noted(method: str, event: HostEvent, text: Callable[..., str]) -> None:
            act = getattr(world, method)

            @wraps(act)
            def replaced(name: str, *arguments: Any) -> None:
                self._note(name, event, text(*arguments))
                act(name, *arguments)

            setattr(world, method, replaced)

        for name, method in {"host": host, "crash": crashed, "power_cut": lost_power, "power_off": all_off}.items():
            setattr(world, name, method)
        noted("pause", HostEvent.STOPPED, str)
        noted("resume", HostEvent.CONTINUED, str)
        noted("suspend", HostEvent.SLEPT, str)
        noted("wake", HostEvent.WOKE, str)
        noted("set_clock", HostEvent.CLOCK_SET, lambda offset_ms, *_: f"{offset_ms:+,} ms")

    # The cluster ---------------------------------------------------------------------------------------------

    def _watch_cluster(self) -> None:
        cluster, roles = self._cluster, self.evidence.roles
        start_broker, start_name_server, consumer = cluster.broker, cluster.start_name_server, cluster.consumer
        leave, stop_broker = cluster.leave, cluster.stop_broker

        async def broker(name: str = BROKER, **settings: Any) -> BrokerServer:
            roles[name] = Role.BROKER
            self._note(name, HostEvent.STARTED)
            server = await start_broker(name, **settings)
            self._watch_locks(name, server)
            return server

        async def name_server(name: str, **settings: Any) -> None:
            roles[name] = Role.NAME_SERVER
            await start_name_server(name, **settings)

        async def start_consumer(name: str, **arguments: Any) -> Any:
            roles[name] = Role.CONSUMER
            self._note(name, HostEvent.STARTED)  # the host may live on after a shutdown of the client before
            return await consumer(name, **arguments)

        async def left(name: str) -> None:
            await leave(name)
            self._note(name, HostEvent.LEFT)

        async def stopped(name: str = BROKER) -> None:
            await stop_broker(name)
            self._note(name, HostEvent.LEFT)

        replaced = {"broker": broker, "start_name_server": name_server, "consumer": start_consumer, "leave": left,
                    "stop_broker": stopped}  # fmt: skip
        for method, function in replaced.items():
            setattr(cluster, method, function)

    # Locks ---------------------------------------------------------------------------------------------------

    def _watch_locks(self, broker: str, server: BrokerServer) -> None:
        assert server.broker is not None
        locks, runtime = server.broker.ownership.table, self._world.host(broker)

        def noted(method: str, why: str) -> None:
            act = getattr(locks, method)

            @wraps(act)
            def replaced(*arguments: Any, **named: Any) -> Any:
                answer = act(*arguments, **named)
                if method == "try_lock_batch":
                    self._refused(str(arguments[0]), str(arguments[1]), answer)
                self._look(broker, tuple(locks.rows(runtime.now_ms())), why)
                return answer

            setattr(locks, method, replaced)

        for method, why in _CHANGES.items():
            if hasattr(locks, method):
                noted(method, why)
        ends = [one.at_ms for one in self.evidence.hosts if one.host == broker and one.event in _ENDS]
        self._look(
            broker,
            tuple(locks.rows(runtime.now_ms())),
            "the broker ended, and has lost its locks",
            max(ends, default=0),
        )

    def _refused(self, group: str, client_id: str, answers: Any) -> None:
        for answer in answers:
            if answer.outcome in _NOT_OWNED:
                fence = answer.fence
                why = "the table is full" if answer.outcome is LockOutcome.TABLE_FULL else "another client has it"
                if fence is not FenceAnswer.OK:
                    why = fence.name
                self.evidence.locks.append(
                    LockChange(self._world.elapsed_ms, group, answer.queue, LockEvent.REFUSED, client_id,
                               why=why, other=answer.other or "")
                )  # fmt: skip

    def _look(self, broker: str, rows: Any, why: str, gone_ms: int | None = None) -> None:
        """Compare the table with what it was. `gone_ms`: when a lock that is not in it ended; None: now."""
        now_ms, known = self._world.elapsed_ms, self._tables.get(broker, {})
        found = {
            (row.consumer_group, row.queue): _Row(
                row.client_id, row.epoch or 0, now_ms - row.held_ms, now_ms + row.remaining_ms + 1, bool(row.draining)
            )
            for row in rows
        }
        for key, row in found.items():
            old = known.get(key)
            if row == old:
                continue
            event = LockEvent.RENEWED
            anew = row.since_ms > old.since_ms if old is not None and not row.epoch else False
            if old is None or row[:2] != old[:2] or anew:  # an epoch is enough to tell periods apart
                event = LockEvent.GRANTED
            elif row.draining and not old.draining:
                event = LockEvent.DRAINING
            self._changed(event, key, row, "")
        for key, row in known.items():
            if key not in found:
                self._changed(LockEvent.RELEASED, key, row, why, gone_ms)
        self._tables[broker] = found

    def _changed(
        self, event: LockEvent, key: tuple[str, MessageQueue], row: _Row, why: str, at_ms: int | None = None
    ) -> None:
        now_ms = self._world.elapsed_ms if at_ms is None else at_ms
        self.evidence.locks.append(LockChange(now_ms, *key, event, row.client_id, row.epoch, row.ends_ms, why))

    # The end -------------------------------------------------------------------------------------------------

    def finish(self, run: Run) -> Evidence:
        """All evidence, when the run is over."""
        evidence, findings = self.evidence, run.played.findings if run.played is not None else None
        evidence.settings = {"seed": run.plan.seed, **run.plan.described()}
        evidence.elapsed_ms, evidence.trace_hash = run.elapsed_ms, run.trace_hash
        evidence.error = f"{type(run.error).__name__}: {run.error}" if run.error is not None else ""
        evidence.log = self._cluster.log
        for host in evidence.addresses.values():
            if TRACE in self._world.disk(host).paths():
                evidence.records[host] = self._cluster.records(host)
        if findings is not None:
            evidence.bands = findings.bands
            self._judge([finding.kind for finding in findings.wrong], run.error is not None)
            evidence.findings = [one for one in findings.wrong if not one.kind.startswith(_OF_JUDGE)]
        return evidence

    def _judge(self, kinds: list[str], cut_short: bool) -> None:
        """The judge's violations, of the kinds that the experiment counts; of a run that was cut short all."""
        for violation in self._cluster.judge().violations:
            if str(violation.kind) in kinds:
                continue  # it is a finding itself, with its records
            if cut_short or f"{_OF_JUDGE}{violation.kind}" in kinds:
                self.evidence.violations.append(violation)
            else:
                self.evidence.allowed += 1


_OF_JUDGE: Final = "judge: "


class _Watched:
    """An experiment whose world is watched from the moment it is built."""

    def __init__(self, experiment: Experiment[Any], label: str) -> None:
        self._experiment, self._label = experiment, label
        self.watch: Watch | None = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._experiment, name)

    def build(self, world: World, plan: Plan) -> PlayedWorld:
        played = self._experiment.build(world, plan)
        self.watch = Watch(world, played.cluster, self._label)
        return played


def watched_run(experiment: Experiment[Any], plan: Plan, label: str) -> Evidence:
    """Run a plan, and keep what happened in it."""
    watched: Any = _Watched(experiment, label)
    run = run_plan(watched, plan)
    return watched.watch.finish(run) if watched.watch is not None else Evidence(label, error=str(run.error))
