"""Watches one run: what happens to its hosts, and each change of its brokers' lock tables.

It observes the world, its cluster and the locks of each broker. A watched run is the same run as one that is not:
nothing here awaits, draws or adds to the trace.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from lockstep.broker.ownership.answers import FenceAnswer, LockAnswer, LockOutcome
from lockstep.broker.ownership.changes import ChangeCause
from lockstep.client import MessageQueue
from lockstep.protocol.bodies.locks import LockBatchBody, LockTableRow
from lockstep.simulation.lab.cluster import TRACE, Cluster
from lockstep.simulation.lab.experiment import Experiment, Plan, PlayedWorld
from lockstep.simulation.lab.runner import Run, run_plan
from lockstep.simulation.machine.host import HostEvent
from lockstep.simulation.timeline.evidence import Evidence, HostChange, LockChange, LockEvent, Role
from lockstep.simulation.world import World

__all__ = ["Watch", "watched_run"]

_LOST: Final = "the broker ended, and has lost its locks"
_ENDED: Final = "its time was over"
# Why a lock is gone, in the words of the broker's journal and in words for people.
_WHY: Final = {
    ChangeCause.LEFT.value: "its owner left the group",
    ChangeCause.CONNECTION_LOST.value: "the connection of its owner ended",
    ChangeCause.LEASE_ENDED.value: _ENDED,
    ChangeCause.WITHDRAWN.value: "it could not be kept on the disk",
}
_ENDS: Final = frozenset({HostEvent.CRASHED, HostEvent.POWERED_OFF, HostEvent.LOST_POWER, HostEvent.LEFT})
_Key = tuple[str, MessageQueue]  # of a group


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
        self._tables: dict[str, dict[_Key, _Row]] = {}  # by broker
        world.when_changed.append(self._note)
        cluster.when_broker_started.append(self._watch_locks)

    def _note(self, host: str, event: HostEvent, text: str) -> None:
        self.evidence.hosts.append(HostChange(self._world.elapsed_ms, host, event, text))

    # Locks ---------------------------------------------------------------------------------------------------

    def _watch_locks(self, broker: str) -> None:
        ownership, runtime = self._cluster.core(broker).ownership, self._world.host(broker)
        cursor = ownership.journal.end

        def changed(asked: LockBatchBody | None, answers: Sequence[LockAnswer]) -> None:
            nonlocal cursor
            if asked is not None:
                self._refused(asked, answers)
            changes, cursor = ownership.journal.since(cursor, None, ownership.journal.end)
            why = {(change.consumer_group, change.queue): _WHY.get(change.cause, change.cause) for change in changes}
            self._look(broker, ownership.table.rows(runtime.now_ms()), why)

        ownership.when_changed.append(changed)
        ends = [one.at_ms for one in self.evidence.hosts if one.host == broker and one.event in _ENDS]
        self._look(broker, ownership.table.rows(runtime.now_ms()), {}, max(ends, default=0))

    def _refused(self, asked: LockBatchBody, answers: Sequence[LockAnswer]) -> None:
        now_ms, group, client_id = self._world.elapsed_ms, asked.consumer_group, asked.client_id
        for queue, outcome, other, *_, fence in answers:
            if not outcome.owned:
                why = "the table is full" if outcome is LockOutcome.TABLE_FULL else "another client has it"
                if fence is not FenceAnswer.OK:
                    why = fence.name
                refused = LockChange(now_ms, group, queue, LockEvent.REFUSED, client_id, why=why, other=other or "")
                self.evidence.locks.append(refused)

    def _look(
        self, broker: str, rows: Iterable[LockTableRow], why: Mapping[_Key, str], gone_ms: int | None = None
    ) -> None:
        """Compare the table with what it was.

        Args:
            why: of locks whose periods have ended since then.
            gone_ms: when the broker ended that had the locks; None: it lives.
        """
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
                text = _LOST if gone_ms is not None else why.get(key, _ENDED)
                self._changed(LockEvent.RELEASED, key, row, text, gone_ms)
        self._tables[broker] = found

    def _changed(self, event: LockEvent, key: _Key, row: _Row, why: str, at_ms: int | None = None) -> None:
        now_ms = self._world.elapsed_ms if at_ms is None else at_ms
        self.evidence.locks.append(LockChange(now_ms, *key, event, row.client_id, row.epoch, row.ends_ms, why))

    # The end -------------------------------------------------------------------------------------------------

    def finish(self, run: Run) -> Evidence:
        """All evidence, when the run is over."""
        evidence, findings = self.evidence, run.played.findings if run.played is not None else None
        evidence.settings = {"seed": run.plan.seed, **run.plan.described()}
        evidence.elapsed_ms, evidence.trace_hash = run.elapsed_ms, run.trace_hash
        evidence.error = f"{type(run.error).__name__}: {run.error}" if run.error is not None else ""
        evidence.log, evidence.addresses = self._cluster.log, self._world.addresses
        evidence.roles = {
            **dict.fromkeys(self._cluster.consumers, Role.CONSUMER),
            **dict.fromkeys(self._cluster.name_servers, Role.NAME_SERVER),
            **dict.fromkeys(self._cluster.brokers, Role.BROKER),
        }
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
