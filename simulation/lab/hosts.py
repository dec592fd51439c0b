"""Real brokers, producers and consumers on simulated hosts, by name: they start, end, crash and start again."""

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from enum import Enum
from functools import partial
from typing import Any, Final, TypeVar

from lockstep.broker.config import BrokerConfig
from lockstep.broker.core.broker import Broker
from lockstep.broker.fronts.remoting.name_server.route import route_reply
from lockstep.broker.name_server.name_server import NameServer
from lockstep.broker.server import BrokerServer, CallInterceptor, Interceptor
from lockstep.client import (
    ConsumerConfig,
    LitePullConsumer,
    MessageExt,
    MessageQueue,
    Producer,
    ProducerConfig,
    PullConsumer,
    PushConsumer,
    SerializeType,
    SimpleConsumer,
)
from lockstep.client.instance.client import MQClientInstance
from lockstep.order import Record
from lockstep.protocol.bodies.broker import TopicRouteData
from lockstep.protocol.bodies.subscription_group import SubscriptionGroupConfig
from lockstep.protocol.codes import RequestCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.messages.message import decode_messages
from lockstep.remoting.connections.endpoint import Endpoint, RequestHandler
from lockstep.remoting.logs import EventLog
from lockstep.simulation.lab.changes import Changes
from lockstep.simulation.lab.cluster_log import HostLog, LogLine
from lockstep.simulation.lab.findings import Findings
from lockstep.simulation.lab.lasting import Lasting
from lockstep.simulation.lab.listeners import ListenerFaults
from lockstep.simulation.lab.setup import FaultEvent, Setup
from lockstep.simulation.machine.host import HostEvent
from lockstep.simulation.runtime import SimRuntime
from lockstep.simulation.world import World
from lockstep.store import MessageStore

__all__ = ["BROKER", "GROUP", "ONE_CLOCK", "PRODUCER", "TOPIC", "TRACE", "Client", "Door", "Hosts"]

Client = PushConsumer | Producer | PullConsumer | LitePullConsumer | SimpleConsumer
C = TypeVar("C", bound=Client)
BROKER, PRODUCER = "broker", "producer"
TOPIC: Final = "orders"
GROUP: Final = "shop"
TRACE = "trace.jsonl"
ONE_CLOCK = {"host": "simulation", "machine": "simulation", "boot": "1"}


class _State(Enum):
    DOWN = "down"
    CHANGES = "changes"  # it starts or ends
    UP = "up"


class Door:
    """An Interceptor around another one, if there is one.

    `peer` is the address whose request is handled now; empty: none is. `route` has the routes that a name server
    answers in the place of its own, if there are such.

    Args:
        count: called with the code of each request.
    """

    def __init__(self, inner: Interceptor | None, count: Callable[[int], object]) -> None:
        self._inner = inner
        self._count = count
        self.peer = ""
        self.route: Callable[[str], TopicRouteData | None] | None = None

    def intercept(self, on_request: RequestHandler) -> RequestHandler:
        handle = on_request if self._inner is None else self._inner.intercept(on_request)

        def noted(endpoint: Endpoint, command: RemotingCommand) -> RemotingCommand | None:
            self.peer = endpoint.address
            self._count(command.code)
            try:
                reply = handle(endpoint, command)
            finally:
                self.peer = ""
            if self.route is not None and command.code == RequestCode.GET_ROUTEINFO_BY_TOPIC:
                return route_reply(command, self.route)
            return reply

        return noted

    def answer_by(self, route: Callable[[str], TopicRouteData | None] | None) -> None:
        self.route = route

    def delay(self, factory: Callable[[], Endpoint]) -> Callable[[], Any]:
        return factory if self._inner is None else self._inner.delay(factory)


