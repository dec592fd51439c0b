"""The size of a topic: by the newest messages of its queues, as far as brokers say it, and asked for now and then."""

from typing import Self

from lockstep.client.admin.client import AdminClient
from lockstep.console.pages import topics
from lockstep.console.pages.topics import StoredRow
from lockstep.protocol.bodies.admin import ConsumeQueueData, QueryConsumeQueueResponseBody
from lockstep.protocol.codes import ResponseCode
from lockstep.protocol.model import MessageQueue
from lockstep.remoting.errors import RequestRefused
from tests.console.pages_inside import NOWHERE, Clock, make_console
from tests.console.readings import NOW_MS


class Sizes(AdminClient):
    """Each message has 100 bytes. Brokers of `silent` do not say it."""

    silent: tuple[str, ...] = ()
    asked = 0

    def bounded(self, bytes_max: int) -> Self:
        return self

    async def stored_bytes(self, queue: MessageQueue, first: int, end: int) -> int | None:
        self.asked += 1
        return None if queue.broker_name in self.silent else (end - first) * 100


def rows(count: int) -> list[StoredRow]:
    queues = [MessageQueue("T", "broker-a", number) for number in range(count)]
    return [StoredRow(queue, 0, 10 if queue.queue_id else 0, 10 if queue.queue_id else 0, NOW_MS) for queue in queues]


async def test_a_size_is_kept_for_a_while() -> None:
    """A live page asks the brokers twice a minute; empty queues are not asked, and of very many some."""
    admin, clock = Sizes(name_server=NOWHERE), Clock(NOW_MS)
    console = make_console(admin=admin, runtime=clock)
    assert await topics._bytes_of(console, "T", rows(5)) == 4 * 10 * 100
    clock.ms += 29_999
    await topics._bytes_of(console, "T", rows(5))
    assert admin.asked == 4
    clock.ms += 1
    assert await topics._bytes_of(console, "T", rows(1001)) == 1000 * 10 * 100
    assert admin.asked == 4 + 64
    admin.silent = ("broker-a",)
    clock.ms += 30_000
    assert await topics._bytes_of(console, "T", rows(5)) is None
    assert await topics._bytes_of(console, "empty", rows(1)) == 0
    for number in range(300):
        await topics._bytes_of(console, f"T{number}", rows(1))
    assert len(console.sizes) == 256


class Entries(AdminClient):
    """A broker with entries of 100 and 300 bytes, by turns."""

    async def _master_of(self, queue: MessageQueue) -> str:
        return NOWHERE

    async def _ask_for(self, body_class: object, address: str, code: int, header: object = None, **_: object) -> object:  # type: ignore[override]
        begin, count = header[2], header[3]  # type: ignore[index]
        if begin == 7:
            raise RequestRefused(address, "QUERY_CONSUME_QUEUE", ResponseCode.REQUEST_CODE_NOT_SUPPORTED, None)
        entries = [ConsumeQueueData(0, 100 + 200 * (one % 2)) for one in range(begin, begin + count)]
        return QueryConsumeQueueResponseBody(tuple(entries), begin + count, 0)


async def test_the_mean_of_the_newest() -> None:
    """Of 32 at most; none without messages; unknown when the broker refuses."""
    admin, queue = Entries(name_server=NOWHERE), MessageQueue("T", "broker-a", 0)
    assert await admin.stored_bytes(queue, 0, 1000) == 1000 * 200
    assert await admin.stored_bytes(queue, 4, 5) == 100
    assert await admin.stored_bytes(queue, 5, 5) == 0
    assert await admin.stored_bytes(queue, 7, 9) is None
