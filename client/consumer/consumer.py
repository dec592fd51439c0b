"""GroupConsumer: the constructor, subscriptions and life that every kind of consumer shows its user."""

from abc import abstractmethod
from collections.abc import Iterable
from typing import TYPE_CHECKING, Generic, TypeVar

from lockstep.client.callables import check_function
from lockstep.client.config import ConsumerConfig
from lockstep.client.consumer.member import GroupMember, MemberSettings
from lockstep.client.consumer.ownership.allocation.average import AllocateMessageQueueStrategy, allocate_averagely
from lockstep.client.consumer.ownership.allocation.sticky import WITHOUT_FENCE, AllocateSticky
from lockstep.client.credentials import with_credentials
from lockstep.client.errors import ConsumerError
from lockstep.client.hook_calls import ConsumeHooks
from lockstep.client.hooks import FilterMessageHook
from lockstep.client.instance.client import name_server_addresses
from lockstep.client.lifecycle import Lifecycle, ServiceState
from lockstep.client.message_selector import Expression, subscription_of
from lockstep.client.pull_config import PullConsumerConfig
from lockstep.client.tls import with_tls
from lockstep.protocol.bodies.heartbeat import MessageModel, SubscriptionData
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.names import check_group, check_topic
from lockstep.protocol.namespace import NamesOfTenant
from lockstep.protocol.signature import Credentials
from lockstep.remoting.host.runtime import AsyncioRuntime, Runtime
from lockstep.remoting.logs import EventLog, client_log
from lockstep.remoting.settings import SettingError
from lockstep.remoting.tls.options import TlsOptions

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry

__all__ = ["GroupConsumer"]

C = TypeVar("C", bound=ConsumerConfig | PullConsumerConfig)
M = TypeVar("M", bound=GroupMember)


class GroupConsumer(Lifecycle, Generic[C, M]):
    """A consumer as its user sees it. The work is done by a GroupMember, which lives from start to shutdown.

    Args:
        group: the consumer group.
        name_server: "host:port[;host:port]"; without it the environment's NAMESRV_ADDR.
        namespace: a prefix that separates the topics and groups of tenants.
        config: the settings; without it their defaults.
        credentials: the account that signs the requests; without it, LOCKSTEP_ACCESS_KEY and LOCKSTEP_SECRET_KEY
            of the environment, or no signature.
        tls: True or TlsOptions: all connections use TLS; without it, as LOCKSTEP_TLS says.
        message_model: in BROADCASTING every consumer of the group gets every message.
        strategy: shares the queues of a topic among the members of the group.
        runtime: the source of time, network and disk; a simulator gives its own.
        log: receives log events; without it they go to the `logging` module as "lockstep.client".

    Raises:
        LocalProtocolError: the group or the namespace is not a legal name.
        SettingError: there is no name server; or the strategy is STICKY, and the consumer has no fenced locks.
    """

    error = ConsumerError
    _config_class: type[C]
    _may_lock = False  # queues

    def __init__(
        self,
        group: str,
        *,
        name_server: str | None = None,
        namespace: str | None = None,
        config: C | None = None,
        credentials: Credentials | None = None,
        tls: TlsOptions | bool | None = None,
        message_model: MessageModel = MessageModel.CLUSTERING,
        strategy: AllocateMessageQueueStrategy = allocate_averagely,
        runtime: Runtime | None = None,
        log: EventLog | None = None,
    ) -> None:
        check_group(group)
        check_function("strategy", strategy, "group", "client_id", "queues", "client_ids")
        if isinstance(strategy, AllocateSticky) and not self._may_lock:
            raise SettingError(WITHOUT_FENCE)
        self._tenant = NamesOfTenant(namespace)
        self.group = self._tenant.wrap(group)
        check_group(self.group)
        self.config = with_tls(with_credentials(config or self._config_class(), credentials), tls)
        self.message_model = message_model
        self._name_servers = name_server_addresses(name_server, self.config)
        self._strategy = strategy
        self._given_runtime = runtime
        self._log = client_log(log)
        self._hooks = ConsumeHooks(self.group, self._log, self._tenant)
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._member: M | None = None
        self._metrics: CollectorRegistry | None = None
        self._set_up()

    def _set_up(self) -> None:
        """Set the attributes of this kind of consumer; the end of the constructor, which most kinds share."""

    @property
    def client_id(self) -> str:
        if self._member is None:
            raise self.wrong_state()
        return self._member.instance.client_id

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that it subscribes to, with their namespace."""
        return tuple(self._subscriptions)

    def register_filter_message_hook(self, hook: FilterMessageHook) -> None:
        """Call the hook with the messages of each pull, after their tags were checked."""
        self._hooks.add_filter(hook)

    def _subscribe(self, topic: str, expression: Expression) -> None:
        topic = self._tenant.wrap(topic)
        check_topic(topic)
        version_ms = 0 if self._member is None else self._member.runtime.now_ms()
        self._subscriptions[topic] = subscription_of(topic, expression, version_ms)
        if self._member is not None:
            self._member.subscriptions_changed()

    def _wrap(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        return [self._tenant.wrap_queue(queue) for queue in queues]

    def _bare(self, queues: Iterable[MessageQueue]) -> list[MessageQueue]:
        return [self._tenant.bare_queue(queue) for queue in queues]

    # Life ----------------------------------------------------------------------------------------------------

    @abstractmethod
    def _new_member(self, settings: MemberSettings) -> M:
        """Make the member that does the work. Raises DuplicateConsumerGroupError."""

    async def _start(self) -> None:
        """Raises ConsumerError; NoRouteError when no name server answers."""
        runtime = self._given_runtime or AsyncioRuntime()
        now_ms = runtime.now_ms()
        for topic, data in self._subscriptions.items():
            self._subscriptions[topic] = data._replace(sub_version=now_ms)
        self._member = member = self._new_member(
            MemberSettings(
                runtime=runtime,
                log=self._log,
                group=self.group,
                tenant=self._tenant,
                name_servers=self._name_servers,
                config=self.config,
                message_model=self.message_model,
                strategy=self._strategy,
                hooks=self._hooks,
                measured=self._metrics is not None,
            )
        )
        await member.start()

    async def _shutdown(self) -> None:
        """Store the offsets and leave the group."""
        assert self._member is not None
        await self._member.stop()

    def _running(self) -> M:
        if self._member is None or self.state is not ServiceState.RUNNING:
            raise self.wrong_state()
        return self._member
