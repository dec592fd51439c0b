"""What happened around a violation, in sentences: only what a log, a trace or a played fault says.

Faults are those that were played, locks those that the brokers logged, calls and offsets those of the traces.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final, NamedTuple

from lockstep.order import Record
from lockstep.simulation.lab.cluster import TRACE, Cluster
from lockstep.simulation.lab.cluster_log import LogLine
from lockstep.simulation.lab.durations import duration_words
from lockstep.simulation.lab.event_texts import EVENT_TEXTS
from lockstep.simulation.lab.faults.words import end_words, fault_words, named
from lockstep.simulation.lab.findings import Band, Finding, time_of
from lockstep.simulation.lab.names import Names
from lockstep.simulation.lab.runner import Run

__all__ = ["Fact", "at", "facts_of"]

_LONG_CALL_MS: Final = 1_000
_CALLS_MAX: Final = 4  # before the violation
_SHOWN: Final = ("positioned", "handled", "committed")
_OFFSETS: Final = re.compile(r"\b(?:offsets?|before) (\d+)\b")


class Fact(NamedTuple):
    at_ms: int  # virtual, since the start
    text: str


class _Call(NamedTuple):
    host: str
    begin_ms: int
    end_ms: int
    first: int
    last: int  # offset
    status: str

    @property
    def offsets(self) -> str:
        return f"offset {self.first}" if self.first == self.last else f"offsets {self.first} to {self.last}"


def facts_of(run: Run, finding: Finding) -> list[Fact]:
    """The facts up to a violation about its queue and the hosts that use it, in the order of time."""
    if run.played is None:
        return []
    cluster, findings = run.played.cluster, run.played.findings
    names = Names(findings.world, cluster)
    queue = "{}@{}:{}".format(*finding.queue.split("/")) if finding.queue.count("/") == 2 else ""
    records = list(_records(cluster, names, queue)) if queue else []
    calls = list(_calls(records))
    facts = [fact for band in findings.bands for fact in _fault(band, findings.bands, calls)]
    if queue:
        facts += _locks(cluster, names, queue)
        facts += _offsets(cluster.log, names, queue)
        facts += _last_commits(records, cluster.log, names, queue, finding.at_ms)
        facts += _noticed(cluster.log, names, queue)
        facts += [
            Fact(time_of(record), f"{host} began to read at offset {record['offset']}")
            for host, record in records
            if record["event"] == "positioned"
        ]
        facts += _shown_calls(calls, finding)
    before = [fact for fact in facts if fact.at_ms <= finding.at_ms]
    before.sort(key=lambda fact: fact.at_ms)
    return [*before, Fact(finding.at_ms, f"{finding.kind}: {names.in_text(finding.text)}")]


# Faults and calls --------------------------------------------------------------------------------------------


def _fault(band: Band, bands: Iterable[Band], calls: Iterable[_Call]) -> Iterator[Fact]:
    inside = next(
        (call for call in calls if call.host == band.target and call.begin_ms <= band.at_ms < call.end_ms), None
    )
    during = ""
    if inside is not None:  # of two hosts a sentence says whose call it is
        during = f", {f'during the call of {band.target}' if band.other else 'inside its call'} on {inside.offsets}"
    yield Fact(band.at_ms, fault_words(band) + during)
    if band.end_ms is not None and (text := end_words(band, bands)):
        yield Fact(band.end_ms, text)


def _records(cluster: Cluster, names: Names, queue: str) -> Iterator[tuple[str, Record]]:
    """What the traces of the hosts say about the queue: where they began to read, calls and commits."""
    for host in names.hosts:
        for record in cluster.records(host) if TRACE in names.world.disk(host).paths() else ():
            if record["event"] in _SHOWN and queue == "{topic}@{broker}:{queue_id}".format(**record):
                yield host, record


def _calls(records: Iterable[tuple[str, Record]]) -> Iterator[_Call]:
    handled = (one for one in records if one[1]["event"] == "handled")
    for (host, _), same in groupby(handled, lambda one: (one[0], one[1].get("begin_mono_ns", one[1]["mono_ns"]))):
        yield _call(host, [record for _, record in same])


def _call(host: str, records: list[Record]) -> _Call:
    first, last = records[0], records[-1]
    begin_ms = time_of({"mono_ns": first.get("begin_mono_ns", first["mono_ns"])})
    return _Call(host, begin_ms, time_of(last), first["offset"], last["offset"], str(last["status"]))


def _offsets_named(text: str) -> list[int]:
    """The offsets of the messages that the sentence of a violation is about."""
    return [int(offset) for offset in _OFFSETS.findall(text)]


def _shown_calls(calls: list[_Call], finding: Finding) -> Iterator[Fact]:
    """Those that run at the violation, long ones, and the last ones of each host before it; those of the messages that
    it names, or of a message without a call the nearest ones below and above it."""
    shown = [call for call in calls if call.begin_ms <= finding.at_ms]
    last: dict[str, list[_Call]] = {}
    for call in shown:
        last.setdefault(call.host, []).append(call)
    kept = {call for of_host in last.values() for call in of_host[-2:]}
    kept |= set([call for call in shown if call.end_ms - call.begin_ms >= _LONG_CALL_MS][-_CALLS_MAX:])
    for offset in _offsets_named(finding.text):
        kept |= _calls_about(shown, offset)
    for call in shown:
        if call in kept or call.end_ms >= finding.at_ms:
            length = f" until {at(call.end_ms)}" if call.end_ms > call.begin_ms else ""
            yield Fact(call.begin_ms, f"{call.host} handled {call.offsets}{length}{_answer(call.status)}")


def _calls_about(calls: list[_Call], offset: int) -> set[_Call]:
    own = [call for call in calls if call.first <= offset <= call.last]
    if own:
        return set(own[:_CALLS_MAX])
    below = max((call for call in calls if call.last < offset), key=lambda call: call.last, default=None)
    above = min((call for call in calls if call.first > offset), key=lambda call: call.first, default=None)
    return {call for call in (below, above) if call is not None}


def _answer(status: str) -> str:
    return "" if status in ("SUCCESS", "COMMIT", "CONSUME_SUCCESS") else f"; its listener answered {status}"


def at(time_ms: int) -> str:
    """A time of a run, or a duration, to the ms."""
    return f"{time_ms / 1000:.3f} s"


# Locks -------------------------------------------------------------------------------------------------------


def _locks(cluster: Cluster, names: Names, queue: str) -> Iterator[Fact]:
    """Grants and ends as the brokers logged them."""
    for line in cluster.log:
        if line.fields.get("queue") != queue or line.event not in _LOCK_EVENTS:
            continue
        broker, client = named(line.host), names.of_client(line.fields["client_id"])
        epoch = f" under epoch {line.fields['epoch']}" if "epoch" in line.fields else ""
        past = EVENT_TEXTS[line.event].past
        text = past.format(who=client, broker=broker, epoch=epoch, why=line.fields.get("why"))
        if line.event in _EXPIRED:
            old = names.of_client(line.fields.get("from_client_id", line.fields["client_id"]))
            life_ms, age_ms = cluster.core(line.host).config.lock_max_live_time_ms, line.fields["age_ms"]
            sign_ms = line.at_ms - age_ms
            if age_ms >= life_ms:
                ran_out = f"{old}'s lock ran out: it was renewed last at {at(sign_ms)}, and is kept for"
                yield Fact(sign_ms + life_ms, f"{ran_out} {duration_words(life_ms)}")
            else:
                kept = duration_words(life_ms)
                text += f", although {old}'s lock was renewed at {at(sign_ms)}, and is kept for {kept}"
        yield Fact(line.at_ms, text)


_EXPIRED: Final = ("lock_taken_over", "lock_reacquired_by_owner")
_LOCK_EVENTS: Final = (*_EXPIRED, "lock_granted", "lock_released", "lock_ended")


def _noticed(log: Iterable[LogLine], names: Names, queue: str) -> Iterator[Fact]:
    """What members noticed themselves."""
    for line in log:
        if line.event in _NOTICED and line.fields.get("queue") == queue:
            why = f": {names.in_text(line.fields['why'])}" if line.fields.get("why") else ""
            fields = {**line.fields, "who": line.host, "why": why}
            yield Fact(line.at_ms, EVENT_TEXTS[line.event].past.format(**fields))


_NOTICED: Final = ("lock_lost", "queue_dropped", "offset_illegal")


# Offsets and brokers -----------------------------------------------------------------------------------------


def _last_commits(
    records: Iterable[tuple[str, Record]], log: Iterable[LogLine], names: Names, queue: str, at_ms: int
) -> Iterator[Fact]:
    """The last commit of each host before the violation, and whether the broker got it. Most commits are one-way."""
    last = {host: record for host, record in records if record["event"] == "committed" and time_of(record) <= at_ms}
    stored = [line for line in log if line.event == "offset stored" and line.fields["queue"] == queue]
    for host, record in last.items():
        offset, sent_ms, kind = record["offset"], time_of(record), "commit"
        if "begin_mono_ns" in record:  # under an epoch a commit is recorded when it is answered
            sent_ms, kind = time_of({"mono_ns": record["begin_mono_ns"]}), "answered commit"
        arrived = next((line for line in stored if _is_of(line, names, host, offset) and line.at_ms >= sent_ms), None)
        got = "the broker never got it"
        if arrived is not None:
            got = f"{named(arrived.host)} stored it at {at(arrived.at_ms)}"
        yield Fact(sent_ms, f"{host} sent its last {kind} before this, offset {offset}; {got}")


def _is_of(stored: LogLine, names: Names, host: str, offset: int) -> bool:
    """Whether a host's commit of an offset was stored then: another one may commit the same."""
    return stored.fields["offset"] == offset and names.of_peer(stored.fields["peer"]) == host


