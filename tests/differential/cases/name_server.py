"""What a name server serves."""

import struct
import zlib
from typing import Any, Final

from lockstep.protocol.codes import RequestCode as R
from tests.differential.case import LAST, NAME_SERVER, Ask, Case, Fields, Table, ask, not_numbers, plain, step, without
from tests.differential.cases.world import BROKER_NAME, CLUSTER, EMPTY, NO_WRITE, TOPIC, object_body, topic_fields

__all__ = ["CASES", "LAST_CASES"]

NO_FIELDS: Final = Ask({}, {"fields": None})
STATE: Final = {"counter": 5, "timestamp": 1_700_000_000_000}


def _table(
    code: int, usual: Fields | None, valid: dict[str, Ask], invalid: dict[str, Ask], **defaults: Any
) -> list[Case]:
    common = {"binary-header": ask(encoding=1), "one-way": ask(flag=2)}
    return Table(code, usual, valid | common, invalid, {"server": NAME_SERVER} | defaults).cases()


ROUTES: Final = _table(
    R.GET_ROUTEINFO_BY_TOPIC,
    {"topic": TOPIC},
    {
        "usual": ask(),
        "old-version": ask(version=353),
        "old-version-strict": ask({"acceptStandardJsonOnly": "true"}, version=353),
        "old-version-not-strict": ask({"acceptStandardJsonOnly": "false"}, version=353),
        "wide": ask({"topic": "DiffWide"}),
        "read-only": ask({"topic": NO_WRITE}),
        "template": ask({"topic": "TBW102"}),
        "cluster": ask({"topic": CLUSTER}),
        "broker": ask({"topic": BROKER_NAME}),
        "retry-topic": ask({"topic": "%RETRY%DiffGroup"}),
        "created-by-a-send": ask({"topic": "DiffCreated"}),
        "created-with-many": ask({"topic": "DiffCreatedMany"}),
        "cpp": ask(language="CPP", version=63),
        "go": ask(language="GO", version=317),
        "schedule": ask({"topic": "SCHEDULE_TOPIC_XXXX"}),
    },
    {
        "unknown": ask({"topic": "DiffNowhere"}),
        "empty": ask({"topic": ""}),
        "missing-topic": without("topic"),
        "no-fields": NO_FIELDS,
        "illegal": ask({"topic": "a b"}),
        "too-long": ask({"topic": "T" * 500}),
        "deleted": ask({"topic": "DiffNeverMade"}),
        "binary-header-no-topic": without("topic", encoding=1),
        "strict-nonsense": ask({"acceptStandardJsonOnly": "1"}, version=353),
        "case-matters": ask({"topic": TOPIC.lower()}),
    },
)


def _register_body(topics: dict[str, Any] | None = None, **change: Any) -> bytes:
    table = {
        name: {"order": False, "perm": 6, "readQueueNums": 4, "topicFilterType": "SINGLE_TAG", "topicName": name,
               "topicSysFlag": 0, "writeQueueNums": 4}
        for name in (topics or {"DiffForeign": None})
    }  # fmt: skip
    body = {"filterServerList": [], "topicConfigSerializeWrapper": {"dataVersion": STATE, "topicConfigTable": table}}
    return object_body(body | change)


def _packed_body() -> bytes:
    def one(text: bytes) -> bytes:
        return struct.pack(">i", len(text)) + text

    inner = one(object_body(STATE)) + struct.pack(">i", 1) + one(b"DiffPacked 3 3 6 SINGLE_TAG") + one(b"[]")
    return zlib.compress(inner)


