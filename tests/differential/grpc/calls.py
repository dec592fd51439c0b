"""Cases of routes, sessions, settings, and of what is not served."""

from typing import Any, Final

from tests.differential.grpc.steps import (
    HALF_CLOSE,
    NO_REPLY_S,
    Ask,
    Case,
    Hear,
    Leave,
    Step,
    Tell,
    ack,
    change,
    forward,
    group_of,
    message,
    push,
    receive,
    send,
    simple,
    span,
    topic_of,
)

__all__ = ["CALLS"]

ENDPOINTS: Final = {"endpoints": {"scheme": "IPv4", "addresses": [{"host": "127.0.0.1", "port": 8081}]}}


def _route(topic: str = "$topic", **more: Any) -> Ask:
    return Ask("QueryRoute", topic_of(topic) | ENDPOINTS | more)


def _assignment(topic: str = "$topic", group: str = "$group", **more: Any) -> Ask:
    return Ask("QueryAssignment", topic_of(topic) | group_of(group) | ENDPOINTS | more)


def _route_case(name: str, *steps: Step, **more: Any) -> Case:
    return Case("route", name, steps, **more)


BAD_TOPICS: Final = {
    "blank": " ",
    "empty": "",
    "illegal": "a b",
    "127": "t" * 127,
    "128": "t" * 128,
    "system": "SCHEDULE_TOPIC_XXXX",
    "tbw102": "TBW102",
    "dollar": "a$b",
}
BAD_GROUPS: Final = {
    "blank": " ",
    "empty": "",
    "illegal": "a b",
    "120": "g" * 120,
    "121": "g" * 121,
    "system": "CID_RMQ_SYS_x",
    "tools": "TOOLS_CONSUMER",
}

ROUTES: Final = (
    _route_case("fifo-topic", _route(), queues=4, message_type="FIFO"),
    *(
        _route_case(f"accept-types-{kind or 'none'}".lower(), _route(), message_type=kind)
        for kind in ("", "NORMAL", "DELAY", "TRANSACTION", "FIFO")
    ),
    _route_case("no-endpoints", Ask("QueryRoute", topic_of())),
    _route_case("unknown", _route(), queues=0),
    *(_route_case(f"topic-{name}", _route(topic)) for name, topic in BAD_TOPICS.items()),
    _route_case("retry-topic", _route("%RETRY%$group")),
    _route_case("assignment-fifo-all-queues", _assignment(), queues=4, message_type="FIFO", in_order=True),
    _route_case("assignment-plain-one", _assignment(), queues=4),
    _route_case("assignment-unknown-topic", _assignment(), queues=0),
    _route_case("assignment-no-group", _assignment(), in_order=None),
    _route_case("assignment-no-endpoints", Ask("QueryAssignment", topic_of() | group_of())),
    *(_route_case(f"assignment-topic-{name}", _assignment(BAD_TOPICS[name])) for name in ("blank", "illegal", "128")),
    *(_route_case(f"assignment-group-{name}", _assignment(group=group)) for name, group in BAD_GROUPS.items()),
)

# Sessions --------------------------------------------------------------------------------------------------------

HEARTBEAT: Final = Ask("Heartbeat", group_of() | {"client_type": "SIMPLE_CONSUMER"})
PRODUCER_BEAT: Final = Ask("Heartbeat", {"client_type": "PRODUCER"})
TERMINATE: Final = Ask("NotifyClientTermination", group_of())
PRODUCER: Final = {"client_type": "PRODUCER", "publishing": {"topics": [{"name": "$topic"}]}}
UNHANDLED: Final = {"receipt_handle": "0 1 1 0 0 broker-a 0 0 0", "message_id": "m0"}
EACH_CALL: Final = (
    _route(),
    _assignment(),
    HEARTBEAT,
    send(message()),
    receive(),
    Ask("AckMessage", group_of() | topic_of() | {"entries": [UNHANDLED]}),
    Ask("ForwardMessageToDeadLetterQueue", group_of() | topic_of() | UNHANDLED),
    Ask("ChangeInvisibleDuration", group_of() | topic_of() | UNHANDLED | {"invisible_duration": span(10)}),
    Ask("EndTransaction", topic_of() | {"message_id": "m0", "transaction_id": "m0", "resolution": "COMMIT"}),
    Ask("RecallMessage", topic_of() | {"recall_handle": "x"}),
    TERMINATE,
)


