"""AdminClient: what tools ask brokers and name servers."""

from typing import Any, TypeVar

from lockstep.client.config import ClientConfig
from lockstep.client.errors import ClientError, NoRouteError, TopicNotFoundError
from lockstep.client.instance import MQClientInstance, name_server_addresses
from lockstep.client.lifecycle import Lifecycle
from lockstep.protocol.bodies import (
    BrokerData,
    ClusterInfo,
    ConsumerGroupList,
    ConsumerIdList,
    LockTableBody,
    LockTableRow,
    TopicList,
    TopicRouteData,
)
from lockstep.protocol.body_codec import WireBody, decode_body
from lockstep.protocol.codes import Permission, RequestCode, ResponseCode, request_name
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers import (
    CreateTopicRequestHeader,
    GetConsumerListByGroupRequestHeader,
    ListLocksRequestHeader,
    OffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueueRequestHeader,
    SearchOffsetRequestHeader,
    UpdateConsumerOffsetRequestHeader,
)
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import DEFAULT_TOPIC, check_topic
from lockstep.remoting.endpoint import Endpoint
from lockstep.remoting.errors import RequestRefused
from lockstep.remoting.logs import EventLog, StdlibLog
from lockstep.remoting.runtime import AsyncioRuntime, Runtime

__all__ = ["AdminClient", "NotLockstepError"]

B = TypeVar("B", bound=WireBody)


class NotLockstepError(ClientError):
    """The broker is not a Lockstep broker and has no such call."""


