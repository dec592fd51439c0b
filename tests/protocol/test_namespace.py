"""Names in a namespace, and out of it again."""

import pytest

from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.model import MessageQueue
from lockstep.protocol.namespace import NamesOfTenant, bare_name, check_namespace, wrap_name

WRAPPED = {
    "Orders": "shop%Orders",
    "%RETRY%tower": "%RETRY%shop%tower",
    "%DLQ%tower": "%DLQ%shop%tower",
    "shopping%Orders": "shop%shopping%Orders",
    "a%b": "shop%a%b",
}


@pytest.mark.parametrize(("bare", "wrapped"), WRAPPED.items())
def test_there_and_back(bare: str, wrapped: str) -> None:
    """Once wrapped a name stays as it is, and nothing is taken from one that is not of the namespace."""
    assert wrap_name("shop", bare) == wrapped
    assert wrap_name("shop", wrapped) == wrapped
    assert bare_name("shop", wrapped) == bare
    assert bare_name("shop", bare) == bare
    assert bare_name("other", wrapped) == wrapped


@pytest.mark.parametrize(
    "name",
    ["", "TBW102", "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_anything", "OFFSET_MOVED_EVENT",
     "CID_RMQ_SYS_TRANS"],
)  # fmt: skip
def test_system_names_are_everybodys(name: str) -> None:
    assert wrap_name("shop", name) == name
    assert bare_name("shop", name) == name


def test_without_a_namespace_nothing_changes() -> None:
    for nothing in (None, ""):
        names = NamesOfTenant(nothing)
        assert not names
        assert (names.wrap("a%b"), names.bare("a%b")) == ("a%b", "a%b")


def test_queues() -> None:
    names = NamesOfTenant("shop")
    assert names
    queue = MessageQueue("Orders", "broker-a", 3)
    assert names.wrap_queue(queue) == MessageQueue("shop%Orders", "broker-a", 3)
    assert names.bare_queue(names.wrap_queue(queue)) == queue


@pytest.mark.parametrize("namespace", ["a%b", "a b", "%", "ä", "x" * 256])
def test_what_is_no_namespace(namespace: str) -> None:
    with pytest.raises(LocalProtocolError, match=r"^(namespace|group) "):
        check_namespace(namespace)
    with pytest.raises(LocalProtocolError):
        NamesOfTenant(namespace)
