"""The consumer groups that a broker has a configuration of: built in, made by an administrator or by use.

A group whose first consumer shows up gets the defaults, when `autoCreateSubscriptionGroup` is on (wire.md 8.4).
"""

from collections.abc import Callable, Iterable

from lockstep.protocol.bodies.broker import DataVersion
from lockstep.protocol.bodies.subscription_group import BUILT_IN_GROUPS, SubscriptionGroupConfig, is_system_group
from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.names import check_group

__all__ = ["SubscriptionGroupManager"]


class SubscriptionGroupManager:
    """`retry_queue_nums` and `retry_max_times` are those of groups made by use; `on_change` comes after a change.

    `on_full` hears when one more than `groups_max` was asked for: of the setting, its value and the time.
    """

    def __init__(
        self,
        *,
        auto_create: bool,
        retry_queue_nums: int,
        retry_max_times: int,
        groups_max: int,
        on_full: Callable[[str, int, int], None],
        on_change: Callable[[], None] = lambda: None,
    ) -> None:
        self._groups_max = groups_max
        self._on_full = on_full
        self._on_change = on_change
        self._auto_create = auto_create
        self._model = SubscriptionGroupConfig("", retry_queue_nums=retry_queue_nums, retry_max_times=retry_max_times)
        self._table = {group: SubscriptionGroupConfig(group) for group in BUILT_IN_GROUPS}
        self._version = DataVersion(0, 0)

    @property
    def data_version(self) -> DataVersion:
        return self._version

    @property
    def groups(self) -> Iterable[SubscriptionGroupConfig]:
        """Built-in ones first, then in the order in which they came."""
        return self._table.values()

    def restore(self, groups: Iterable[SubscriptionGroupConfig], data_version: DataVersion) -> None:
        """What an earlier life of the broker had; built-in groups that it did not have stay."""
        self._table.update({config.group_name: config for config in groups})
        self._version = data_version

    def get(self, consumer_group: str) -> SubscriptionGroupConfig | None:
        return self._table.get(consumer_group)

    def find(self, consumer_group: str, now_ms: int) -> SubscriptionGroupConfig | None:
        """The configuration of a group that somebody uses; None when there is none and it is not made by use."""
        config = self._table.get(consumer_group)
        if config is not None:
            return config
        if not self._auto_create and not is_system_group(consumer_group):
            return None
        try:
            check_group(consumer_group)
        except LocalProtocolError:
            return None
        if not self.has_room(consumer_group, now_ms):
            return None
        config = self._model._replace(group_name=consumer_group)
        self.put(config, now_ms)
        return config

    def why_absent(self, consumer_group: str) -> str:
        """For a remark, when `find` gave None."""
        try:
            check_group(consumer_group)
        except LocalProtocolError as error:
            return str(error)
        if len(self._table) >= self._groups_max:
            return f"no group more is made: the broker's setting groups_max is {self._groups_max}"
        return f"consumer group {consumer_group!r} does not exist here, and groups are not made by use"

    def has_room(self, consumer_group: str, now_ms: int) -> bool:
        """Whether a group is known, or one more may be made."""
        if consumer_group in self._table or len(self._table) < self._groups_max:
            return True
        self._on_full("groups_max", self._groups_max, now_ms)
        return False

    def put(self, config: SubscriptionGroupConfig, now_ms: int) -> None:
        """Make or change a group. The version moves even when nothing changed, as in RocketMQ."""
        self._table[config.group_name] = config
        self._version = DataVersion(self._version.counter + 1, now_ms)
        self._on_change()

    def delete(self, consumer_group: str, now_ms: int) -> bool:
        """False when there was no such group."""
        if self._table.pop(consumer_group, None) is None:
            return False
        self._version = DataVersion(self._version.counter + 1, now_ms)
        self._on_change()
        return True
