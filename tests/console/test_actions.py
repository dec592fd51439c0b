"""Changes are asked for first, and taken only from a form that this console made."""

from itertools import product
from typing import Any, Self

import pytest
from starlette.exceptions import HTTPException

from lockstep.client.admin.client import AdminClient
from lockstep.client.admin.offset_moves import Target
from lockstep.console.acts import actions
from lockstep.console.acts.actions import target_of
from lockstep.protocol.bodies.broker import BrokerData
from lockstep.protocol.bodies.locks import LockTableBody, LockTableRow
from lockstep.protocol.errors import LocalProtocolError
from lockstep.protocol.model import MessageQueue
from tests.console.pages_inside import NOWHERE, ask, make_console
from tests.rows import by_row

OWN = {"origin": "http://127.0.0.1:8088"}
WHERE = {"group": "shop", "topic": "orders"}


@by_row(
    "path, body",
    product(("/reset", "/release"), (b"", b"token=guess&group=shop&topic=orders&to=latest", b"token=\xff")),
)
async def test_a_form_without_our_token_is_refused(path: str, body: bytes) -> None:
    """Even with our own Origin."""
    assert (await ask(make_console(), path, method="POST", headers=OWN, body=body)).status == 403


async def test_a_huge_form_is_refused() -> None:
    """Before it is read to its end."""
    body = b"token=token&at=" + b"1" * 20_000
    assert (await ask(make_console(), "/reset", method="POST", headers=OWN, body=body)).status == 413


def test_where_offsets_go() -> None:
    """To an end or to a time; forward only when it was said; no target before the reader has chosen."""
    assert target_of(WHERE) is None
    assert target_of({**WHERE, "to": "earliest"}) == Target("shop", "orders", 0)
    assert target_of({**WHERE, "to": "latest", "force": "1"}) == Target("shop", "orders", -1, force=True)
    assert target_of({**WHERE, "to": "time", "at": "1970-01-01T00:01"}) == Target("shop", "orders", 60_000)
    for wrong in ("", "yesterday", "-5"):
        with pytest.raises(HTTPException, match="400"):
            target_of({**WHERE, "to": "time", "at": wrong})
    for names in ({"group": "no such group", "topic": "orders"}, {"group": "shop", "topic": "no such topic"}):
        with pytest.raises(LocalProtocolError):
            target_of(names)


async def test_no_broker_answers() -> None:
    """The page says it, instead of a form that cannot work."""
    for path in ("/reset?group=shop&topic=orders", "/release?group=shop&topic=orders&broker=broker-a&queue=0"):
        answer = await ask(make_console(), path)
        assert answer.status == 502
        assert "The brokers gave no answer." in answer.text


class OneIsSilent(AdminClient):
    """Of two brokers one never answers."""

    async def brokers(self) -> list[BrokerData]:
        return (
            [BrokerData(name, "c", {0: name}) for name in ("broker-a", "broker-b")] if not self._only else [self._only]
        )

    async def is_lockstep(self, address: str) -> bool:
        if address == "broker-a":
            raise TimeoutError
        return True

    async def _ask_for(self, body_class: type[Any], address: str, *_: Any, **__: Any) -> Any:
        return LockTableBody(())


async def test_a_lock_is_looked_for_at_its_own_broker() -> None:
    """Another one that is silent does not matter."""
    admin = OneIsSilent(name_server=NOWHERE)
    page = await ask(make_console(admin=admin), "/release?group=shop&topic=orders&broker=broker-b&queue=0")
    assert "No member has the lock of this queue now." in page.text
    page = await ask(make_console(admin=admin), "/release?group=shop&topic=orders&broker=broker-a&queue=0")
    assert page.status == 502
    page = await ask(make_console(admin=admin), "/release?group=shop&topic=orders&broker=broker-c&queue=0")
    assert page.status == 404


QUEUE = MessageQueue("orders", "broker-a", 0)
RELEASE = b"token=token&group=shop&topic=orders&broker=broker-a&queue=0&owner=10.0.0.1@1"


def held(
    epoch: int | None, client_id: str = "10.0.0.1@1", queue: MessageQueue = QUEUE, left_ms: int = 9
) -> LockTableRow:
    return LockTableRow("shop", queue, client_id, 1, left_ms, 5, epoch)


