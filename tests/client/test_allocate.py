"""How a group shares the queues of a topic (wire.md 12.4)."""

from hypothesis import given
from hypothesis import strategies as st

from lockstep.client import MessageQueue, allocate_averagely


def queues(count: int) -> list[MessageQueue]:
    return sorted(MessageQueue("T", f"broker-{i % 3}", i // 3) for i in range(count))


def clients(count: int) -> list[str]:
    return [f"10.0.0.{i:03}@1#1" for i in range(count)]


def by_the_formula(n: int, c: int, i: int) -> list[MessageQueue]:
    """wire.md 12.4, AVG, word for word."""
    m = n % c
    size = 1 if n <= c else (n // c + 1 if i < m else n // c)
    start = i * size if m > 0 and i < m else i * size + m
    return queues(n)[start : start + min(size, n - start)] if n - start > 0 else []


@given(st.integers(1, 60), st.integers(1, 20))
def test_the_formula_of_wire_md(queue_count: int, client_count: int) -> None:
    """The same queues as Java's AllocateMessageQueueAveragely, for every member."""
    members = clients(client_count)
    for i, member in enumerate(members):
        mine = allocate_averagely("g", member, queues(queue_count), members)
        assert mine == by_the_formula(queue_count, client_count, i)


@given(st.integers(0, 60), st.integers(1, 20))
def test_every_queue_has_exactly_one_owner(queue_count: int, client_count: int) -> None:
    """Disjoint, complete, and no two members differ by more than one queue."""
    members = clients(client_count)
    shares = [allocate_averagely("g", member, queues(queue_count), members) for member in members]
    assert sorted(queue for share in shares for queue in share) == queues(queue_count)
    sizes = [len(share) for share in shares]
    assert max(sizes) - min(sizes) <= 1
    assert sizes == sorted(sizes, reverse=True)


def test_who_is_no_member_gets_nothing() -> None:
    """A client that the broker does not know yet must not take what others hold."""
    assert allocate_averagely("g", "stranger", queues(8), clients(2)) == []
