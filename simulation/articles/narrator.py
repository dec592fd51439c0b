"""The narrator watches a cluster, and makes lines of what is asked, answered, logged and called, and of tables."""

from lockstep.simulation.articles.narration import Line, number
from lockstep.simulation.articles.tables import Tables, changes, queue_name, tables_of
from lockstep.simulation.articles.texts import (
    Sentence,
    sentence_of_event,
    sentence_of_late_reply,
    sentence_of_request,
)
from lockstep.simulation.lab.calls import Call
from lockstep.simulation.lab.cluster_log import LogLine
from lockstep.simulation.lab.event_texts import Focus
from lockstep.simulation.lab.recorded_cluster import Lines, RecordedCluster
from lockstep.simulation.lab.request_log import Answered

__all__ = ["Narrator"]


class Narrator:
    """`lines` is the story so far. Tables are compared at the end of each instant in which something happened."""

    def __init__(self, cluster: RecordedCluster) -> None:
        self.lines: list[Line] = []
        self._cluster = cluster
        self._world = cluster.world
        self._before: Tables = {}
        self._looks = False
        self._over = False
        self._arrived_at = 0  # how many lines there were when the present request arrived
        cluster.on_act = lambda host, text: self._add(host, Sentence(Focus.LIFE, text), text)
        cluster.request_log.on_arrival = self._arrival
        cluster.request_log.on_request = self._request
        cluster.request_log.on_late_reply = self._late_reply
        cluster.seen.on_begin = self._begin
        cluster.seen.on_end = self._end
        assert isinstance(cluster.log, Lines)
        cluster.log.on_line = self._event

    def stop(self) -> None:
        """What happens from now on is not told."""
        self._look()
        self._over = True

    def _add(self, host: str, sentence: Sentence | None, kind: str) -> None:
        if sentence is None or self._over:
            return
        self.lines.append(Line(self._world.elapsed_ms, host, sentence.focus, kind, sentence.text))
        if not self._looks:
            self._looks = True
            loop = self._world.loop
            loop.call_at_ns(loop.now_ns + 1, self._look, context=loop.ground)

    def _look(self) -> None:
        """Tell what is different in the tables since the last look."""
        self._looks = False
        if self._over:
            return
        after = tables_of(self._cluster, self._before)
        for row, text in changes(self._before, after):
            self.lines.append(Line(self._world.elapsed_ms, "", row.focus, row.name, f"{row.name}: {text}"))
        self._before = after

    # What happens --------------------------------------------------------------------------------------------

    def _event(self, line: LogLine) -> None:
        self._add(line.host, sentence_of_event(line, self._cluster.who), line.event)

    def _arrival(self) -> None:
        self._arrived_at = len(self.lines)

    def _request(self, answered: Answered) -> None:
        """A request stands before what the broker logged while it handled it."""
        request, logged = answered.request, self.lines[self._arrived_at :]
        del self.lines[self._arrived_at :]
        self._add(self._cluster.who(request.client), sentence_of_request(answered, self._cluster.who), request.name)
        self.lines += logged

    def _late_reply(self, answered: Answered) -> None:
        sentence = sentence_of_late_reply(answered)
        if sentence is not None:
            to = self._cluster.who(answered.request.client)
            self._add(answered.request.server, sentence._replace(text=f"{sentence.text} (to {to})"), "late reply")

    def _begin(self, calls: list[Call]) -> None:
        again = f", retry {calls[0].reconsume_times}" if calls[0].reconsume_times else ""
        self._call(calls, f"calls the listener with {_messages(calls)}{again}", "begin")

    def _end(self, calls: list[Call], answer: object) -> None:
        shown = getattr(answer, "name", None) or ("SUCCESS" if answer is None else f"the exception {answer!r}")
        took_ms = self._world.elapsed_ms - calls[0].begin_ms
        begun = self.lines[-1] if self.lines else None
        if not took_ms and begun is not None and begun.kind == "begin" and not self._over:
            self.lines[-1] = begun._replace(kind="call", text=f"{begun.text}: {shown}")
        else:
            self._call(calls, f"gets {shown} for {_messages(calls)} after {number(took_ms)} ms", "end")

    def _call(self, calls: list[Call], text: str, kind: str) -> None:
        host = calls[0].process.partition("#")[0]
        self._add(host, Sentence(Focus.CALLS, text), kind)


def _messages(calls: list[Call]) -> str:
    texts = ", ".join(repr(call.text) for call in calls)
    return f"{texts} of {queue_name(calls[0].queue)}"