class Locks(OneIsSilent):
    """A broker with the locks `rows`; a lock is released when its owner and epoch are those of now, as at a broker."""

    rows: tuple[LockTableRow, ...] = ()
    asked: list[LockTableRow]

    async def list_locks(self, group: str | None = None) -> list[LockTableRow]:
        return list(self.rows)

    async def release_lock(self, row: LockTableRow) -> None:
        self.asked.append(row)
        self.rows = tuple(one for one in self.rows if (one.queue, one.epoch) != (row.queue, row.epoch))

    def at(self, _: BrokerData) -> Self:
        return self

    def __call__(self, **_: Any) -> Self:
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None: ...


@pytest.fixture
def locks(monkeypatch: pytest.MonkeyPatch) -> Locks:
    """Also what releases: the console uses an admin client of its own for that."""
    admin = Locks(name_server=NOWHERE)
    admin.asked = []
    monkeypatch.setattr(actions, "AdminClient", admin)
    return admin


@by_row(
    "rows, says",
    [
        ((held(7),), 'name="owner" value="10.0.0.1@1"><input type="hidden" name="epoch" value="0-7"'),
        ((held(8, queue=QUEUE._replace(queue_id=1)), held(7)), 'name="epoch" value="0-7"'),
        ((held(8, left_ms=-1), held(7)), 'name="epoch" value="0-7"'),
        ((held(None),), "no fenced locks"),
        ((held(8, queue=QUEUE._replace(queue_id=1)),), "No member has the lock"),
        ((held(8, left_ms=-1),), "No member has the lock"),
    ],
)
async def test_a_form_names_the_owner_and_the_epoch_that_the_reader_saw(
    locks: Locks, rows: tuple[LockTableRow, ...], says: str
) -> None:
    """Those of this queue, while it is held."""
    locks.rows = rows
    page = await ask(make_console(admin=locks), "/release?group=shop&topic=orders&broker=broker-a&queue=0")
    assert says in page.text


@by_row(
    "now, left, says",
    [
        (held(7), None, "The lock is released."),
        (held(8), held(8), "10.0.0.1@1"),
        (held(7, queue=QUEUE._replace(queue_id=1)), None, "The lock is released."),
    ],
)
async def test_a_release_names_the_epoch_of_the_form(
    locks: Locks, now: LockTableRow, left: LockTableRow | None, says: str
) -> None:
    """Not that of now: a lock that has gone to the next owner meanwhile stays with it."""
    locks.rows, locks.asked = (now,), []
    page = await ask(make_console(admin=locks), "/release", method="POST", headers=OWN, body=RELEASE + b"&epoch=0-7")
    assert locks.asked == [LockTableRow("shop", QUEUE, "10.0.0.1@1", 0, 0, 0, 7)]
    assert next((row for row in locks.rows if row.queue == QUEUE), None) == left
    assert says in page.text


async def test_a_lock_that_stays_is_not_said_to_be_released(locks: Locks, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its owner gives it away when its call has ended."""
    locks.rows = (held(7),)

    async def begin(row: LockTableRow) -> None:
        locks.asked.append(row)

    monkeypatch.setattr(locks, "release_lock", begin)
    page = await ask(make_console(admin=locks), "/release", method="POST", headers=OWN, body=RELEASE + b"&epoch=0-7")
    assert len(locks.asked) == 1
    assert "The lock is released." not in page.text


async def test_a_page_of_no_group_is_an_error(locks: Locks) -> None:
    """A name that no group can have is not asked for."""
    locks.rows = (held(7),)
    page = await ask(make_console(admin=locks), "/release?group=no+such&topic=orders&broker=broker-a&queue=0")
    assert page.status == 400


@by_row("fields", [b"&epoch=", b"&epoch=x", b"", b"&epoch=0-7&queue=x", b"&epoch=0-7&group=no such group"])
async def test_a_form_that_names_no_lock_releases_none(locks: Locks, fields: bytes) -> None:
    """A hand-made form with our token has to name an epoch, a queue and a group."""
    page = await ask(make_console(admin=locks), "/release", method="POST", headers=OWN, body=RELEASE + fields)
    assert page.status == 400
    assert locks.asked == []