REGISTERED: Final = {
    "brokerName": "broker-z",
    "brokerAddr": "127.0.0.1:1",
    "clusterName": "DiffCluster",
    "haServerAddr": "127.0.0.1:2",
    "brokerId": "0",
    "compressed": "false",
    "bodyCrc32": "0",
}
REGISTER: Final = _table(
    R.REGISTER_BROKER,
    REGISTERED,
    {
        "new": ask(),
        "again": ask(),
        "slave": ask({"brokerId": "1", "brokerAddr": "127.0.0.1:3"}),
        "with-checksum": ask({"bodyCrc32": str(zlib.crc32(_register_body()) & 0x7FFFFFFF)}),
        "compressed": ask({"brokerName": "broker-y", "brokerAddr": "127.0.0.1:4", "compressed": "true"},
                          body=_packed_body()),
        "two-topics": ask(body=_register_body({"DiffForeign": None, "DiffForeign2": None},
                                              filterServerList=["127.0.0.1:5"])),
        "no-body": ask({"brokerName": "broker-x", "brokerAddr": "127.0.0.1:6"}, body=b""),
    },
    {
        "missing-name": without("brokerName", late=LAST),
        "missing-address": without("brokerAddr", late=LAST),
        "missing-cluster": without("clusterName", late=LAST),
        "missing-ha-address": without("haServerAddr", late=LAST),
        **not_numbers("brokerId", bits=64),
        "no-fields": NO_FIELDS,
        "wrong-checksum": ask({"bodyCrc32": "12345"}),
        "checksum-text": ask({"bodyCrc32": "x"}, late=LAST),
        "body-not-json": ask(body=b"{"),
        "body-null": ask(body=b"null"),
        "body-empty-object": ask({"brokerName": "broker-w"}, body=b"{}", late=LAST),
        "body-not-compressed": ask({"compressed": "true"}),
        "old-version": ask({"brokerName": "broker-v", "brokerAddr": "127.0.0.1:7"}, version=10, late=LAST),
        "binary-header-no-name": without("brokerName", encoding=1, late=LAST),
    },
    body=_register_body(),
    connection="foreign",
)  # fmt: skip
VERSION: Final = _table(
    R.QUERY_DATA_VERSION,
    {name: REGISTERED[name] for name in ("brokerName", "brokerAddr", "clusterName", "brokerId")},
    {
        "same": ask(),
        "newer": ask(body=object_body(STATE | {"counter": 6})),
        "older": ask(body=object_body(STATE | {"counter": 4})),
        "other-time": ask(body=object_body(STATE | {"timestamp": 1})),
        "unknown-broker": ask({"brokerAddr": "127.0.0.1:99"}),
        "empty-object": ask(body=b"{}"),
    },
    {
        "no-body": ask(body=b""),
        "not-json": ask(body=b"{"),
        "null": ask(body=b"null"),
        "missing-address": without("brokerAddr"),
        "missing-name": without("brokerName"),
        "missing-cluster": without("clusterName"),
        "broker-id-text": ask({"brokerId": "x"}),
        "no-fields": NO_FIELDS,
        "numbers-as-text": ask(body=object_body({"counter": "5", "timestamp": str(STATE["timestamp"])})),
        "counter-is-text": ask(body=object_body({"counter": "x"})),
    },
    body=object_body(STATE),
)
UNREGISTER: Final = _table(
    R.UNREGISTER_BROKER,
    {name: REGISTERED[name] for name in ("brokerName", "brokerAddr", "clusterName", "brokerId")},
    {
        "slave": ask({"brokerId": "1", "brokerAddr": "127.0.0.1:3"}),
        "master": ask(),
        "again": ask(),
        "never-known": ask({"brokerName": "broker-q", "brokerAddr": "127.0.0.1:98"}),
    },
    {
        "missing-name": without("brokerName"),
        "missing-address": without("brokerAddr"),
        "missing-cluster": without("clusterName"),
        **not_numbers("brokerId", bits=64),
        "no-fields": NO_FIELDS,
        "unknown-cluster": ask({"clusterName": "Nowhere"}),
        "other-id": ask({"brokerName": "broker-y", "brokerAddr": "127.0.0.1:4", "brokerId": "7"}),
        "binary-header-no-name": without("brokerName", encoding=1),
    },
)


