"""Which request codes Lockstep serves, as its dispatch tables say; codes of its own are left out."""

from typing import Final

from lockstep.broker.fronts.remoting.dispatch import BROKER_HANDLERS, NAME_SERVER_HANDLERS
from lockstep.protocol.codes import RequestCode
from tests.differential.case import BROKER, NAME_SERVER

__all__ = ["OWN_CODES_FROM", "served_codes", "unserved_codes"]

OWN_CODES_FROM: Final = 30001
TO_CLIENTS: Final = (  # sent by a broker, never to one
    RequestCode.CHECK_TRANSACTION_STATE,
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED,
    RequestCode.RESET_CONSUMER_CLIENT_OFFSET,
    RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT,
)
OF_ROCKETMQ_5: Final = (  # served, for clients of that version; the broker that is compared with refuses them
    RequestCode.GET_TOPIC_CONFIG,
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.LITE_PULL_MESSAGE,
    RequestCode.RECALL_MESSAGE,
    RequestCode.QUERY_ASSIGNMENT,
    RequestCode.SET_MESSAGE_REQUEST_MODE,
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE,
)
OF_ACL: Final = (  # asked where ACL is on: test_acl_answers.py
    RequestCode.UPDATE_AND_CREATE_ACL_CONFIG,
    RequestCode.DELETE_ACL_CONFIG,
    RequestCode.GET_BROKER_CLUSTER_ACL_INFO,
    RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG,
    RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG,
)


def served_codes() -> dict[int, str]:
    """Request code -> the server that serves it."""
    tables = ((BROKER, BROKER_HANDLERS), (NAME_SERVER, NAME_SERVER_HANDLERS))
    return {int(code): server for server, table in tables for code in sorted(table) if is_compared(code)}


def is_compared(code: int) -> bool:
    return code < OWN_CODES_FROM and code not in (*OF_ROCKETMQ_5, *OF_ACL)


def unserved_codes() -> tuple[int, ...]:
    """Codes of RocketMQ that a server could be sent, and that neither of ours serves."""
    served = served_codes()
    return tuple(int(code) for code in RequestCode if is_compared(code) and code not in (*served, *TO_CLIENTS))
