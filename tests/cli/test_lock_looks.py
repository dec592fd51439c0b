"""`lockstep lock watch` at a broker that answers only half of what it is asked."""

import io
from contextlib import redirect_stderr

from lockstep.cli.lock.command import LockLooks
from lockstep.client import AdminClient
from lockstep.protocol.bodies.lock_changes import LockChange, LockChangesBody
from lockstep.protocol.bodies.locks import LockTableBody, LockTableRow
from lockstep.protocol.codes import RequestCode, ResponseCode
from lockstep.protocol.headers.messaging import ListLockChangesRequestHeader
from tests.client.stage import Stage, on_stage, queue_at

CHANGES, LOCKS = RequestCode.LIST_LOCK_CHANGES, RequestCode.LIST_LOCKS


@on_stage
async def test_changes_of_a_look_that_failed_come_with_the_next_one(stage: Stage) -> None:
    """The changes were read and the lock table was not: they are read again."""
    broker = await stage.broker(queues=1)
    change = LockChange(0, 1, "g", queue_at(0), None, "c1", None, "granted")
    broker.answers(
        CHANGES,
        LockChangesBody(5, 9, 0, 0, ()),
        LockChangesBody(5, 9, 0, 0, ()),  # nothing changed while the table was read
        LockChangesBody(5, 9, 0, 1, (change,)),
        LockChangesBody(5, 9, 0, 1, ()),
    )
    broker.answers(LOCKS, LockTableBody(()), ResponseCode.SYSTEM_ERROR, LockTableBody(()))
    async with AdminClient(name_server=broker.name_server, runtime=stage.client, log=stage.log) as admin:
        looks = LockLooks(admin, None)
        assert (await looks.first()).changes == []
        assert await looks.again() is None
        broker.answers(CHANGES, LockChangesBody(5, 9, 0, 1, (change,)), LockChangesBody(5, 9, 0, 1, ()))
        again = await looks.again()
    assert again is not None
    assert again.changes == [change]
    asked = [command.decode_header(ListLockChangesRequestHeader).cursor for command in broker.requests(CHANGES)]
    assert asked == [0, 0, 0, 1, 0, 1]


@on_stage
async def test_the_first_look_tells_no_change_twice(stage: Stage) -> None:
    """A lock that was granted between the first two requests is in the table, and not among the next changes."""
    broker = await stage.broker(queues=1)
    change = LockChange(0, 1, "g", queue_at(0), None, "c1", None, "granted")
    held = LockTableRow("g", queue_at(0), "c1", 1, 2, 3)
    broker.answers(
        CHANGES,
        LockChangesBody(5, 9, 0, 0, ()),
        LockChangesBody(5, 9, 0, 1, (change,)),
        LockChangesBody(5, 9, 0, 1, ()),
    )
    broker.answers(LOCKS, LockTableBody((held,)))
    async with AdminClient(name_server=broker.name_server, runtime=stage.client, log=stage.log) as admin:
        looks = LockLooks(admin, None)
        assert (await looks.first()).rows == [held]
        again = await looks.again()
    assert again is not None
    assert again.changes == []
    assert len(broker.requests(LOCKS)) == 3


@on_stage
async def test_lost_changes_are_told(stage: Stage) -> None:
    """When the broker kept fewer than there were since the last look, and when it started anew."""
    broker = await stage.broker(queues=1)
    broker.answers(
        CHANGES,
        LockChangesBody(5, 9, 0, 2, ()),
        LockChangesBody(5, 9, 0, 2, ()),
        LockChangesBody(5, 9, 1500, 1502, ()),  # another look found nothing lost
        LockChangesBody(7, 9, 0, 0, ()),
        LockChangesBody(7, 9, 0, 0, ()),
        LockChangesBody(7, 9, 0, 0, ()),
    )
    broker.answers(LOCKS, LockTableBody(()))
    async with AdminClient(name_server=broker.name_server, runtime=stage.client, log=stage.log) as admin:
        looks = LockLooks(admin, None)
        await looks.first()
        told = []
        for _ in range(3):
            with redirect_stderr(io.StringIO()) as stderr:
                await looks.again()
            told.append(stderr.getvalue())
    address = broker.address
    assert told == [
        f"lockstep: lost 1,498 changes at {address}, which keeps the last ones only: look more often (--interval)\n",
        f"lockstep: {address} started anew: changes since the last look may be lost\n",
        "",
    ]


@on_stage
async def test_missing_brokers_are_told_once_each_time(stage: Stage) -> None:
    """At the first look and later. A broker that comes back is asked for its changes from where they were read."""
    broker = await stage.broker()
    broker.answers(CHANGES, LockChangesBody(5, 9, 0, 2, ()))
    broker.answers(LOCKS, LockTableBody(()))
    told: list[str] = []
    async with AdminClient(name_server=broker.name_server, runtime=stage.client, log=stage.log) as admin:
        looks = LockLooks(admin, None)
        for brokers in ({}, {}, {"broker-a": 1}, {"broker-a": 1}, {}, {}, {"broker-a": 1}):
            stage.route_to(brokers)
            with redirect_stderr(io.StringIO()) as stderr:
                await (looks.again() if told else looks.first())
            told.append(stderr.getvalue())
    missing = "lockstep: no broker is registered; asking again\n"
    assert told == [missing, "", "", "", missing, "", ""]
    asked = [command.decode_header(ListLockChangesRequestHeader).cursor for command in broker.requests(CHANGES)]
    assert asked[0] == 0
    assert asked[-1] == 2