def _key_value(code: int, with_value: bool, **rows: Ask) -> list[Case]:
    usual = {"namespace": "DiffSpace", "key": "one"} | ({"value": "1"} if with_value else {})
    bad = {
        "missing-namespace": without("namespace"),
        "missing-key": without("key"),
        "empty-namespace": ask({"namespace": ""}),
        "empty-key": ask({"key": ""}),
        "no-fields": NO_FIELDS,
        "binary-header-no-key": without("key", encoding=1),
        "unknown-key": ask({"key": "nothing"} | ({"value": None} if with_value else {})),
        "unknown-namespace": ask({"namespace": "DiffNoSpace"} | ({"value": ""} if with_value else {})),
    }
    return _table(code, usual, {"usual": ask(), "again": ask(), "unknown-fields": ask({"x": "y"}), **rows}, bad)


KV: Final = [
    *_key_value(R.PUT_KV_CONFIG, True, second=ask({"key": "two", "value": "zwei"}),
                unicode=ask({"key": "drei", "value": "три"}), order=ask({"namespace": "ORDER_TOPIC_CONFIG",
                "key": TOPIC, "value": "broker-a:4"}), overwrite=ask({"value": "uno"})),
    *_key_value(R.GET_KV_CONFIG, False, second=ask({"key": "two"}), unicode=ask({"key": "drei"}),
                order=ask({"namespace": "ORDER_TOPIC_CONFIG", "key": TOPIC})),
    *_table(
        R.GET_KVLIST_BY_NAMESPACE,
        {"namespace": "DiffSpace"},
        {"usual": ask(), "order": ask({"namespace": "ORDER_TOPIC_CONFIG"}), "unknown-fields": ask({"x": "y"}),
         "again": ask()},
        {
            "unknown-namespace": ask({"namespace": "Nowhere"}),
            "missing-namespace": without("namespace"),
            "empty-namespace": ask({"namespace": ""}),
            "no-fields": NO_FIELDS,
            "binary-header-no-namespace": without("namespace", encoding=1),
            "case-matters": ask({"namespace": "diffspace"}),
        },
    ),
    *_key_value(R.DELETE_KV_CONFIG, False, second=ask({"key": "two"}), never_put=ask({"key": "never"})),
    Case(R.GET_KV_CONFIG, "deleted", "invalid", {"namespace": "DiffSpace", "key": "one"}, server=NAME_SERVER),
    Case(R.GET_KVLIST_BY_NAMESPACE, "after-deletions", "valid", {"namespace": "DiffSpace"}, server=NAME_SERVER),
    Case(R.GET_ROUTEINFO_BY_TOPIC, "order-config-is-not-sent", "valid", {"topic": TOPIC}, server=NAME_SERVER),
]  # fmt: skip
BY_CLUSTER: Final = _table(
    R.GET_TOPICS_BY_CLUSTER,
    {"cluster": CLUSTER},
    {"usual": ask(), "again": ask(), "foreign": ask({"cluster": "DiffCluster"}), "unknown-fields": ask({"x": "y"})},
    {
        "unknown-cluster": ask({"cluster": "Nowhere"}),
        "missing-cluster": without("cluster"),
        "empty-cluster": ask({"cluster": ""}),
        "no-fields": NO_FIELDS,
        "binary-header-no-cluster": without("cluster", encoding=1),
        "case-matters": ask({"cluster": CLUSTER.lower()}),
    },
)


def _permission(code: int) -> list[Case]:
    return _table(
        code,
        {"brokerName": BROKER_NAME},
        {
            "usual": ask(),
            "again": ask(),
            "foreign": ask({"brokerName": "broker-y"}),
            "unknown-fields": ask({"x": "y"}),
        },
        {
            "unknown-broker": ask({"brokerName": "Nowhere"}),
            "missing-broker": without("brokerName"),
            "empty-broker": ask({"brokerName": ""}),
            "no-fields": NO_FIELDS,
            "binary-header-no-broker": without("brokerName", encoding=1),
            "an-address": ask({"brokerName": "127.0.0.1:10911"}),
        },
    )


