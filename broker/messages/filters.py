"""Filters of groups that are not tags: SQL92 on properties (wire.md 6.5).

An expression is compiled when a heartbeat brings it, and pulls use the compiled filter. An invalid expression is not
stored: pulls then get FILTER_DATA_NOT_EXIST, and CHECK_CLIENT_CONFIG tells the consumer the error.
"""

import sys
from collections.abc import Callable, Container, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

from lockstep.broker.sliced_work import Steps, Wait
from lockstep.protocol.bodies.heartbeat import SubscriptionData
from lockstep.protocol.errors import short_text
from lockstep.protocol.filter import SQL92, FilterError, is_tag_type
from lockstep.protocol.messages.message import decode_messages
from lockstep.remoting.logs import EventLog
from lockstep.store import Passes

if TYPE_CHECKING:
    from lockstep.broker.messages.sql.parser import Evaluator

__all__ = ["ConsumerFilter", "ConsumerFilterManager", "Wanted", "compiled", "load_sql"]

# Our limit: a longer one takes over 100 ms to compile.
_LENGTH_MAX: Final = 8192
# Messages a read, in RocketMQ for all filters (wire.md 6.3), here up to 256 characters.
_ENTRIES_MAX: Final = 800
# Length of the expression times messages: about 0.1 s.
_EVALUATED_CHARACTERS_MAX: Final = _ENTRIES_MAX * 256
# Of new expressions in heartbeats: about 0.4 s to compile.
_CHARACTERS_A_SECOND_MAX: Final = 32_768
_DEAD_LIFE_MS: Final = 24 * 60 * 60 * 1000


class Wanted(NamedTuple):
    """Which messages a reader wants: those with the tags of the subscription, or those that `passes` accepts."""

    subscription: SubscriptionData
    passes: Passes | None = None


