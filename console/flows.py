"""How many messages come and go, and how many wait: of groups, topics and brokers, counted from what brokers answer.

The offsets of groups say it, and of a broker its own counters. All answers count: a topic has the messages that came
since the last one, whichever group it was about.
"""

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from typing import Final

from lockstep.console.history import History
from lockstep.protocol.bodies.admin import OffsetWrapper
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import is_retry_topic

__all__ = ["Flow", "Flows"]

_TOPICS_MAX: Final = 1000
_ENDS_MAX: Final = 100_000  # queues of all topics
_QUEUES_OF_A_GROUP_MAX: Final = 64  # that have a history each
_QUEUES_MAX: Final = 2000  # of all groups
_Offsets = Mapping[MessageQueue, OffsetWrapper]


class Flow:
    """The history of a group, a topic or a broker, and its counts now.

    Attributes:
        came, gone: Messages since the console began to look.
        lag: Messages that wait, for all groups together.
        brokers: Without their answers there is a gap.
        ends: Of a topic: the end of each queue.
        queues: Of a group: the history of each queue, if there are few.
    """

    __slots__ = ("_lags", "brokers", "came", "ends", "gone", "history", "lag", "queues")

    def __init__(self) -> None:
        self.history = History()
        self.came = self.gone = self.lag = 0
        self._lags: dict[str, int] = {}
        self.brokers: set[str] = set()
        self.ends: dict[MessageQueue, int] = {}
        self.queues: dict[MessageQueue, History] = {}

    def note(self, now_ms: int) -> None:
        self.history.note(now_ms, self.came, self.gone, self.lag)

    def gap(self, now_ms: int) -> None:
        for history in (self.history, *self.queues.values()):
            history.gap(now_ms)

    def waits_for(self, group: str, lag: int) -> None:
        """So many messages wait for a group; 0: none, or the group is gone."""
        self.lag += lag - self._lags.pop(group, 0)
        if lag:
            self._lags[group] = lag

    def ended(self, queue: MessageQueue, end: int) -> None:
        """A topic's queue ends there: what is more than before has come."""
        known = self.ends.get(queue)
        if known is not None:
            if known // 2 < end <= known:
                return  # an answer that another one has overtaken; in a topic that was made anew the end is far below
            self.came += max(end - known, 0)
        self.ends[queue] = end


