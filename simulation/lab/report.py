"""A run in plain sentences: what happened to whom and when, and what the judge says."""

import sys
import traceback
from pathlib import Path
from typing import Final, NamedTuple

from lockstep.client import SendError
from lockstep.order import Cause, OrderReport
from lockstep.order.report import Handover
from lockstep.remoting.texts import counted
from lockstep.simulation.errors import NondeterminismError
from lockstep.simulation.lab.cluster import Cluster
from lockstep.simulation.lab.cluster_log import LogLine
from lockstep.simulation.lab.durations import duration_words
from lockstep.simulation.lab.event_texts import EVENT_TEXTS
from lockstep.simulation.lab.faults.words import begin_sentence, end_sentence
from lockstep.simulation.lab.findings import Band
from lockstep.simulation.lab.log_sentences import LogSentences
from lockstep.simulation.lab.names import Names
from lockstep.simulation.lab.runner import Run
from lockstep.simulation.lab.setup import FaultEvent
from lockstep.simulation.virtual_time.loop import START_NS

__all__ = [
    "clock",
    "error_text",
    "failed_sends",
    "listener_failures",
    "longest_handover",
    "owner_changes",
    "result_lines",
    "run_lines",
]

_SLOW_MS: Final = 1000  # of a group without owners, where nothing else tells of it
_FOUND_SHOWN: Final = 8


class _Moment(NamedTuple):
    at_ms: int
    mark: str
    text: str


def clock(ms: int) -> str:
    """ "1:02.5" """
    return f"{ms // 60_000}:{ms % 60_000 / 1000:04.1f}"


def run_lines(run: Run) -> list[str]:
    """The settings of a run, and its moments in order of time."""
    plan, lines = run.plan, []
    settings = ", ".join(f"{name} {value}" for name, value in plan.described().items() if value not in (0, ""))
    lines += [f"seed {plan.seed}: {settings}", ""]
    if run.played is not None:
        cluster, findings = run.played.cluster, run.played.findings
        moments = [moment for band in findings.bands for moment in _fault_moments(band)] + _log_moments(cluster)
        moments += [
            _Moment(one.at_ms, "FAULT", f"{_act(one.event)} has no effect: {one.why}.") for one in findings.idle
        ]
        lines += [f"{clock(one.at_ms):>8}  {one.mark:<5}  {one.text}" for one in sorted(moments, key=lambda m: m.at_ms)]
    return lines


def _act(event: FaultEvent) -> str:
    hosts = f"{event.target} - {event.other}" if event.other else event.target
    return f"{event.fault} {hosts}"


def _fault_moments(band: Band) -> list[_Moment]:
    moments = [_Moment(band.at_ms, "FAULT", begin_sentence(band))]
    if band.end_ms is not None:
        moments.append(_Moment(band.end_ms, "FAULT", end_sentence(band)))
    return moments


def _log_moments(cluster: Cluster) -> list[_Moment]:
    told = LogSentences(cluster, lambda text: text.run).of(line for line in cluster.log if _is_told(cluster, line))
    return [_Moment(one.at_ms, "", one.text) for one in told]


def _is_told(cluster: Cluster, line: LogLine) -> bool:
    """Of a broker, about the topic, and before the shutdown."""
    queue = str(line.fields.get("queue", cluster.topic))
    is_shown = line.event in EVENT_TEXTS and bool(EVENT_TEXTS[line.event].run)
    ended = cluster.ended_ms is not None and line.at_ms >= cluster.ended_ms
    return is_shown and line.host in cluster.brokers and queue.startswith(cluster.topic) and not ended


def owner_changes(cluster: Cluster, report: OrderReport) -> int:
    """How often a queue of the topic got another owner, by the periods in the members' traces.

    A group without locks has no periods; there it is how often messages went to another member. Only what was between
    the cluster's `measured_from_ms` and the shutdown counts.
    """
    begin_ns, end_ms = START_NS + cluster.measured_from_ms * 1_000_000, cluster.ended_ms
    periods = sorted(
        (record["mono_ns"], record["broker"], record["queue_id"], record["client_id"])
        for name in cluster.traced_hosts
        for record in cluster.read_records(name)
        if record["event"] == "acquired" and record["topic"] == cluster.topic
    )
    owners: dict[object, object] = {}
    changes = 0
    for at_ns, broker, queue_id, client_id in periods:
        if end_ms is not None and at_ns >= START_NS + end_ms * 1_000_000:
            break
        changes += owners.get((broker, queue_id), client_id) != client_id and at_ns >= begin_ns
        owners[broker, queue_id] = client_id
    return changes if owners else len(_of_topic(cluster, report))


def longest_handover(cluster: Cluster, report: OrderReport) -> Handover | None:
    """That of a queue of the topic; None: no queue changed its owner."""
    return max(_of_topic(cluster, report), key=lambda handover: handover.duration_ms, default=None)


def _of_topic(cluster: Cluster, report: OrderReport) -> list[Handover]:
    """Without those of retry topics, of which the lines of a run do not speak."""
    return [handover for handover in report.handovers if handover.queue.topic == cluster.topic]


