"""Lawful bodies of administration, connections and running info."""

import typing
from typing import Any

from hypothesis import strategies as st

from lockstep.protocol.bodies.admin import (
    BrokerStatsData,
    BrokerStatsItem,
    ConsumeQueueData,
    ConsumeStats,
    ConsumeStatsList,
    GroupList,
    OffsetWrapper,
    QueryConsumeQueueResponseBody,
    QueryConsumeTimeSpanBody,
    QueueTimeSpan,
    TopicOffset,
    TopicStatsTable,
)
from lockstep.protocol.bodies.client import (
    CMResult,
    Connection,
    ConsumeMessageDirectlyResult,
    ConsumerConnection,
    ConsumerRunningInfo,
    ConsumeStatus,
    GetConsumerStatusBody,
    ProcessQueueInfo,
    ProducerConnection,
    ProducerInfo,
    ProducerTable,
    ResetOffsetBody,
    ResetOffsetBodyForC,
)
from lockstep.protocol.bodies.codec import WireBody
from lockstep.protocol.bodies.config import (
    ConsumerOffsetTable,
    DelayOffsetTable,
    QueryCorrectionOffsetBody,
    SubscriptionGroupWrapper,
    TopicConfigWrapper,
)
from lockstep.protocol.bodies.heartbeat import ConsumeFromWhere, ConsumeType, MessageModel
from lockstep.protocol.bodies.name_server import KvTable, SystemTopicList
from lockstep.protocol.bodies.subscription_group import GroupRetryPolicy, SubscriptionGroupConfig
from lockstep.protocol.codes import LanguageCode
from lockstep.protocol.headers.spec import spec_of
from tests.fuzz.strategies import configs, int64s, queues, subscriptions, text_tuples, texts, versions

__all__ = ["ADMIN_BODIES"]

_floats = st.floats(allow_nan=False, allow_infinity=False)
_KINDS: dict[type, st.SearchStrategy[Any]] = {int: int64s, str: texts, bool: st.booleans(), float: _floats}

_steps = st.none() | st.lists(int64s, min_size=1, max_size=3).map(tuple)
_policies = st.builds(GroupRetryPolicy, st.just(True), st.none(), int64s, int64s, int64s) | _steps.map(
    lambda steps: GroupRetryPolicy(False, steps)
)
_groups = st.builds(
    SubscriptionGroupConfig,
    texts,
    *[st.booleans()] * 3,
    *[int64s] * 4,
    st.booleans(),
    st.none() | st.booleans(),
    st.none() | _policies,
    st.none() | int64s,
    st.just(()),  # of a request alone
)


def _records(record_class: type[tuple[Any, ...]]) -> st.SearchStrategy[Any]:
    values = [
        st.none() | _KINDS[field.kind] if field.nullable else _KINDS[field.kind]
        for field in spec_of(record_class).fields
    ]
    return st.tuples(*values).map(typing.cast("Any", record_class)._make)


def _some(values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(values, max_size=2).map(tuple)


def _by_queue(values: st.SearchStrategy[Any]) -> st.SearchStrategy[dict[Any, Any]]:
    return st.dictionaries(queues, values, max_size=3)


def _sorted(values: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    """Rows of a table with names of their own, in the order of the names."""
    return st.lists(values, max_size=3, unique_by=lambda row: row[0]).map(lambda rows: tuple(sorted(rows)))


_numbers = st.dictionaries(int64s, int64s, max_size=3)
_offsets = _by_queue(int64s)
_stats = st.builds(ConsumeStats, _by_queue(_records(OffsetWrapper)), _floats)
_languages = st.sampled_from(LanguageCode)
_connections = _some(st.builds(Connection, texts, texts, _languages, int64s, st.none() | int64s, st.none() | int64s))
_producers = st.builds(ProducerInfo, texts, texts, _languages, int64s, int64s)

ADMIN_BODIES: dict[type[WireBody], st.SearchStrategy[Any]] = {
    KvTable: st.builds(KvTable, st.dictionaries(texts, texts, max_size=3)),
    SystemTopicList: st.builds(SystemTopicList, text_tuples, texts),
    TopicStatsTable: st.builds(TopicStatsTable, _by_queue(_records(TopicOffset))),
    ConsumeStats: _stats,
    ConsumeStatsList: st.builds(ConsumeStatsList, _some(st.tuples(texts, _some(_stats))), st.none() | texts, int64s),
    GroupList: st.builds(GroupList, text_tuples),
    QueryConsumeTimeSpanBody: st.builds(
        QueryConsumeTimeSpanBody, _some(st.builds(QueueTimeSpan, queues, int64s, int64s, int64s, int64s))
    ),
    BrokerStatsData: st.builds(BrokerStatsData, *[_records(BrokerStatsItem)] * 3),
    QueryConsumeQueueResponseBody: st.builds(
        QueryConsumeQueueResponseBody,
        _some(_records(ConsumeQueueData)),
        int64s,
        int64s,
        st.none() | subscriptions,
        st.none() | texts,
    ),
    TopicConfigWrapper: st.builds(TopicConfigWrapper, versions, _sorted(configs)),
    SubscriptionGroupConfig: _groups,
    SubscriptionGroupWrapper: st.builds(SubscriptionGroupWrapper, versions, _sorted(_groups)),
    ConsumerOffsetTable: st.builds(
        ConsumerOffsetTable, st.dictionaries(texts, _numbers, max_size=3), st.none() | int64s
    ),
    DelayOffsetTable: st.builds(DelayOffsetTable, _numbers, st.none() | int64s),
    QueryCorrectionOffsetBody: st.builds(QueryCorrectionOffsetBody, _numbers),
    ConsumerConnection: st.builds(
        ConsumerConnection,
        _connections,
        st.dictionaries(texts, subscriptions, max_size=2),
        st.sampled_from(ConsumeType),
        st.sampled_from(MessageModel),
        st.sampled_from(ConsumeFromWhere),
    ),
    ProducerConnection: st.builds(ProducerConnection, _connections),
    ProducerTable: st.builds(ProducerTable, st.dictionaries(texts, _some(_producers), max_size=2)),
    ResetOffsetBody: st.builds(ResetOffsetBody, _offsets),
    ResetOffsetBodyForC: st.builds(ResetOffsetBodyForC, _offsets),
    GetConsumerStatusBody: st.builds(GetConsumerStatusBody, _offsets, st.dictionaries(texts, _offsets, max_size=2)),
    ConsumerRunningInfo: st.builds(
        ConsumerRunningInfo,
        st.dictionaries(texts, texts, max_size=3),
        _some(subscriptions),
        _by_queue(_records(ProcessQueueInfo)),
        st.dictionaries(texts, _records(ConsumeStatus), max_size=2),
        st.none() | texts,
    ),
    ConsumeMessageDirectlyResult: st.builds(
        ConsumeMessageDirectlyResult,
        st.booleans(),
        st.booleans(),
        st.sampled_from(CMResult),
        st.none() | texts,
        int64s,
    ),
}
