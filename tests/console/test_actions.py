"""Changes are asked for first, and taken only from a form that this console made."""

from itertools import product
from typing import Any

import pytest
from starlette.exceptions import HTTPException

from lockstep.client.admin.client import AdminClient
from lockstep.client.admin.offset_moves import Target
from lockstep.console.actions import target_of
from lockstep.protocol.bodies.broker import BrokerData
from lockstep.protocol.bodies.locks import LockTableBody
from lockstep.protocol.errors import LocalProtocolError
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
    with pytest.raises(LocalProtocolError):
        target_of({"group": "no such group", "topic": "orders"})


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