def _offsets(log: Iterable[LogLine], names: Names, queue: str) -> Iterator[Fact]:
    place, _, queue_id = queue.rpartition(":")
    topic, _, broker = place.partition("@")
    since: dict[int, LogLine] = {}  # offset -> when it was stored last, of those that changed the stored one
    now: int | None = None
    for line in log:
        fields = line.fields
        if line.host != broker:
            continue
        if line.event == "offsets_reset" and fields["topic"] == topic:
            yield Fact(line.at_ms, f"{named(broker)} told the members to go back to an earlier offset")
        elif line.event == "offset stored" and fields["queue"] == queue:
            if fields["offset"] != now:
                now = fields["offset"]
                since[now] = line
        elif (fields.get("topic"), str(fields.get("queue_id"))) != (topic, queue_id):
            continue
        elif line.event == "offset_committed_backwards":
            by, offset, before = names.of_peer(fields["peer"]), fields["committed_offset"], fields["before"]
            if before in since:
                stored = since[before]
                peer = names.of_peer(stored.fields["peer"])
                yield Fact(stored.at_ms, f"{named(broker)} stored offset {before} for the group, a commit of {peer}")
            yield Fact(line.at_ms, f"{by} committed offset {offset}, and {named(broker)} had {before}")
        elif line.event == "offset_out_of_bounds":
            text = f"a pull asked for offset {fields['asked_offset']}, which the queue does not have"
            yield Fact(line.at_ms, f"{text}; the answer named {fields['next_offset']}")
