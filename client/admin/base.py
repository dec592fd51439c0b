"""AdminBase: the requests of the admin client to brokers and name servers."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from copy import copy
from typing import Any, Final, Self, TypeVar

from lockstep.client.admin.at_once import at_once
from lockstep.client.admin.budget import AnswerBudget, AnswerTooLargeError
from lockstep.client.admin.tolerance import Tolerance
from lockstep.client.config import ClientConfig
from lockstep.client.credentials import with_credentials
from lockstep.client.errors import NotLockstepError, TopicNotFoundError
from lockstep.client.instance.client import MQClientInstance, name_server_addresses
from lockstep.client.lifecycle import Lifecycle
from lockstep.client.tls import with_tls
from lockstep.protocol.bodies.broker import BrokerData, ClusterInfo, TopicRouteData
from lockstep.protocol.bodies.codec import WireBody, decode_body, encode_body
from lockstep.protocol.codes import RequestCode, request_name
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import GetConsumerListByGroupRequestHeader
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.signature import Credentials
from lockstep.remoting.connections.endpoint import Endpoint
from lockstep.remoting.errors import RequestRefused, must_succeed
from lockstep.remoting.host.runtime import AsyncioRuntime, Runtime
from lockstep.remoting.logs import EventLog, client_log
from lockstep.remoting.tls.options import TlsOptions

__all__ = ["AdminBase", "AnswerTooLargeError", "NotLockstepError"]

B = TypeVar("B", bound=WireBody)
R = TypeVar("R")
# Members that are asked at once. A silent one keeps one of the 16 admin threads of an Apache broker busy.
_MEMBERS_ASKED_MAX: Final = 16


class AdminBase(Lifecycle):
    """Brokers, routes, and requests to one broker.

    Args:
        credentials: the account that signs the requests; without it, LOCKSTEP_ACCESS_KEY and LOCKSTEP_SECRET_KEY
            of the environment, or no signature.
        tls: True or TlsOptions: all connections use TLS; without it, as LOCKSTEP_TLS says.
    """

    _config_class = ClientConfig

    def __init__(
        self,
        *,
        name_server: str | None = None,
        config: ClientConfig | None = None,
        credentials: Credentials | None = None,
        tls: TlsOptions | bool | None = None,
        runtime: Runtime | None = None,
        log: EventLog | None = None,
    ) -> None:
        self._config = with_tls(with_credentials(config or ClientConfig(), credentials), tls)
        self._name_servers = name_server_addresses(name_server, self._config)
        self._runtime = runtime
        self._log = client_log(log)
        self._instance: MQClientInstance | None = None
        self._asked = asyncio.Semaphore(_MEMBERS_ASKED_MAX)
        self._only: BrokerData | None = None
        self._budget: AnswerBudget | None = None
        self._tolerance: Tolerance | None = None

    def at(self, broker: BrokerData) -> Self:
        """Return this client as one that knows no other broker: what it asks of all brokers it asks of this one.

        It is started and closed with this client.
        """
        view = copy(self)
        vars(view)["_only"] = broker
        return view

    def bounded(self, bytes_max: int) -> Self:
        """Return this client for one task, to which brokers and name servers may answer so many bytes in all.

        What exceeds them raises AnswerTooLargeError. Stored messages do not count. It is started and closed with this
        client, and remembers no routes.

        Args:
            bytes_max: Of the bodies of answers; one object or list may come for 64 bytes of it.
        """
        view = copy(self)
        vars(view)["_budget"] = AnswerBudget(bytes_max)
        return view

    def tolerant(self, wait_s: float, gone: Mapping[str, str] | None = None) -> Self:
        """Return this client for one task, which goes on without brokers that do not answer, or refuse.

        What it asks of all brokers, or of all that have a topic, it tells of those that answer; `left_out` says which
        are missing. When none answers, the error of the first one is raised. It is started and closed with this
        client.

        Args:
            wait_s: How long a question waits for all brokers together, in seconds; one that did not answer in time is
                not asked again. It waits as long for a route before it: a name server that takes longer is a
                TimeoutError.
            gone: Brokers by name that are not asked, and why.
        """
        view = copy(self)
        vars(view)["_tolerance"] = Tolerance(wait_s, gone or {})
        return view

    @property
    def left_out(self) -> Mapping[str, str]:
        """The brokers by name that a tolerant client went on without, and why."""
        return self._tolerance.left_out if self._tolerance is not None else {}

    async def _start(self) -> None:
        runtime = self._runtime or AsyncioRuntime()
        self._instance = MQClientInstance(runtime, self._name_servers, self._config, self._log)

    async def _shutdown(self) -> None:
        if self._instance is not None:
            self._instance.dialer.close()

    async def brokers(self) -> list[BrokerData]:
        if self._only is not None:
            return [self._only]
        routes, code = self._started().routes, RequestCode.GET_BROKER_CLUSTER_INFO
        async with asyncio.timeout(self._wait_s):
            return list((await routes.ask_for(ClusterInfo, code, self._take)).brokers)

    async def route(self, topic: str) -> TopicRouteData:
        """Raises TopicNotFoundError."""
        routes = self._started().routes
        async with asyncio.timeout(self._wait_s):
            route = await (routes.fetch(topic) if self._budget is None else routes.look_up(topic, self._take))
        if route is None:
            raise TopicNotFoundError(f"topic {topic!r} does not exist")
        return route

    # Calls ---------------------------------------------------------------------------------------------------

    @property
    def _wait_s(self) -> float | None:
        """None: as long as the settings say."""
        return self._tolerance.wait_s if self._tolerance is not None else None

    async def _masters(self) -> dict[str, str]:
        """Return the address of each broker by name, in the order of `brokers`."""
        brokers = await self.brokers()
        return {broker.broker_name: broker.master_addr for broker in brokers if broker.master_addr is not None}

    async def _masters_by_name(self, topic: str) -> dict[str, str]:
        """Return the address by name of each broker that has the topic."""
        datas = sorted((await self.route(topic)).broker_datas, key=lambda data: data.broker_name)
        if self._only is not None:
            datas = [data for data in datas if data.broker_name == self._only.broker_name]
        return {data.broker_name: data.master_addr for data in datas if data.master_addr is not None}

    async def _ask_all(self, question: Callable[[str], Awaitable[R]]) -> dict[str, R]:
        """Ask the masters of all brokers. Returns and raises as `_ask_these`."""
        return await self._ask_these(await self._masters(), question)

    async def _ask_these(self, masters: Mapping[str, str], question: Callable[[str], Awaitable[R]]) -> dict[str, R]:
        """Ask brokers at once. Changes are not made so: a broker that fails keeps those after it as they are.

        Args:
            masters: Their addresses by name.
            question: Asks one, by its address.

        Returns:
            The answers by name, in the order of `masters`; of a tolerant client those that came.

        Raises:
            Exception: Of the first one of `masters` that fails, whoever fails first.
        """
        if self._tolerance is not None:
            return await self._tolerance.ask(question, masters)
        return dict(zip(masters, await at_once(question, masters.values()), strict=True))

    async def _master_of(self, queue: MessageQueue) -> str:
        instance = self._started()
        if instance.routes.master_address(queue.broker_name) is None:
            await self.route(queue.topic)
        return instance.address_of(queue.broker_name)

    async def is_lockstep(self, address: str) -> bool:
        """Whether the broker agrees on Lockstep's own features. Raises RemotingError when it does not answer."""
        endpoint = await self._started().dialer.endpoint(address)
        if not endpoint.agreed:
            probe = GetConsumerListByGroupRequestHeader(
                "lockstep-probe"
            )  # any request makes the two agree on an encoding
            await self._reply(endpoint, RequestCode.GET_CONSUMER_LIST_BY_GROUP, probe)
        return endpoint.agreed

    async def _require_lockstep(self, address: str) -> None:
        """Raises NotLockstepError unless the broker is a Lockstep broker."""
        if not await self.is_lockstep(address):
            raise NotLockstepError(f"the broker at {address} is not a Lockstep broker and has no such call")

    async def _ask(
        self, address: str, code: RequestCode, header: tuple[Any, ...] | None = None, *, timeout_ms: int | None = None
    ) -> RemotingCommand:
        """Raises RequestRefused for any code but SUCCESS."""
        endpoint = await self._started().dialer.endpoint(address)
        reply = await self._reply(endpoint, code, header, timeout_ms)
        must_succeed(reply, address, code)
        return reply

    async def _tell(self, address: str, code: RequestCode, body: WireBody) -> None:
        """A request with a body. Raises RequestRefused for any code but SUCCESS."""
        endpoint = await self._started().dialer.endpoint(address)
        command = RemotingCommand(code, body=encode_body(body, endpoint.serialize_type))
        must_succeed(await endpoint.request(command, self._config.request_timeout_ms), address, code)

    async def _reply(
        self, endpoint: Endpoint, code: RequestCode, header: tuple[Any, ...] | None, timeout_ms: int | None = None
    ) -> RemotingCommand:
        return await endpoint.request(RemotingCommand(code, header), timeout_ms or self._config.request_timeout_ms)

    async def _ask_for(
        self,
        body_class: type[B],
        address: str,
        code: RequestCode,
        header: tuple[Any, ...] | None = None,
        *,
        timeout_ms: int | None = None,
    ) -> B:
        """Return the decoded body of the answer.

        Raises:
            RequestRefused: the code is not SUCCESS, or there is no body. Go's client answers without a body when its
                statistics hold a NaN.
        """
        reply = await self._ask(address, code, header, timeout_ms=timeout_ms)
        if not reply.body:
            raise RequestRefused(address, request_name(code), reply.code, reply.remark or "an answer without a body")
        self._take(address, code, reply)
        return decode_body(body_class, reply.body, reply.serialize_type)

    def _take(self, address: str, code: int, reply: RemotingCommand) -> None:
        """Raises AnswerTooLargeError."""
        if self._budget is not None:
            self._budget.take(address, code, reply)

    def _started(self) -> MQClientInstance:
        if self._instance is None:
            raise self.wrong_state()
        return self._instance