def compiled(expression_type: str, expression: str) -> Passes:
    """Compile an expression. Raises FilterError for an unknown type or an invalid expression."""
    if expression_type != SQL92:
        raise FilterError(f"the expression type {short_text(expression_type)} is unknown; use TAG or {SQL92}")
    if not expression:
        raise FilterError(f"an expression of type {SQL92} must not be empty")
    if len(expression) > _LENGTH_MAX:
        raise FilterError(f"the expression has {len(expression)} characters; at most {_LENGTH_MAX} are allowed")
    evaluator = _compiled(expression)
    if isinstance(evaluator, str):
        raise FilterError(evaluator)
    evaluate: Callable[[Mapping[str, str]], bool | None] = evaluator
    return Passes(
        lambda message: any(evaluate(found.properties) is True for found in decode_messages(message, unzip=False)),
        min(_ENTRIES_MAX, _EVALUATED_CHARACTERS_MAX // len(expression)),
    )


def load_sql(soon: Wait | None) -> Steps:
    """Import what compiles expressions, in two turns of the loop: the first expression would take 80 ms in one."""
    import lark  # noqa: F401

    yield soon
    import lockstep.broker.messages.sql.parser  # noqa: F401


@lru_cache(maxsize=512)
def _compiled(expression: str) -> "Evaluator | str":
    """What evaluates it, or why it cannot be compiled: a kept exception would keep the frames of all who raise it."""
    from lockstep.broker.messages.sql.parser import compile_sql  # imported here: few brokers filter by SQL92

    try:
        return compile_sql(expression)
    except FilterError as error:
        return str(error)


@dataclass(slots=True)
class ConsumerFilter:
    """A compiled filter.

    `sub_version`: of the newest subscription with this expression. `dead_ms`: epoch ms since when it is unused; 0: in
    use.
    """

    expression: str
    expression_type: str
    sub_version: int
    passes: Passes
    dead_ms: int = 0


class ConsumerFilterManager:
    """The filters of all groups. Their expressions have at most `characters_max` characters together.

    `on_full` is called with that number and epoch ms when an expression does not fit; the next `expire` then removes
    all unused ones.
    """

    def __init__(
        self,
        log: EventLog,
        characters_max: int = sys.maxsize,
        on_full: Callable[[int, int], None] = lambda characters_max, now_ms: None,
    ) -> None:
        self._log = log
        self._characters_max = characters_max
        self._on_full = on_full
        self._kept_characters = 0
        self._is_full = False
        self._filters: dict[str, dict[str, ConsumerFilter]] = {}  # group -> topic
        self._second_began_ms = 0
        self._characters = 0

    def find(self, consumer_group: str, topic: str) -> ConsumerFilter | None:
        return self._filters.get(consumer_group, {}).get(topic)

    def register(self, consumer_group: str, subscriptions: Iterable[SubscriptionData], now_ms: int) -> None:
        """Called at each heartbeat with all subscriptions of a group. Filters of its other topics become unused."""
        wanted = {subscription.topic: subscription for subscription in subscriptions}
        known = self._filters.get(consumer_group, {})
        for subscription in wanted.values():
            if not is_tag_type(subscription.expression_type):
                known = self._filters.setdefault(consumer_group, known)
                self._put(consumer_group, known, subscription, now_ms)
        for topic, of_topic in known.items():
            if topic not in wanted and not of_topic.dead_ms:
                of_topic.dead_ms = now_ms

    def _put(
        self, consumer_group: str, known: dict[str, ConsumerFilter], subscription: SubscriptionData, now_ms: int
    ) -> None:
        topic, version = subscription.topic, subscription.sub_version
        before = known.get(topic)
        expression, expression_type = subscription.sub_string, subscription.expression_type
        same = before is not None and (before.expression, before.expression_type) == (expression, expression_type)
        if before is not None and version <= before.sub_version:
            if version == before.sub_version:
                before.dead_ms = 0
                if not same:
                    used = before.expression
                    self._log.warning("filter_version_conflict", group=consumer_group, topic=topic, used=used)
            return
        if before is not None and same:
            before.sub_version, before.dead_ms = version, 0
            return
        if not self._has_time_for(expression, now_ms):
            self._log.warning("filter_compilation_throttled", group=consumer_group, topic=topic)
            return
        new_characters = len(expression) - (len(before.expression) if before is not None else 0)
        if new_characters > 0 and self._kept_characters + new_characters > self._characters_max:
            self._is_full = True
            self._on_full(self._characters_max, now_ms)
            return
        try:
            passes = compiled(expression_type, expression)
        except FilterError as error:
            self._log.warning("filter_invalid", group=consumer_group, topic=topic, reason=str(error))
            return
        known[topic] = ConsumerFilter(expression, expression_type, version, passes)
        self._kept_characters += new_characters

    def _has_time_for(self, expression: str, now_ms: int) -> bool:
        if not 0 <= now_ms - self._second_began_ms < 1000:
            self._second_began_ms, self._characters = now_ms, 0
        self._characters += min(len(expression), _LENGTH_MAX)
        return self._characters <= _CHARACTERS_A_SECOND_MAX

    def expire(self, online: Container[str], now_ms: int) -> None:
        """Called every 10 s: filters of groups without members become unused. Unused ones are removed after a day,
        or at once if an expression did not fit.
        """
        for group, of_group in self._filters.items():
            if group not in online:
                for of_topic in of_group.values():
                    of_topic.dead_ms = of_topic.dead_ms or now_ms
        dead_life_ms, self._is_full = 0 if self._is_full else _DEAD_LIFE_MS, False
        for group in list(self._filters):
            of_group = self._filters[group]
            for topic, of_topic in list(of_group.items()):
                if of_topic.dead_ms and now_ms - of_topic.dead_ms >= dead_life_ms:
                    self._kept_characters -= len(of_topic.expression)
                    del of_group[topic]
            if not of_group:
                del self._filters[group]
