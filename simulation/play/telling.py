"""What happens in a run, in sentences: from its log, its tables, its traces, its faults and the ends of its hosts.

It reads what is there already, when it is asked: nothing here awaits, draws or adds to the trace.
"""

from typing import Final, NamedTuple

from lockstep.client import MessageQueue
from lockstep.order import Record
from lockstep.protocol.names import is_retry_topic
from lockstep.simulation.articles.narration import number
from lockstep.simulation.lab.cluster import Cluster
from lockstep.simulation.lab.cluster_log import LogLine
from lockstep.simulation.lab.event_texts import EVENT_TEXTS, EventText, Focus
from lockstep.simulation.lab.faults.fault import Halts
from lockstep.simulation.lab.faults.table import fault_named
from lockstep.simulation.lab.faults.words import begin_sentence, end_sentence, named
from lockstep.simulation.lab.findings import Band, queue_of, time_of
from lockstep.simulation.lab.log_sentences import LogSentence, LogSentences, listed, queue_numbers
from lockstep.simulation.lab.recorded_cluster import RecordedCluster
from lockstep.simulation.lab.said import Said, say, told
from lockstep.simulation.machine.host import HostEvent
from lockstep.simulation.play.record_words import GOOD, PLAIN, queue_words, record_words
from lockstep.simulation.play.scene import Json, queue_id

__all__ = ["OF_HOST", "UNSENT", "Telling", "Told"]

_MOST: Final = 2000  # sentences of one reading, and as many about single messages
_SELDOM_MS: Final = 60_000
_NEVER_MS: Final = -(10**9)
_CALLS: Final = "calls"
_FOCUS: Final = {
    Focus.LIFE: "life", Focus.MEMBERS: "members", Focus.QUEUES: "queues", Focus.LOCKS: "locks", Focus.CACHE: "queues",
    Focus.OFFSETS: "offsets", Focus.PULLS: "pulls", Focus.CALLS: "listener", Focus.SENDS: "sends",
    Focus.RETRIES: "retries", Focus.RETRY_QUEUE: "retries",
}  # fmt: skip
OF_HOST: Final = {
    HostEvent.STARTED: "{host} starts.",
    HostEvent.CRASHED: "{host} is killed.",
    HostEvent.POWERED_OFF: "The machine of {host} loses its power.",
    HostEvent.LOST_POWER: "The machine of {host} loses its power; its disk loses what was not synced.",
    HostEvent.LEFT: "{host} has shut down.",
    HostEvent.STOPPED: "{host} is stopped: nothing of it runs, its connections stay.",
    HostEvent.CONTINUED: "{host} goes on.",
    HostEvent.SLEPT: "The machine of {host} sleeps.",
    HostEvent.WOKE: "The machine of {host} wakes.",
    HostEvent.CLOCK_SET: "The wall clock of {host} is set: {text}.",
}
_LIFE: Final = frozenset({*OF_HOST} - {HostEvent.CLOCK_SET})
UNSENT: Final = {
    "refused": "the broker refuses it",
    "unknown": "it gets no answer, and the message may be stored",
    "not_sent": "it could not be sent",
}


class Told(NamedTuple):
    """What is new, as the page has it, each in order of time.

    Args:
        story: sentences.
        calls: sentences about single messages: those of one key or one queue are for who follows it.
    """

    story: list[Json]
    calls: list[Json]
    marks: list[Json]