def _session(name: str, *steps: Step, **more: Any) -> Case:
    return Case("session", name, steps, **more)


SESSIONS: Final = (
    *(_session(f"no-client-id-{one.method}", one._replace(client="")) for one in EACH_CALL),
    _session("no-client-id-telemetry", Tell(PRODUCER, "")),
    _session("blank-client-id", _route()._replace(client="", metadata={"client_id": " "})),
    _session("language-anything", _route()._replace(metadata={"language": "COBOL", "protocol": "v9"})),
    _session("version-anything", _route()._replace(metadata={"client_version": "x.y"})),
    _session("heartbeat-before-settings", HEARTBEAT),
    _session("heartbeat-of-producer-before-settings", PRODUCER_BEAT),
    _session("heartbeat", simple(), HEARTBEAT),
    _session("heartbeat-of-producer", Tell(PRODUCER, seen=False), PRODUCER_BEAT),
    _session("heartbeat-no-group", simple(), Ask("Heartbeat", {"client_type": "SIMPLE_CONSUMER"})),
    _session("heartbeat-other-group", simple(), HEARTBEAT._replace(fields=group_of("Other") | {"client_type": 3})),
    _session("heartbeat-illegal-group", simple(), HEARTBEAT._replace(fields=group_of("a b") | {"client_type": 3})),
    _session("heartbeat-no-type", simple(), Ask("Heartbeat", group_of())),
    _session("heartbeat-push", push(), HEARTBEAT._replace(fields=group_of() | {"client_type": "PUSH_CONSUMER"})),
    _session("heartbeat-unknown-client", simple(), HEARTBEAT._replace(client="c2")),
    _session("terminate-unknown", TERMINATE),
    _session("terminate-twice", simple(), TERMINATE, TERMINATE),
    _session("terminate-no-group", simple(), Ask("NotifyClientTermination", {})),
    _session("terminate-producer", Tell(PRODUCER, seen=False), Ask("NotifyClientTermination", {})),
    _session("heartbeat-after-terminate", simple(), TERMINATE, HEARTBEAT),
)

# Telemetry -------------------------------------------------------------------------------------------------------

_USER_AGENT: Final = {
    "access_point": ENDPOINTS["endpoints"],
    "request_timeout": span(3),
    "user_agent": {"language": "PYTHON", "version": "5.1.2", "platform": "x", "hostname": "y"},
}


def _consumer(kind: Any = "SIMPLE_CONSUMER", expression: Any = None, topic: str = "$topic", **more: Any) -> Tell:
    entry = topic_of(topic) | {"expression": expression or {"type": "TAG", "expression": "*"}}
    subscription = group_of() | {"subscriptions": [entry]} | more
    subscription = {name: value for name, value in subscription.items() if value is not None}
    return Tell({"client_type": kind, "subscription": subscription} | _USER_AGENT)


def _producer(*topics: str, kind: str = "PRODUCER", **more: Any) -> Tell:
    publishing = {"topics": [{"name": topic} for topic in topics]} | more
    return Tell({"client_type": kind, "publishing": publishing} | _USER_AGENT)


def _told(name: str, *steps: Step, **more: Any) -> Case:
    return Case("telemetry", name, steps, **more)