class Flows:
    """
    Args:
        share: Of so many clusters this is one: together they keep as many histories of queues as one alone.

    Attributes:
        groups, topics, brokers: By name; the topic that was read longest ago first.
    """

    def __init__(self, share: int = 1) -> None:
        self._queues_max = _QUEUES_MAX // share
        self.groups: dict[str, Flow] = {}
        self.topics: OrderedDict[str, Flow] = OrderedDict()
        self.brokers: dict[str, Flow] = {}
        self._counters: dict[str, tuple[int, int]] = {}  # by broker: put, got

    # Groups --------------------------------------------------------------------------------------------------

    def group_read(self, name: str, old: _Offsets, new: _Offsets, now_ms: int, *, is_whole: bool) -> None:
        """The offsets of a group are `new`, and were `old`.

        Args:
            is_whole: False: some are missing or old, so there is a gap.
        """
        flow = self.groups.setdefault(name, Flow())
        topics, brokers = dict[str, list[int]](), dict[str, int]()
        for queue, of in new.items():
            was, lag = old.get(queue), of.lag
            counts = topics.get(queue.topic)
            if counts is None:
                counts = topics[queue.topic] = [0, 0]
            if was is not None:
                flow.came += max(of.broker_offset - was.broker_offset, 0)
                counts[0] += max(of.consumer_offset - was.consumer_offset, 0)
            counts[1] += lag
            brokers[queue.broker_name] = brokers.get(queue.broker_name, 0) + lag
        flow.gone += sum(gone for gone, _ in topics.values())
        flow.lag = sum(lag for _, lag in topics.values())
        flow.brokers = set(brokers) or flow.brokers
        self._keep_queues(flow, new)
        self._left(name, old, topics, brokers)
        for broker, lag in brokers.items():
            if broker in self.brokers:
                self.brokers[broker].waits_for(name, lag)
        for topic, (gone, lag) in topics.items():
            if not is_retry_topic(topic):
                of_topic = self._topic(topic)
                of_topic.gone += gone
                of_topic.waits_for(name, lag)
        ends = {queue: of.broker_offset for queue, of in new.items() if not is_retry_topic(queue.topic)}
        self.topics_end(ends, now_ms, is_whole=is_whole)
        if not is_whole:
            flow.gap(now_ms)
            return
        flow.note(now_ms)
        for queue, history in flow.queues.items():
            history.note(now_ms, new[queue].broker_offset, new[queue].consumer_offset, new[queue].lag)

    def _keep_queues(self, flow: Flow, offsets: _Offsets) -> None:
        known, flow.queues = flow.queues, {}
        if len(offsets) <= _QUEUES_OF_A_GROUP_MAX:
            room = max(self._queues_max - sum(len(one.queues) for one in self.groups.values()), 0)
            flow.queues = {queue: known.get(queue) or History() for queue in sorted(offsets)[:room]}

    def _left(self, name: str, offsets: _Offsets, topics: Iterable[str] = (), brokers: Iterable[str] = ()) -> None:
        """A group has these offsets no more, but for those of some topics and brokers."""
        for flows, names, kept in (
            (self.topics, {queue.topic for queue in offsets}, topics),
            (self.brokers, {queue.broker_name for queue in offsets}, brokers),
        ):
            for one in names.difference(kept):
                if one in flows:
                    flows[one].waits_for(name, 0)

    def group_silent(self, name: str, now_ms: int) -> None:
        """No broker said anything about it."""
        if name in self.groups:
            self.groups[name].gap(now_ms)

    def forget_group(self, name: str, offsets: _Offsets) -> None:
        self.groups.pop(name, None)
        self._left(name, offsets)

    # Topics --------------------------------------------------------------------------------------------------

    def topics_end(self, ends: Mapping[MessageQueue, int], now_ms: int, *, is_whole: bool) -> None:
        """Where queues of topics end."""
        read: dict[str, Flow] = {}
        for queue, end in ends.items():
            topic = read.get(queue.topic)
            if topic is None:
                topic = read[queue.topic] = self._topic(queue.topic)
            topic.ended(queue, end)
            topic.brokers.add(queue.broker_name)
        for flow in read.values():
            if is_whole:
                flow.note(now_ms)
            else:
                flow.gap(now_ms)
        while len(self.topics) > _TOPICS_MAX or (
            self.topics and sum(len(flow.ends) for flow in self.topics.values()) > _ENDS_MAX
        ):
            self.topics.popitem(last=False)

    def _topic(self, name: str) -> Flow:
        flow = self.topics.setdefault(name, Flow())
        self.topics.move_to_end(name)
        return flow

    # Brokers -------------------------------------------------------------------------------------------------

    def broker_counted(self, name: str, put: int, got: int, now_ms: int) -> None:
        """What a broker stored and gave away since its start."""
        flow = self.brokers.setdefault(name, Flow())
        put_before, got_before = self._counters.get(name, (put, got))
        if put < put_before or got < got_before:  # it was started anew
            flow.gap(now_ms)
        flow.came += max(put - put_before, 0)
        flow.gone += max(got - got_before, 0)
        self._counters[name] = put, got
        flow.note(now_ms)

    def broker_silent(self, name: str, now_ms: int) -> None:
        """It does not answer: what it has a part in has a gap."""
        for flow in (*self.groups.values(), *self.topics.values()):
            if name in flow.brokers:
                flow.gap(now_ms)
        if name in self.brokers:
            self.brokers[name].gap(now_ms)

    def forget_broker(self, name: str) -> None:
        self.brokers.pop(name, None)
        self._counters.pop(name, None)