class AdminClient(Lifecycle):
    """`async with AdminClient(name_server="127.0.0.1:9876") as admin: await admin.list_locks()`

    Every call raises RemotingError when a broker does not answer or refuses, NoRouteError when no name server
    answers or none knows the topic.
    """

    def __init__(
        self,
        *,
        name_server: str | None = None,
        config: ClientConfig | None = None,
        runtime: Runtime | None = None,
        log: EventLog | None = None,
    ) -> None:
        self._name_servers = name_server_addresses(name_server)
        self._config = config or ClientConfig()
        self._runtime = runtime
        self._log = log or StdlibLog("lockstep.client")
        self._instance: MQClientInstance | None = None

    async def start(self) -> None:
        runtime = self._runtime or AsyncioRuntime()
        self._instance = MQClientInstance(runtime, self._name_servers, self._config, self._log)

    async def shutdown(self) -> None:
        if self._instance is not None:
            self._instance.dialer.close()

    # Topics --------------------------------------------------------------------------------------------------

    async def brokers(self) -> list[BrokerData]:
        info = await self._started().routes.ask_for(ClusterInfo, RequestCode.GET_BROKER_CLUSTER_INFO)
        return list(info.brokers)

    async def topics(self) -> list[str]:
        """Every topic the name server knows, sorted; system, retry and dead-letter topics among them."""
        names = await self._started().routes.ask_for(TopicList, RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        return sorted(names.topic_list)

    async def route(self, topic: str) -> TopicRouteData:
        route = await self._started().routes.fetch(topic)
        if route is None:
            raise TopicNotFoundError(f"topic {topic!r} does not exist")
        return route

    async def create_topic(self, topic: str, queues: int = 4, *, broker_name: str | None = None) -> None:
        """Make a topic, or change its number of queues, on one broker or on all. Raises LocalProtocolError too."""
        check_topic(topic)
        if queues < 1:
            raise ClientError(f"a topic has at least one queue, not {queues}")
        chosen = [b for b in await self.brokers() if broker_name in (None, b.broker_name) and b.master_addr]
        if not chosen:
            raise NoRouteError(f"no broker named {broker_name!r}" if broker_name else "no broker is registered")
        perm = int(Permission.READ | Permission.WRITE)
        header = CreateTopicRequestHeader(topic, DEFAULT_TOPIC, queues, queues, perm)
        for broker in chosen:
            assert broker.master_addr is not None
            await self._ask(broker.master_addr, RequestCode.UPDATE_AND_CREATE_TOPIC, header)

    # Offsets -------------------------------------------------------------------------------------------------

    async def max_offset(self, queue: MessageQueue) -> int:
        """The offset the next message will get."""
        return await self._offset(queue, RequestCode.GET_MAX_OFFSET, QueueRequestHeader(queue.topic, queue.queue_id))

    async def min_offset(self, queue: MessageQueue) -> int:
        return await self._offset(queue, RequestCode.GET_MIN_OFFSET, QueueRequestHeader(queue.topic, queue.queue_id))

    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int:
        header = SearchOffsetRequestHeader(queue.topic, queue.queue_id, timestamp_ms)
        return await self._offset(queue, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)

    async def consumer_offset(self, group: str, queue: MessageQueue) -> int | None:
        """The next offset the group will consume, None when it has none."""
        header = QueryConsumerOffsetRequestHeader(group, queue.topic, queue.queue_id)
        try:
            return await self._offset(queue, RequestCode.QUERY_CONSUMER_OFFSET, header)
        except RequestRefused as error:
            if error.code == ResponseCode.QUERY_NOT_FOUND:
                return None
            raise

    async def update_consumer_offset(self, group: str, queue: MessageQueue, offset: int) -> None:
        header = UpdateConsumerOffsetRequestHeader(group, queue.topic, queue.queue_id, offset)
        await self._ask(await self._master_of(queue), RequestCode.UPDATE_CONSUMER_OFFSET, header)

    async def _offset(self, queue: MessageQueue, code: RequestCode, header: tuple[Any, ...]) -> int:
        reply = await self._ask(await self._master_of(queue), code, header)
        return reply.decode_header(OffsetResponseHeader).offset

    # Groups and locks ----------------------------------------------------------------------------------------

    async def consumer_ids(self, group: str) -> list[str]:
        """Client ids of the group's members, sorted, from every broker."""
        header = GetConsumerListByGroupRequestHeader(group)
        found: dict[str, None] = {}
        for address in await self._masters():
            try:
                body = await self._ask_for(ConsumerIdList, address, RequestCode.GET_CONSUMER_LIST_BY_GROUP, header)
            except RequestRefused:
                continue  # the broker knows no member
            found.update(dict.fromkeys(body.consumer_id_list))
        return sorted(found)

    async def groups(self) -> dict[str, list[str]]:
        """Consumer groups, online or with offsets stored, and their topics. Raises NotLockstepError."""
        merged: dict[str, dict[str, None]] = {}
        for address in await self._masters():
            await self._require_lockstep(address)
            body = await self._ask_for(ConsumerGroupList, address, RequestCode.LIST_CONSUMER_GROUPS)
            for group, topics in body.groups.items():
                merged.setdefault(group, {}).update(dict.fromkeys(topics))
        return {group: sorted(merged[group]) for group in sorted(merged)}

    async def list_locks(self, group: str | None = None) -> list[LockTableRow]:
        """The lock tables of all brokers, sorted by group and queue. Raises NotLockstepError."""
        rows: list[LockTableRow] = []
        for address in await self._masters():
            await self._require_lockstep(address)
            header = ListLocksRequestHeader(group)
            rows += (await self._ask_for(LockTableBody, address, RequestCode.LIST_LOCKS, header)).rows
        return sorted(rows, key=lambda row: (row.consumer_group, row.queue))

    # Calls ---------------------------------------------------------------------------------------------------

    async def _masters(self) -> list[str]:
        addresses = [broker.master_addr for broker in await self.brokers()]
        return [address for address in addresses if address is not None]

    async def _master_of(self, queue: MessageQueue) -> str:
        instance = self._started()
        if instance.routes.master_address(queue.broker_name) is None:
            await self.route(queue.topic)
        return instance.address_of(queue.broker_name)

    async def _require_lockstep(self, address: str) -> None:
        """Ask what only a Lockstep broker answers of one that agreed to be one."""
        endpoint = await self._started().dialer.endpoint(address)
        if not endpoint.agreed:
            probe = GetConsumerListByGroupRequestHeader("lockstep-probe")  # any call settles the encoding
            await self._reply(endpoint, RequestCode.GET_CONSUMER_LIST_BY_GROUP, probe)
        if not endpoint.agreed:
            raise NotLockstepError(f"the broker at {address} is not a Lockstep broker and has no such call")

    async def _ask(self, address: str, code: RequestCode, header: tuple[Any, ...] | None = None) -> RemotingCommand:
        """Raises RequestRefused for any code but SUCCESS."""
        endpoint = await self._started().dialer.endpoint(address)
        reply = await self._reply(endpoint, code, header)
        if reply.code != ResponseCode.SUCCESS:
            raise RequestRefused(address, request_name(code), reply.code, reply.remark)
        return reply

    async def _reply(self, endpoint: Endpoint, code: RequestCode, header: tuple[Any, ...] | None) -> RemotingCommand:
        return await endpoint.request(RemotingCommand(code, header), self._config.request_timeout_ms)

    async def _ask_for(
        self, body_class: type[B], address: str, code: RequestCode, header: tuple[Any, ...] | None = None
    ) -> B:
        reply = await self._ask(address, code, header)
        return decode_body(body_class, reply.body, reply.serialize_type)

    def _started(self) -> MQClientInstance:
        if self._instance is None:
            raise ClientError("this admin client is not started; use `async with` or await start()")
        return self._instance
