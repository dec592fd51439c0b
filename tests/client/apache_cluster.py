"""ApacheCluster: an admin client that needs no broker, of a cluster of RocketMQ's without offsets or settings."""

from typing import Any, NoReturn

from lockstep.client.admin.client import AdminClient, NotLockstepError
from lockstep.client.errors import TopicNotFoundError
from lockstep.protocol.bodies.client import ConsumerConnection

__all__ = ["ApacheCluster"]


class ApacheCluster(AdminClient):
    """What the doctor asks besides; a test gives it the answers that it is about."""

    def __init__(self) -> None:
        super().__init__(name_server="127.0.0.1:1")

    async def list_lock_changes(self, *_: object, **__: object) -> NoReturn:
        raise NotLockstepError("broker-a")

    list_locks = list_lock_changes

    async def group_configs(self) -> Any:
        return {}

    async def connections(self, group: str) -> dict[str, ConsumerConnection]:
        return {}

    async def topic_stats(self, topic: str) -> NoReturn:
        raise TopicNotFoundError(topic)