EXPONENTIAL: Final = {
    "type": "EXPONENTIAL",
    "exponentialRetryPolicy": {"initial": 1000, "max": 60000, "multiplier": 3},
}
CUSTOMIZED: Final = {"type": "CUSTOMIZED", "customizedRetryPolicy": {"next": [1000, 2000]}}
TELEMETRY: Final = (
    _told("settings-producer-no-topic", _producer()),
    _told("settings-producer-body-size", _producer("$topic", max_body_size=1, validate_message_type=False)),
    _told("settings-producer-backoff", Tell(PRODUCER | {"backoff_policy": {"max_attempts": 9}})),
    _told("settings-producer-unknown-topic", _producer("Nowhere")),
    _told("settings-simple", _consumer()),
    _told("settings-push", _consumer("PUSH_CONSUMER")),
    _told("settings-fifo-group", _consumer(), in_order=True, message_type="FIFO"),
    _told("settings-fifo-overwritten", _consumer(fifo=True)),
    _told("settings-fifo-overwritten-false", _consumer("PUSH_CONSUMER", fifo=False), in_order=True),
    _told("settings-batch-overwritten", _consumer(receive_batch_size=5, long_polling_timeout=span(7))),
    _told("settings-retries-3", _consumer("PUSH_CONSUMER"), retries=3),
    _told("settings-retry-exponential", _consumer("PUSH_CONSUMER"), retry_policy=EXPONENTIAL),
    _told("settings-retry-customized", _consumer("PUSH_CONSUMER"), retry_policy=CUSTOMIZED),
    _told("settings-unknown-group-17", _consumer(), in_order=None),
    _told("settings-unknown-group-push", _consumer("PUSH_CONSUMER"), in_order=None),
    _told("settings-empty", Tell({})),
    _told("settings-type-only", Tell({"client_type": "PRODUCER"})),
    *(_told(f"settings-group-{name}", _consumer(group={"name": group})) for name, group in BAD_GROUPS.items()),
    _told("settings-no-group", _consumer(group=None)),
    *(_told(f"settings-producer-topic-{name}", _producer(BAD_TOPICS[name])) for name in ("blank", "illegal", "128")),
    _told("settings-illegal-topic-subscription", _consumer(topic="a b")),
    _told("settings-bad-sql", _consumer(expression={"type": "SQL", "expression": "a >"})),
    _told("settings-unknown-topic", _consumer(), queues=0),
    _told("settings-pull-consumer", _consumer("PULL_CONSUMER")),
    _told("settings-unspecified-consumer", _consumer("CLIENT_TYPE_UNSPECIFIED")),
    _told("settings-unspecified-producer", _producer("$topic", kind="CLIENT_TYPE_UNSPECIFIED")),
    _told("settings-producer-is-consumer", _producer("$topic", kind="SIMPLE_CONSUMER")),
    _told("settings-twice", _producer("$topic"), _producer("$topic")),
    _told("settings-other-client-same-stream", _producer("$topic"), _consumer()),
    _told("first-command-not-settings", Tell({"nonce": "n"}, command="verify_message_result", silent=True)),
    _told("half-close", _producer("$topic"), Leave(how=HALF_CLOSE)),
    _told("half-close-ends-client", simple(), Leave(how=HALF_CLOSE), HEARTBEAT),
    _told("close-keeps-client", simple(), Leave(), HEARTBEAT),
    _told("two-streams", simple(), Hear(within_s=NO_REPLY_S)),
)

# Not served ------------------------------------------------------------------------------------------------------


def _other(name: str, *steps: Step, **more: Any) -> Case:
    return Case("not-served", name, steps, **more)


OTHERS: Final = (
    *(
        _other(f"{name}-unimplemented", Ask(name, {}))
        for name in ("PullMessage", "UpdateOffset", "GetOffset", "QueryOffset", "Nothing")
    ),
    _other("sync-lite-40002", simple(), Ask("SyncLiteSubscription", topic_of() | group_of())),
    _other("ack-blank-group", simple(), ack()._replace(fields=group_of(" ") | topic_of())),
    _other("ack-illegal-topic", simple(), ack()._replace(fields=group_of() | topic_of("a b"))),
    _other("change-blank-group", simple(), change("m0", 1)._replace(fields=group_of(" ") | topic_of() | UNHANDLED)),
    _other("forward-blank-group", simple(), forward("m0")._replace(fields=group_of(" ") | topic_of() | UNHANDLED)),
    _other("receive-blank-group", simple(), receive(group={"name": " "})),
    _other("receive-illegal-topic", simple(), receive(message_queue=topic_of("a b"))),
)

CALLS: Final = (*ROUTES, *SESSIONS, *TELEMETRY, *OTHERS)