class Hosts:
    """Brokers and clients by the names of their hosts. `log` is all that they logged.

    Args:
        setup: the lock mode and the store of the brokers, and settings; the other parts are the caller's to use.
        topic, group: what the consumers subscribe to, and their consumer group.
        tap: makes the interceptor of a server, by the name of its host.
    """

    def __init__(
        self,
        world: World,
        setup: Setup | None = None,
        *,
        serialize_type: SerializeType = SerializeType.MSGPACK,
        topic: str = TOPIC,
        group: str = GROUP,
        tap: Callable[[str], Interceptor | None] = lambda _: None,
    ) -> None:
        self.world = world
        self.setup = setup or Setup()
        self.serialize_type = serialize_type
        self.topic = topic
        self.consumer_group = group
        self.log: list[LogLine] = []
        self.findings = Findings(world)
        self.ended_ms: int | None = None  # when the shutdown of all began
        self._tap = tap
        self._names: tuple[str, ...] = ()  # hosts of name servers; none: the broker named BROKER carries it
        self._servers: dict[str, BrokerServer] = {}  # in order of their start
        self._doors: dict[str, Door] = {}  # by host of a server
        self.call_interceptor: CallInterceptor | None = None  # of brokers that start from now on
        self.when_broker_started: list[Callable[[str], object]] = []  # or has started again
        self.when_broker_stops: list[Callable[[str], object]] = []  # it still has all that it had
        self._topics: dict[str, int] = {}
        self._clients: dict[str, Client | MQClientInstance] = {}  # alive, in order of their start
        self._traced: dict[str, None] = {}
        self.witnessed: list[Record] = []  # what brokers stored, and when one came back empty
        self._members: dict[str, None] = {}  # hosts of consumers
        self._states: dict[str, _State] = {}
        self._recipes: dict[str, Callable[[], Awaitable[object]]] = {}  # how a host was started last
        self.requests: dict[str, Counter[tuple[int, int]]] = {}  # broker -> requests of a second and a code
        self.changes = Changes(world)
        self.lasting = Lasting()
        self.listeners = ListenerFaults(world)
        # Sends one message more from a host, with the key of a number; None: nobody knows how.
        self.send_more: Callable[[str, int], object] | None = None
        self.kept_down: dict[str, list[FaultEvent]] = {}  # host -> faults that keep it down
        self.deaf_links: set[tuple[str, str]] = set()  # a connection of the two has ended at one side alone

    def log_of(self, name: str) -> HostLog:
        """The log of a host."""
        return HostLog(self.log, self.world, name)

    # Brokers -------------------------------------------------------------------------------------------------

    @property
    def name_server(self) -> str:
        return ";".join(f"{name}:9876" for name in self._names or (BROKER,))

    async def start_name_server(self, name: str, **settings: Any) -> None:
        """On a host of its own, before any broker, or again; there may be several."""
        self._begin(name, partial(self.start_name_server, name, **settings))
        config = BrokerConfig(host=name, advertise=self.world.host(name).address, serve_broker=False, **settings)
        door = self._doors[name] = Door(self._tap(name), lambda _: None)
        server = BrokerServer(config, self.world.host(name), self.log_of(name), interceptor=door)
        await self.world.host(name).run(server.start())
        self._states[name] = _State.UP
        self._names, self._servers[name] = tuple(dict.fromkeys((*self._names, name))), server

    async def broker(self, name: str = BROKER, *, queues: int = 4, **settings: Any) -> BrokerServer:
        """Start a broker with the topic, or start it again; with an empty store, unless `data_dir` is among the
        settings."""
        if self.setup.fenced:
            settings = {"lock_mode": "fenced", **settings}
        self._begin(name, partial(self.broker, name, queues=queues, **settings))
        runtime = self.world.host(name)
        own: dict[str, Any] = {}
        if self._names or name != BROKER:
            own = {"serve_name_server": False, "name_servers": self.name_server}
        config = BrokerConfig(host=name, advertise=runtime.address, broker_name=name, **own, **settings)
        door = self._doors[name] = Door(self._tap(name), partial(self._asked, name))
        server = BrokerServer(
            config, runtime, self.log_of(name), interceptor=door, call_interceptor=self.call_interceptor
        )
        if name not in self._topics or not config.data_dir:
            server.create_topic(self.topic, queues)
        if self.setup.fifo:
            assert server.broker is not None
            group = SubscriptionGroupConfig(self.consumer_group, consume_message_orderly=True)
            server.broker.catalog.groups.put(group, runtime.now_ms())
        await runtime.run(server.start())
        self._watch_commits(name, server)
        if name in self._topics and not config.data_dir:
            self.witness("broker_restarted", broker=name)
        self._topics[name] = queues
        self._servers[name] = server
        self._states[name] = _State.UP
        for callback in self.when_broker_started:
            callback(name)
        return server

    def _asked(self, name: str, code: int) -> None:
        self.requests.setdefault(name, Counter())[self.world.elapsed_ms // 1000, code] += 1

    async def stop_broker(self, name: str = BROKER) -> None:
        """A clean shutdown. Until it is over, the broker still handles what arrives."""
        self._states[name] = _State.CHANGES
        await self._shut_down_server(name)
        self._servers.pop(name, None)  # it may have crashed meanwhile
        self._states[name] = _State.DOWN
        self.world.tell(name, HostEvent.LEFT)

    async def _shut_down_server(self, name: str) -> None:
        for callback in self.when_broker_stops if name in self._topics else ():
            callback(name)
        await self.world.host(name).run(self._servers[name].shutdown())

    @property
    def brokers(self) -> tuple[str, ...]:
        """The names of the brokers, also of those that are down."""
        return tuple(self._topics)

    @property
    def queue_count(self) -> int:
        """Of the topic, at all brokers."""
        return sum(self._topics.values())

    @property
    def name_servers(self) -> tuple[str, ...]:
        """The names of those on hosts of their own, also of those that are down."""
        return self._names

    def witness(self, event: str, **fields: Any) -> None:
        """Add a record of the broker's side to what the judge reads."""
        head = {"event": event, "wall_ms": self.world.now_ms, "mono_ns": self.world.loop.now_ns}
        self.witnessed.append({**head, **ONE_CLOCK, **fields})

    def _watch_commits(self, name: str, server: BrokerServer) -> None:
        """Commits are sent one-way: only the broker knows which of them arrived."""
        assert server.broker is not None

        def committed(consumer_group: str, topic: str, queue_id: int, committed_offset: int) -> None:
            self.on_commit(consumer_group, MessageQueue(topic, name, queue_id), committed_offset)

        server.broker.catalog.offsets.when_committed.append(committed)

    def on_commit(self, consumer_group: str, queue: MessageQueue, committed_offset: int) -> None:
        """A broker stores an offset."""
        self.witness(
            "stored",
            group=consumer_group,
            offset=committed_offset,
            topic=queue.topic,
            broker=queue.broker_name,
            queue_id=queue.queue_id,
        )
        name, peer = queue.broker_name, self._doors[queue.broker_name].peer
        self.log_of(name).debug("offset stored", offset=committed_offset, queue=str(queue), peer=peer)

    def core(self, name: str = BROKER) -> Broker:
        """The tables of a running broker."""
        broker = self._servers[name].broker
        assert broker is not None
        return broker

    def name_server_at(self, name: str) -> NameServer:
        """The routes of a running name server. Raises LookupError for a host that has none."""
        server = self._servers[name].name_server if name in self._servers else None
        if server is None:
            raise LookupError(f"no name server runs on {name!r}")
        return server

    def door(self, name: str) -> Door:
        """What stands before a server."""
        return self._doors[name]

    def members(self, name: str = BROKER) -> tuple[str, ...]:
        """The client ids of the group as the broker knows it."""
        return self.core(name).members.consumers.client_ids(self.consumer_group)

    def store(self, name: str = BROKER) -> MessageStore:
        return self.core(name).messages.store

    def stored(
        self, queue_id: int = 0, name: str = BROKER, *, topic: str | None = None, first: int = 0
    ) -> list[MessageExt]:
        """All messages in a queue of the broker's store, from an offset on."""
        store, messages = self.store(name), list[MessageExt]()
        while found := store.get(topic or self.topic, queue_id, first + len(messages), 32, None).body:
            messages += decode_messages(found, name)
        return messages

    # Clients -------------------------------------------------------------------------------------------------

    async def consumer(self, name: str, *, listener: Any, **arguments: Any) -> PushConsumer:
        """Start a consumer of the topic on a host of its own. `arguments` are the PushConsumer's and settings."""
        if self.setup.fenced and arguments.get("ordering") != "none" and "message_model" not in arguments:
            arguments = {"fenced": True, **arguments}
        if self.setup.fifo:
            arguments = {"pop": True, **arguments}
        start = partial(self.consumer, name, listener=listener, **arguments)
        runtime = self.world.host(name)
        of_consumer = {key: arguments.pop(key) for key in _OF_CONSUMER if key in arguments}
        listener = self.listeners.around(runtime, listener, arguments.get("ordering", "queue"))
        # The texts of stories, articles and exhibits name commits one by one. Worlds draw whether they go together.
        arguments.setdefault("commit_together", False)
        consumer = PushConsumer(
            self.consumer_group,
            name_server=self.name_server,
            config=ConsumerConfig(**{"serialize_type": self.serialize_type, **arguments}),
            listener=listener,
            trace=TRACE,
            runtime=runtime,
            log=self.log_of(name),
            **of_consumer,
        )
        consumer.subscribe(self.topic)
        return await self._start_traced(name, consumer, start)

    async def producer(self, name: str = PRODUCER, **settings: Any) -> Producer:
        runtime = self.world.host(name)
        config = ProducerConfig(serialize_type=self.serialize_type, **settings)
        producer = Producer(
            f"{name}s", name_server=self.name_server, config=config, trace=TRACE, runtime=runtime, log=self.log_of(name)
        )
        return await self._start_traced(name, producer, partial(self.producer, name, **settings))

    async def _start_traced(self, name: str, client: C, start: Callable[[], Awaitable[object]]) -> C:
        self._traced[name] = None
        self.world.disk(name).keep(TRACE)
        if not isinstance(client, Producer):
            self._members[name] = None
        self._begin(name, start)
        self._clients[name] = client
        await self.world.host(name).run(client.start())
        self._states[name] = _State.UP
        return client

    async def start_client(self, name: str, make: Callable[[SimRuntime, EventLog], C], *, traced: bool = False) -> C:
        """Start a producer or consumer of the caller's own on a host; the end shuts it down.

        Args:
            traced: it writes the file TRACE, which the judge reads.
        """
        client = make(self.world.host(name), self.log_of(name))
        start = partial(self.start_client, name, make, traced=traced)
        if traced:
            return await self._start_traced(name, client, start)
        self._begin(name, start)
        self._clients[name] = client
        await self.world.host(name).run(client.start())
        self._states[name] = _State.UP
        return client

    @property
    def consumers(self) -> tuple[str, ...]:
        """The names of the consumers with a trace, also of those that are down."""
        return tuple(self._members)

    @property
    def clients(self) -> Mapping[str, Client | MQClientInstance]:
        """Those that live, by the names of their hosts, in order of their start."""
        return self._clients

    def client(self, name: str) -> Client | MQClientInstance:
        """A living client by its host's name."""
        return self._clients[name]

    async def leave(self, name: str) -> None:
        """A clean shutdown of a client."""
        client = self._clients.pop(name)
        self._states[name] = _State.CHANGES
        await self.world.host(name).run(client.shutdown())
        self._states[name] = _State.DOWN
        self.world.tell(name, HostEvent.LEFT)

    def crash(self, name: str, *, silently: bool = False) -> None:
        """SIGKILL, or with `silently` the whole machine, of a client or a broker."""
        self._clients.pop(name, None)
        self._states[name] = _State.DOWN
        self.world.crash(name, silently=silently)
        self.lasting.process_ended(name)

    def power_cut(self, name: str = BROKER) -> None:
        """The machine loses its power. The disk of a broker keeps what was synced, that of a client everything."""
        if self._servers.pop(name, None) is None:
            self.crash(name, silently=True)
        else:
            self._states[name] = _State.DOWN
            self.world.power_cut(name)
            self.lasting.process_ended(name)

    # Any host ------------------------------------------------------------------------------------------------

    def _begin(self, name: str, start: Callable[[], Awaitable[object]]) -> None:
        self._recipes[name], self._states[name] = start, _State.CHANGES
        self.kept_down.pop(name, None)
        # The host may live on after an orderly end of the process before, and then has not started itself.
        self.world.tell(name, HostEvent.STARTED)

    def is_up(self, name: str) -> bool:
        """Whether the broker or client of a host has started, and neither ended nor crashed."""
        return self._states.get(name) is _State.UP

    @property
    def started_hosts(self) -> tuple[str, ...]:
        """The hosts that were started, in order of their first start, also those that are down."""
        return tuple(self._recipes)

    def is_down(self, name: str) -> bool:
        return self._states.get(name, _State.DOWN) is _State.DOWN

    def may_start(self, name: str) -> bool:
        """Whether a host is down, and has been up."""
        return self.is_down(name) and name in self._recipes

    async def stop(self, name: str) -> None:
        """A clean shutdown of a broker or a client. A client that starts again is another process."""
        if name in self._servers:
            await self.stop_broker(name)
        else:
            await self.leave(name)
            self.crash(name)

    async def start_again(self, name: str) -> None:
        """Start what the host had, as it was started last."""
        await self._recipes[name]()


_OF_CONSUMER = ("ordering", "strategy", "fenced", "on_acquired", "on_lost", "pop")