def _route(name: str, topic: str) -> Case:
    return Case(R.GET_ROUTEINFO_BY_TOPIC, name, "valid", {"topic": topic}, server=NAME_SERVER)


PERMISSIONS: Final = [
    *_permission(R.WIPE_WRITE_PERM_OF_BROKER),
    _route("wiped", TOPIC),
    _route("wiped-template", "TBW102"),
    *_permission(R.ADD_WRITE_PERM_OF_BROKER),
    _route("given-back", TOPIC),
    _route("given-back-template", "TBW102"),
]
# A broker registers anew at its next beat what has changed since, and that gives permissions back. One that has just
# made a topic has registered, and the second time it has nothing more to learn from the name server's reply.
SETTLED: Final = [
    step(R.UPDATE_AND_CREATE_TOPIC, topic_fields(f"DiffSettled{number}"), f"settled-{number}") for number in range(2)
]
CONFIG: Final = [
    *plain(R.GET_NAMESRV_CONFIG, server=NAME_SERVER),
    *_table(
        R.UPDATE_NAMESRV_CONFIG,
        None,
        {
            "one": ask(),
            "two": ask(body=b"orderMessageEnable=false\nclusterTest=false\n"),
            "unknown-name": ask(body=b"noSuchSetting=1"),
            "comment": ask(body=b"# nothing"),
            "empty-body": ask(body=b""),
        },
        {
            "no-equals": ask(body=b"orderMessageEnable"),
            "empty-value": ask(body=b"orderMessageEnable="),
            "not-a-boolean": ask(body=b"orderMessageEnable=perhaps"),
            "not-a-number": ask(body=b"serverWorkerThreads=many"),
            "json-body": ask(body=b'{"orderMessageEnable":false}'),
            "binary-body": ask(body=bytes(range(128, 256))),
            "empty-name": ask(body=b"=5"),
        },
        body=b"orderMessageEnable=false",
    ),
]
DELETE: Final = _table(
    R.DELETE_TOPIC_IN_NAMESRV,
    {"topic": EMPTY},
    {
        "known": ask(),
        "again": ask(),
        "never-known": ask({"topic": "DiffNowhere"}),
        "with-cluster": ask({"topic": "DiffNothing", "clusterName": CLUSTER}),
    },
    {
        "missing-topic": without("topic"),
        "no-fields": NO_FIELDS,
        "empty-topic": ask({"topic": ""}),
        "unknown-cluster": ask({"topic": "DiffNarrow", "clusterName": "Nowhere"}),
        "empty-cluster": ask({"topic": "DiffNarrow", "clusterName": ""}),
        "binary-header-no-topic": without("topic", encoding=1),
        "illegal-topic": ask({"topic": "a b"}),
    },
)

CASES: Final[tuple[Case, ...]] = (
    *ROUTES,
    *plain(R.GET_BROKER_CLUSTER_INFO, server=NAME_SERVER),
    *plain(R.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, server=NAME_SERVER),
    *plain(R.GET_SYSTEM_TOPIC_LIST_FROM_NS, server=NAME_SERVER),
    *plain(R.GET_UNIT_TOPIC_LIST, server=NAME_SERVER),
    *plain(R.GET_HAS_UNIT_SUB_TOPIC_LIST, server=NAME_SERVER),
    *plain(R.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST, server=NAME_SERVER),
    *KV,
    *CONFIG,
)
LAST_CASES: Final[tuple[Case, ...]] = (
    *REGISTER,
    _route("foreign", "DiffForeign"),
    _route("foreign-packed", "DiffPacked"),
    Case(R.GET_BROKER_CLUSTER_INFO, "with-foreign-brokers", "valid", server=NAME_SERVER),
    *VERSION,
    *BY_CLUSTER,
    *SETTLED,
    *PERMISSIONS,
    *UNREGISTER,
    _route("foreign-gone", "DiffForeign"),
    *DELETE,
    _route("deleted", EMPTY),
    step(R.GET_BROKER_CLUSTER_INFO, server=NAME_SERVER),
)