class Telling:
    """Tells one run. It is made before the run's first step."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._log = LogSentences(cluster, _text_of)
        self._log_read = self._witnessed_read = self._bands_read = 0
        self._traces_read: dict[str, int] = {}  # bytes, by host
        self._key_numbers: dict[str, int] = {}
        self._new: list[Json] = []
        self._calls: list[Json] = []
        self._marks: list[Json] = []
        self._lasting: list[Band] = []
        self._happened: tuple[int, str, object] = (-1, "", "")  # to a host, last
        self._renewed_ms: dict[str, tuple[str, int]] = {}  # by queue: the owner, and when it renewed its lock
        self._owners: dict[str, str] = {}  # by queue, the last one
        self._stored: dict[str, int] = {}  # by queue, the offset
        self._seldom: dict[object, int] = {}
        self._world.when_changed.append(self._changed)
        if isinstance(cluster, RecordedCluster):
            cluster.on_act = self._acted

    def read(self, scene: Json) -> Told:
        """What happened since the last reading.

        Args:
            scene: of this moment, with the tables.
        """
        self._key_numbers = {name: place for place, name in enumerate(scene["key_names"])}
        self._tell_log()
        self._tell_renewals(scene)
        self._tell_stored()
        self._tell_bands()
        self._tell_records()
        parts = (self._new[-_MOST:], self._calls[-_MOST:], self._marks)
        told = Told(*[sorted(part, key=lambda one: one["at_ms"]) for part in parts])
        self._new, self._calls, self._marks = [], [], []
        return told

    def _tell(
        self, at_ms: int, host: str, text: str, focus: str, queues: tuple[str, ...] = (), key: str | None = None
    ) -> None:
        queue = queues[0] if len(queues) == 1 else ""
        line = {"at_ms": at_ms, "host": host, **told(text), "queue": queue, "queues": queues}
        line["key"] = self._key_numbers.get(key) if key is not None else None
        (self._calls if focus == _CALLS else self._new).append({**line, "focus": focus})

    def _mark(self, at_ms: int, kind: str, text: str) -> None:
        self._marks.append({"at_ms": at_ms, "kind": kind, **told(text)})

    def _is_due(self, key: object, at_ms: int) -> bool:
        """Whether what is told seldom is told now."""
        due = at_ms - self._seldom.get(key, _NEVER_MS) >= _SELDOM_MS
        if due:
            self._seldom[key] = at_ms
        return due

    # Hosts and faults ----------------------------------------------------------------------------------------

    def _changed(self, host: str, event: HostEvent, text: str) -> None:
        now_ms = self._world.elapsed_ms
        at_ms, who, what = self._happened
        # A start is told by the host and by its process; a power cut ends the host too.
        again = (at_ms, who) == (now_ms, host) and (what in (event, "act") or what is HostEvent.LOST_POWER)
        if again:
            return
        self._happened = now_ms, host, event
        name = named(host)
        sentence = say(OF_HOST[event], host=name, text=text).begun
        self._tell(now_ms, host, sentence, "life")
        if event in _LIFE:
            self._mark(now_ms, "life", sentence)

    def _acted(self, host: str, text: str) -> None:
        """A story of an article does something."""
        now_ms, name = self._world.elapsed_ms, named(host)
        self._happened = now_ms, host, "act"
        sentence = say("{host} {did}.", host=name, did=text).begun
        self._tell(now_ms, host, sentence, "life")
        self._mark(now_ms, "life", sentence)

    def _tell_bands(self) -> None:
        bands, now_ms = self._cluster.findings.bands, self._world.elapsed_ms
        for band in bands[self._bands_read :]:
            fault = fault_named(band.fault)
            if fault is not None and (fault.ends_process or fault.halts is Halts.HOST):
                continue  # the host says it
            self._fault(band.at_ms, band, begin_sentence(band))
            self._lasting.append(band)
        self._bands_read = len(bands)
        for band in [one for one in self._lasting if one.end_ms is not None and one.end_ms <= now_ms]:
            assert band.end_ms is not None
            self._lasting.remove(band)
            self._fault(band.end_ms, band, end_sentence(band))

    def _fault(self, at_ms: int, band: Band, sentence: Said) -> None:
        sentence = sentence.begun
        self._tell(at_ms, band.target, sentence, "faults")
        self._mark(at_ms, "fault", sentence)

    # Log and tables ------------------------------------------------------------------------------------------

    def _tell_log(self) -> None:
        log = self._cluster.log
        lines = [line for line in log[self._log_read :] if self._is_told(line)]
        self._log_read = len(log)
        for one in self._log.of(lines):
            queues = tuple(dict.fromkeys(_queue_of(line) for line in one.lines if "queue" in line.fields))
            row = EVENT_TEXTS[one.first.event]
            self._tell(one.at_ms, self._log.who(one.first), one.text, _FOCUS[row.focus], queues)
            self._owner_changes(one, queues)

    def _is_told(self, line: LogLine) -> bool:
        """About the topic; what a broker says of a client is not told again by the client."""
        row, fields = EVENT_TEXTS.get(line.event), line.fields
        if row is None or not _text_of(row) or (row.run and line.host not in self._cluster.brokers):
            return False
        if line.event == "rebalanced" and fields.get("share_before") == fields.get("share_after"):
            return False
        is_retry = is_retry_topic(str(fields.get("queue", fields.get("topic", ""))))
        return not is_retry or row.focus in (Focus.RETRIES, Focus.CALLS)

    def _owner_changes(self, one: LogSentence, queues: tuple[str, ...]) -> None:
        if one.first.event not in ("lock_granted", "lock_taken_over"):
            return
        who = self._log.who(one.first)
        changed = [queue for queue in queues if self._owners.get(queue, who) != who]
        self._owners.update(dict.fromkeys(queues, who))
        if changed or one.first.event == "lock_taken_over":
            self._mark(one.at_ms, "owner", one.text)

    def _tell_renewals(self, scene: Json) -> None:
        """Brokers do not log them; of several, one sentence."""
        renewed: dict[str, set[str]] = {}
        at_ms = 0
        for queue in scene["queues"]:
            lock, name = queue["lock"], queue["id"]
            if lock is None or queue["stands"] or "retry" in name:
                continue
            before = self._renewed_ms.get(name)
            self._renewed_ms[name] = lock["owner"], lock["renewed_ms"]
            if before is not None and before[0] == lock["owner"] and before[1] < lock["renewed_ms"]:
                renewed.setdefault(lock["owner"], set()).add(name)
                at_ms = max(at_ms, lock["renewed_ms"])
        if len(renewed) == 1:
            [(owner, names)] = renewed.items()
            words = "{who} renews its locks of {queues}." if len(names) > 1 else "{who} renews its lock of {queues}."
            text = say(words, who=owner, queues=queue_numbers(names, "/"))
            self._tell(at_ms, owner, text, "locks", tuple(sorted(names)))
        elif renewed:
            owners = sorted(renewed, key=lambda owner: (len(owner), owner))
            shown = listed(owners) if len(owners) < 5 else say("{count} members", count=len(owners))
            every = tuple(sorted(set().union(*renewed.values())))
            self._tell(at_ms, "", say("{who} renew their locks.", who=shown), "locks", every)

    def _tell_stored(self) -> None:
        """Stored offsets that go back, and stores that came back empty."""
        witnessed = self._cluster.witnessed
        for record in witnessed[self._witnessed_read :]:
            at_ms, queue = time_of(record), queue_of(record)
            if record["event"] == "broker_restarted":
                broker = str(record["broker"])
                self._stored = {name: at for name, at in self._stored.items() if not name.startswith(f"{broker}/")}
                self._tell(
                    at_ms, broker, say("{host} has come back with an empty store.", host=named(broker)).begun, "offsets"
                )
            elif record["event"] == "stored" and queue is not None and record["group"] == self._cluster.consumer_group:
                name, offset = queue_id(queue), int(record["offset"])
                before = self._stored.get(name, offset)
                if offset < before:
                    words = "The stored offset of {queue} goes back from {before} to {offset}."
                    text = say(words, queue=queue_words(queue), before=number(before), offset=number(offset))
                    self._tell(at_ms, queue.broker_name, text, "offsets", (name,))
                self._stored[name] = offset
        self._witnessed_read = len(witnessed)

    # Single messages -----------------------------------------------------------------------------------------

    def _tell_records(self) -> None:
        for host in self._cluster.traced_hosts:
            records, self._traces_read[host] = self._cluster.records_since(host, self._traces_read.get(host, 0))
            for record in records:
                self._tell_record(host, record)

    def _tell_record(self, host: str, record: Record) -> None:
        event, at_ms, queue = record["event"], time_of(record), queue_of(record)
        place, key = () if queue is None else (queue_id(queue),), record.get("key")
        text = say("{host} {did}.", host=host, did=record_words(record))
        if event in PLAIN:
            self._tell(at_ms, host, text, _CALLS, place, key)
        if event == "reset":
            self._tell(at_ms, host, text, "offsets", place)
        elif event == "refused" and self._is_due((host, event, queue), at_ms):
            self._tell(at_ms, host, text, "listener", place, key)
        elif event == "send_failed" and (why := UNSENT.get(record["outcome"])) and self._is_due((host, event), at_ms):
            words = "A send of {host} fails{key}: {why}."
            text = say(words, host=host, key=f" ({key})" if key else "", why=why)
            self._tell(at_ms, host, text, "sends", place, key)
        elif event == "handled" and record["status"] not in GOOD and self._is_due((host, event, queue), at_ms):
            text = say("{text} The message comes again, and later ones wait.", text=text)
            self._tell(at_ms, host, text, "listener", place, key)


def _text_of(row: EventText) -> str:
    return row.play or row.run


def _queue_of(line: LogLine) -> str:
    topic, _, place = str(line.fields["queue"]).partition("@")
    broker, _, queue = place.rpartition(":")
    return queue_id(MessageQueue(topic, broker, int(queue) if queue.isdigit() else 0))
