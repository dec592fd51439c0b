"""The configurations of consumer groups: built in, created by an administrator, or created at the first use.

A new group gets the defaults when its first consumer appears, if `autoCreateSubscriptionGroup` is on (wire.md 8.4).
"""

from collections.abc import Callable, Iterable

from lockstep.broker.config import BrokerConfig
from lockstep.protocol.bodies.broker import DataVersion
from lockstep.protocol.bodies.subscription_group import BUILT_IN_GROUPS, SubscriptionGroupConfig, is_system_group
from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.names import check_group

__all__ = ["SubscriptionGroupManager"]


class SubscriptionGroupManager:
    """The table of groups, at most `groups_max`."""

    def __init__(
        self,
        config: BrokerConfig,
        on_full: Callable[[str, int, int], None],
        on_change: Callable[[str], None] = lambda _: None,
    ) -> None:
        """
        Args:
            on_full: Called with "groups_max", its value and epoch ms when a group is refused.
            on_change: Called after each change with the name of the group.
        """
        self._groups_max = config.groups_max
        self._on_full = on_full
        self._on_change = on_change
        self._auto_create = config.auto_create_groups
        self._model = SubscriptionGroupConfig(
            "", retry_queue_nums=config.retry_queue_nums, retry_max_times=config.retry_max_times
        )
        self._table = {group: SubscriptionGroupConfig(group) for group in BUILT_IN_GROUPS}
        self._version = DataVersion(0, 0)

    @property
    def data_version(self) -> DataVersion:
        return self._version

    @property
    def groups(self) -> Iterable[SubscriptionGroupConfig]:
        """Built-in groups first, then the others in the order of their creation."""
        return self._table.values()

    def restore(self, groups: Iterable[SubscriptionGroupConfig], data_version: DataVersion) -> None:
        """Load the groups of an earlier run; built-in groups that it did not have stay."""
        self._table.update({config.group_name: config for config in groups})
        self._version = data_version

    def get(self, consumer_group: str) -> SubscriptionGroupConfig | None:
        return self._table.get(consumer_group)

    def find(self, consumer_group: str, now_ms: int) -> SubscriptionGroupConfig | None:
        """The configuration of a group in use, created if allowed; None when it may not be created."""
        config = self._table.get(consumer_group)
        if config is not None:
            return config
        if not self._auto_create and not is_system_group(consumer_group):
            return None
        try:
            check_group(consumer_group)
        except LocalProtocolError:
            return None
        if not self.has_capacity(consumer_group, now_ms):
            return None
        config = self._model._replace(group_name=consumer_group)
        self.put(config, now_ms)
        return config

    def why_absent(self, consumer_group: str) -> str:
        """The reason, as a remark, why `find` returned None."""
        try:
            check_group(consumer_group)
        except LocalProtocolError as error:
            return str(error)
        if len(self._table) >= self._groups_max:
            return f"no more groups: the broker's setting groups_max is {self._groups_max}"
        return f"consumer group {consumer_group!r} does not exist, and groups are not created by use here"

    def has_capacity(self, consumer_group: str, now_ms: int) -> bool:
        """Whether a group exists or one more may be created."""
        if consumer_group in self._table or len(self._table) < self._groups_max:
            return True
        self._on_full("groups_max", self._groups_max, now_ms)
        return False

    def put(self, config: SubscriptionGroupConfig, now_ms: int) -> None:
        """Create or change a group. The data version rises even when nothing changed, as in RocketMQ."""
        self._table[config.group_name] = config
        self._version = DataVersion(self._version.counter + 1, now_ms)
        self._on_change(config.group_name)

    def delete(self, consumer_group: str, now_ms: int) -> bool:
        """Returns whether the group existed."""
        if self._table.pop(consumer_group, None) is None:
            return False
        self._version = DataVersion(self._version.counter + 1, now_ms)
        self._on_change(consumer_group)
        return True
