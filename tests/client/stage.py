"""Parts of a client on virtual time, with brokers whose answers a test chooses."""

import functools
import inspect
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from lockstep.client.admin.client import AdminClient
from lockstep.client.config import ClientConfig
from lockstep.client.instance.client import ClientRole, MQClientInstance, name_server_addresses
from lockstep.protocol.bodies.broker import BrokerData, ClusterInfo, QueueData, TopicRouteData
from lockstep.protocol.bodies.codec import WireBody, encode_body
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.headers.messaging import GetRouteInfoRequestHeader
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.connections.endpoint import Endpoint, EndpointCallbacks, EndpointSettings
from lockstep.remoting.host.runtime import Listening
from lockstep.simulation import SimRuntime, World, simulate
from tests.remoting.helpers import RecordingLog

__all__ = ["TOPIC", "FakeBroker", "Stage", "on_stage", "queue_at"]

TOPIC = "Aircraft"
PORT, NAME_SERVER_PORT = 10911, 9876
Reply = RemotingCommand | None
Handler = Callable[[RemotingCommand], Reply]


def queue_at(queue_id: int, broker: str = "broker-a", topic: str = TOPIC) -> MessageQueue:
    return MessageQueue(topic, broker, queue_id)


class FakeBroker:
    """A broker, and the name server for the routes it was given.

    `on[code]` answers a request, with None later or never; `seen` are all requests in order of arrival. One that does
    not agree is a stranger: it never echoes the offer of an encoding.
    """

    def __init__(self, runtime: SimRuntime, *, agrees: bool) -> None:
        self.runtime = runtime
        self.agrees = agrees
        self.name = runtime.name
        self.routes: dict[str, TopicRouteData] = {}
        self.seen: list[RemotingCommand] = []
        self.endpoints: list[Endpoint] = []
        self.on: dict[int, Handler] = {
            RequestCode.HEART_BEAT: lambda command: command.reply(ResponseCode.SUCCESS),
            RequestCode.UNREGISTER_CLIENT: lambda command: command.reply(ResponseCode.SUCCESS),
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster,
        }
        self._listening: list[Listening] = []

    @property
    def address(self) -> str:
        return f"{self.runtime.address}:{PORT}"

    @property
    def name_server(self) -> str:
        return f"{self.runtime.address}:{NAME_SERVER_PORT}"

    async def start(self) -> None:
        for port in (PORT, NAME_SERVER_PORT):
            self._listening.append(await self.runtime.create_server(self._accept, self.runtime.address, port))

    def stop(self) -> None:
        """Nobody listens any more, and every connection is cut."""
        for listening in self._listening:
            listening.close()
        for endpoint in self.endpoints:
            endpoint.abort("the broker stops")

    def _accept(self) -> Endpoint:
        settings = EndpointSettings(server=True)
        callbacks = EndpointCallbacks(self._answer, on_opened=self.endpoints.append)
        return Endpoint(self.runtime, settings, callbacks, RecordingLog())

    def _answer(self, endpoint: Endpoint, command: RemotingCommand) -> Reply:
        self.seen.append(command)
        if not self.agrees:
            endpoint._connection.agreement.ignore()
        handler = self.on.get(command.code)
        if handler is None:
            return command.reply(ResponseCode.REQUEST_CODE_NOT_SUPPORTED, remark="not in this test")
        return handler(command)

    def requests(self, code: int) -> list[RemotingCommand]:
        return [command for command in self.seen if command.code == code]

    def answers(self, code: int, *answers: int | tuple[Any, ...] | WireBody | None) -> None:
        """The answers to requests of `code`, in turn, the last one for ever.

        A response code, a header, a structured body, or None for silence.
        """
        left = list(answers)

        def answer(command: RemotingCommand) -> Reply:
            chosen = left.pop(0) if len(left) > 1 else left[0]
            if chosen is None:
                return None
            if isinstance(chosen, int):
                return command.reply(chosen, remark="so says the test")
            body: Any = chosen
            if hasattr(body, "to_wire"):
                return command.reply(ResponseCode.SUCCESS, body=encode_body(body, command.serialize_type))
            return command.reply(ResponseCode.SUCCESS, body)

        self.on[code] = answer

    # As a name server ----------------------------------------------------------------------------------------

    def _route(self, command: RemotingCommand) -> Reply:
        topic = command.decode_header(GetRouteInfoRequestHeader).topic
        route = self.routes.get(topic)
        if route is None:
            return command.reply(ResponseCode.TOPIC_NOT_EXIST, remark=f"no topic {topic}")
        return command.reply(ResponseCode.SUCCESS, body=encode_body(route, command.serialize_type))

    def _cluster(self, command: RemotingCommand) -> Reply:
        brokers = {data.broker_name: data for route in self.routes.values() for data in route.broker_datas}
        info = ClusterInfo(tuple(brokers[name] for name in sorted(brokers)))
        return command.reply(ResponseCode.SUCCESS, body=encode_body(info, command.serialize_type))

    def tell(self, command: RemotingCommand) -> None:
        """A one-way request to everybody who is connected."""
        for endpoint in self.endpoints:
            endpoint.send_one_way(command)


