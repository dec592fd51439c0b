"""Routes: which broker holds which queue. They come from the name servers and are refreshed every 30 s."""

from collections.abc import Callable
from random import Random
from typing import Final, TypeVar

from lockstep.client.errors import NoRouteError
from lockstep.client.instance.name_servers import NameServers
from lockstep.protocol.bodies.broker import TopicRouteData
from lockstep.protocol.bodies.codec import WireBody, decode_body
from lockstep.protocol.codes import MASTER_ID, RequestCode, ResponseCode
from lockstep.protocol.command import RemotingCommand
from lockstep.protocol.errors import BodyError
from lockstep.protocol.headers.messaging import GetRouteInfoRequestHeader
from lockstep.remoting.errors import must_succeed
from lockstep.remoting.logs import EventLog

__all__ = ["Routes"]

B = TypeVar("B", bound=WireBody)
TakeAnswer = Callable[[str, int, RemotingCommand], None]
_BROKERS_KEPT: Final = 1000
# Topics. Messages may name them too: a reply goes to the topic of the cluster that its request names.
_UNKNOWN_MAX: Final = 1000


class Routes:
    """The known routes. They stay while no name server answers."""

    def __init__(self, name_servers: NameServers, log: EventLog) -> None:
        self._name_servers = name_servers
        self._log = log
        self._routes: dict[str, TopicRouteData] = {}
        self._answers: dict[str, tuple[tuple[int, bytes], TopicRouteData]] = {}  # as they came, the last of each topic
        self._wanted: dict[str, None] = {}  # topics that a caller requested, also those without a route
        self._unknown: dict[str, None] = {}  # those without a route, the one that was asked for longest ago first
        self._brokers: dict[str, dict[int, str]] = {}
        self.on_changed: list[Callable[[str], None]] = []

    def known(self, topic: str) -> TopicRouteData | None:
        return self._routes.get(topic)

    @property
    def topics(self) -> list[str]:
        return list(self._routes)

    def master_address(self, broker_name: str) -> str | None:
        """The address of the broker's master, if a known route names it."""
        return self._brokers.get(broker_name, {}).get(MASTER_ID)

    def reading_address(self, broker_name: str, broker_id: int = MASTER_ID) -> tuple[str, int] | None:
        """The address to pull from and its broker id: `broker_id` when it is known, or else another of the broker.

        RocketMQ replaces a missing slave by the one with the next id, then by the lowest id of all. So a slave
        replaces a missing master (wire.md 12.6).
        """
        by_id = self._brokers.get(broker_name)
        if not by_id:
            return None
        if broker_id not in by_id:
            next_id = broker_id + 1
            broker_id = next_id if broker_id != MASTER_ID and next_id in by_id else min(by_id)
        return by_id[broker_id], broker_id

    def any_address(self, topic: str, rng: Random) -> str | None:
        """The master, or else a slave, of a random broker of the topic. None while the topic has no known route."""
        route = self._routes.get(topic)
        if route is None or not route.broker_datas:
            return None
        data = rng.choice(route.broker_datas)
        return data.master_addr or next(iter(data.broker_addrs.values()), None)

    def broker_name_at(self, address: str) -> str | None:
        """The name of the broker with this address, if a known route names it."""
        return next((name for name, by_id in self._brokers.items() if address in by_id.values()), None)

    def broker_addresses(self, *, masters_only: bool) -> list[str]:
        return [
            address
            for by_id in self._brokers.values()
            for broker_id, address in sorted(by_id.items())
            if broker_id == MASTER_ID or not masters_only
        ]

    async def fetch(self, topic: str) -> TopicRouteData | None:
        """Get a route from a name server now, and remember it.

        Returns:
            None when the name server does not know the topic.

        Raises:
            NoRouteError: No name server answered with a route.
        """
        self._want(topic)
        _, reply = await self._ask_route(topic)
        if reply is None:
            return None
        answer, (last, route) = (reply.serialize_type, reply.body), self._answers.get(topic, (None, None))
        if route is None or answer != last:
            # Nearly all answers repeat the last one.
            route = decode_body(TopicRouteData, reply.body, reply.serialize_type)
            self._answers[topic] = answer, route
        self._remember(topic, route)
        return route

    def _want(self, topic: str) -> None:
        """Fetch it with every refresh, also while it has no route; of such topics the last 1,000."""
        self._wanted[topic] = None
        if topic not in self._routes:
            self._unknown.pop(topic, None)
            self._unknown[topic] = None
            if len(self._unknown) > _UNKNOWN_MAX:
                oldest = next(iter(self._unknown))
                del self._unknown[oldest], self._wanted[oldest]
                # What was derived from no route is not kept either.
                for callback in self.on_changed:
                    callback(oldest)

    async def look_up(self, topic: str, take: TakeAnswer) -> TopicRouteData | None:
        """Get a route from a name server now, and remember no more of it than addresses.

        Of all routes that were looked up, the addresses of the last 1,000 brokers stay known.

        Args:
            topic: Any: it is not kept.
            take: Called with the address, the request code and the answer before it is decoded. It may raise.

        Returns:
            None when the name server does not know the topic.

        Raises:
            NoRouteError: No name server answered with a route.
        """
        address, reply = await self._ask_route(topic)
        if reply is None:
            return None
        take(address, RequestCode.GET_ROUTEINFO_BY_TOPIC, reply)
        route = decode_body(TopicRouteData, reply.body, reply.serialize_type)
        for broker in route.broker_datas:
            # The one that was named last stays longest.
            self._brokers.pop(broker.broker_name, None)
            self._brokers[broker.broker_name] = dict(broker.broker_addrs)
        while len(self._brokers) > _BROKERS_KEPT:
            del self._brokers[next(iter(self._brokers))]
        return route

    async def _ask_route(self, topic: str) -> tuple[str, RemotingCommand | None]:
        """Return the address of a name server and its answer; None: it does not know the topic. Raises NoRouteError."""
        header = GetRouteInfoRequestHeader(topic)
        address, reply = await self._name_servers.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, header)
        if reply.code == ResponseCode.TOPIC_NOT_EXIST:
            return address, None
        if reply.code != ResponseCode.SUCCESS:
            raise NoRouteError(f"the name server answered for topic {topic!r}: {reply.remark}")
        return address, reply

    async def get(self, topic: str) -> TopicRouteData | None:
        return self._routes.get(topic) or await self.fetch(topic)

    async def refresh(self) -> None:
        """Get the route of every topic that was ever requested: a topic that did not exist may exist now."""
        for topic in list(self._wanted):
            try:
                await self.fetch(topic)
            except (NoRouteError, BodyError) as error:
                self._log.warning("route_not_refreshed", topic=topic, error=str(error))
        # Forget brokers that no route names any more, so that no heartbeat connects to them again (wire.md 12.1).
        named = {data.broker_name for route in self._routes.values() for data in route.broker_datas}
        self._brokers = {name: addrs for name, addrs in self._brokers.items() if name in named}

    async def ask(self, code: int, header: tuple[object, ...] | None = None) -> RemotingCommand:
        """Send a request to any name server that answers. Raises NoRouteError when none does."""
        _, reply = await self._name_servers.ask(code, header)
        return reply

    async def ask_for(self, body_class: type[B], code: int, take: TakeAnswer | None = None) -> B:
        address, reply = await self._name_servers.ask(code)
        must_succeed(reply, address, code)
        if take is not None:
            take(address, code, reply)
        return decode_body(body_class, reply.body, reply.serialize_type)

    def _remember(self, topic: str, route: TopicRouteData) -> None:
        self._wanted[topic] = None
        self._unknown.pop(topic, None)
        for broker in route.broker_datas:
            self._brokers[broker.broker_name] = dict(broker.broker_addrs)
        if self._routes.get(topic) != route:
            self._routes[topic] = route
            self._log.info("route_changed", topic=topic, queues=[tuple(data) for data in route.queue_datas])
            for callback in self.on_changed:
                callback(topic)