def result_lines(run: Run) -> list[str]:
    """What was sent and handled, what the judge says, and what was found."""
    if run.played is None:
        return _error_lines(run)
    cluster, findings = run.played.cluster, run.played.findings
    report = cluster.judge()
    lines = _counted(report) + failed_sends(cluster) + _owner_lines(cluster, report)
    if not findings.wrong and run.error is None:
        kept = "no other message is lost" if report.emptied else "no message is lost"
        shown = (
            f": each key was handled in order, and {kept}" if report.sent else ", but there was no message to show it"
        )
        lines.append(f"Nothing is wrong{shown}.")
    names = Names(cluster.world, cluster)
    lines += listener_failures(cluster)
    lines += [f"WRONG {found.kind}: {names.in_text(found.text)}" for found in findings.wrong[:_FOUND_SHOWN]]
    if len(findings.wrong) > _FOUND_SHOWN:
        lines.append(f"... and {len(findings.wrong) - _FOUND_SHOWN} more")
    for name, count in sorted(findings.sometimes.items()):
        if name.startswith("fenced out: "):
            kind = name.removeprefix("fenced out: ")
            lines.append(f"{count} times {kind}: a fence in your database keeps that out (docs/fencing.md).")
    return lines + _error_lines(run)


def _owner_lines(cluster: Cluster, report: OrderReport) -> list[str]:
    """How often owners changed, and how long that took; of a group without locks, which queue stood still."""
    changes, lines = owner_changes(cluster, report), list[str]()
    if cluster.setup.fifo:
        still = max(cluster.flow().longest.values(), key=lambda rest: rest.duration_ms, default=None)
        if changes:
            lines.append(f"Messages went from one member to another {_times(changes)}.")
        if still is not None and still.duration_ms >= _SLOW_MS:
            lines.append(f"Queue {still.queue} stood still for {duration_words(still.duration_ms)}.")
    elif changes:
        took = ""
        if (longest := longest_handover(cluster, report)) is not None:
            took = f"; the longest handover took {duration_words(longest.duration_ms)} ({longest.queue})"
        lines.append(f"Queues changed their owner {_times(changes)}{took}.")
    return lines


def _counted(report: OrderReport) -> list[str]:
    """What became of the messages. An attempt that failed is no handled message."""
    failed = report.duplicates.get(Cause.SUSPEND, 0)
    twice = sum(report.duplicates.values()) - failed
    lines = [f"{report.sent:,} messages were sent, {report.handled:,} handled"]
    # An owner that never succeeds hands its attempts on: then there are more than messages.
    lines[0] += f", {twice:,} of them more than once." if twice <= report.handled else "."
    again = failed if twice <= report.handled else failed + twice
    if again:
        lines.append(f"Messages came again {_times(again)}, because their calls had not succeeded.")
    if report.emptied:
        lines.append(
            f"A restart emptied the broker's memory: {report.emptied:,} messages were gone before they were handled "
            "(--store sync keeps them)."
        )
    return lines


def failed_sends(cluster: Cluster) -> list[str]:
    """A line if sends of the story failed: that of the producer, before a listener is blamed for what it never got."""
    sends = cluster.sends
    if sends.first is None:
        return []
    at_ms, error = sends.first
    why = Names(cluster.world, cluster).in_text(error.reason if isinstance(error, SendError) else str(error))
    count, given_up = sends.again + len(sends.failed), len(sends.failed)
    text = f"{counted(count, 'send')} failed, first at {clock(at_ms)}: {why}."
    if sends.again:
        stored = "they were stored" if not given_up else f"all but {given_up:,} were stored"
        text += f" Their messages were sent again until {stored}."
    if sends.unanswered:
        text += f" {sends.unanswered:,} had no answer: their messages may be stored{' twice' if sends.again else ''}."
    if given_up:
        text += " What is not stored is not handled, and a listener that waits for it waits for ever."
    return [text]


def listener_failures(cluster: Cluster) -> list[str]:
    """A line if listeners raised, and one if they answered what is not allowed: how often, and the first time."""
    failed = [
        line
        for line in cluster.log
        if line.event in ("listener_failed", "listener_failed_again")
        and not isinstance(line.fields.get("exc_info"), NondeterminismError)  # that ends the run, and is its error
    ]
    lines = []
    if failed:
        error = failed[0].fields.get("exc_info")
        place = _place(error) if isinstance(error, BaseException) else ""
        lines.append(f"Listeners raised {_times(len(failed))}, first {failed[0].fields['error']}{place}.")
    events = ("listener_answer_invalid", "listener_answer_invalid_again")
    invalid = [line for line in cluster.log if line.event in events]
    if invalid:
        returned, allowed = invalid[0].fields["returned"], invalid[0].fields["allowed"]
        lines.append(
            f"Listeners returned {_times(len(invalid))} what is not allowed, first {returned}; allowed: {allowed}."
        )
    return lines


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _error_lines(run: Run) -> list[str]:
    return [] if run.error is None else [f"ERROR {error_text(run)}"]


def error_text(run: Run) -> str:
    """What ended a run, and the line of the user's file, as a text of its own rarely says where it comes from."""
    error = run.error
    place = "" if error is None or isinstance(error, NondeterminismError) else _place(error)  # that has its own
    return f"{type(error).__name__}: {error}{place}" if str(error) else f"{type(error).__name__}{place}"


def _place(error: BaseException) -> str:
    """ " (shop.py:12)": the innermost line of the user's; empty: there is none."""
    places = _own_places(error)
    return f" ({places[-1]})" if places else ""


def _own_places(error: BaseException) -> list[str]:
    """The lines of the user's files that an exception went through, as "deploy.py:33", the innermost last."""
    frames = traceback.walk_tb(error.__traceback__)
    return [
        f"{Path(frame.f_code.co_filename).name}:{line}"
        for frame, line in frames
        if (top := str(frame.f_globals.get("__name__", "")).partition(".")[0]) != "lockstep"
        and top not in sys.stdlib_module_names
        and "site-packages" not in Path(frame.f_code.co_filename).parts
    ]