class Stage:
    """`client` is the host of the code under test; `on_close` is awaited at the end."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.client = world.host("client")
        self.log = RecordingLog()
        self.brokers: list[FakeBroker] = []
        self.on_close: list[Callable[[], Awaitable[object]]] = []
        self._instances: list[MQClientInstance] = []

    async def broker(self, name: str = "broker-a", *, agrees: bool = True, queues: int = 0) -> FakeBroker:
        """`queues`: the topic has so many, all of them on this broker; with 0 it has no route yet."""
        broker = FakeBroker(self.world.host(name), agrees=agrees)
        await broker.start()
        self.brokers.append(broker)
        if queues:
            self.route_to({name: queues})
        return broker

    def route_to(self, queues: Mapping[str, int], topic: str = TOPIC, *, perm: int = 6) -> TopicRouteData:
        """The topic's queues by broker name, known to every broker here as name servers."""
        by_name = {broker.name: broker.address for broker in self.brokers}
        route = TopicRouteData(
            tuple(QueueData(name, count, count, perm) for name, count in queues.items()),
            tuple(BrokerData(name, "c", {0: by_name[name]}) for name in queues),
        )
        for broker in self.brokers:
            broker.routes[topic] = route
        return route

    @property
    def name_server(self) -> str:
        return ";".join(broker.name_server for broker in self.brokers)

    def instance(
        self, config: ClientConfig | None = None, *, name_server: str | None = None, **kwargs: Any
    ) -> MQClientInstance:
        """`name_server`: "" for one that must discover them; by default all there are. Other arguments: its role's."""
        given = self.name_server if name_server is None else name_server
        config = config or ClientConfig()
        addresses, role = name_server_addresses(given, config), ClientRole(**kwargs)
        instance = MQClientInstance(self.client, addresses, config, self.log, role)
        self._instances.append(instance)
        return instance

    def admin(self) -> AdminClient:
        return AdminClient(name_server=self.name_server, runtime=self.client, log=self.log)

    def events(self, level: str | None = None) -> list[str]:
        return [event for at, event, _ in self.log.events if level in (None, at)]

    async def close(self) -> None:
        for close in self.on_close:
            await close()
        for instance in self._instances:
            await instance.schedule.stop()
            instance.dialer.close()
        for broker in self.brokers:
            broker.stop()


def on_stage(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A test on virtual time: `test` runs on the client's host, and nothing may be left running after it.

    What the test takes besides the stage is given by `parametrize` or `by_row` above.
    """

    @functools.wraps(test)
    def run(**given: Any) -> None:
        async def play(stage: Stage) -> None:
            try:
                await test(stage, **given)
            finally:
                await stage.close()

        async def scenario(world: World) -> None:
            stage = Stage(world)
            await stage.client.run(play(stage))

        simulate(scenario)

    del run.__wrapped__  # pytest would look for a fixture named "stage"
    run.__dict__["__signature__"] = inspect.Signature(list(inspect.signature(test).parameters.values())[1:])
    return run
