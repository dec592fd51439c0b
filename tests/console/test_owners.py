"""One letter and one colour for each client, on every page and in every group."""

import re

import pytest

from lockstep.client.admin.client import AdminClient
from lockstep.console.owners import Owners, owner_of
from lockstep.console.pages import messages
from lockstep.console.pages.message_search import SearchResult
from lockstep.order.page.pieces import COLOURS
from tests.console.pages_inside import Clock, ask, make_console
from tests.console.readings import GROUP, NOW_MS, QUEUES, TOPIC, message, reading, watched
from tests.rows import by_row


@by_row(
    "number, letter, colour, hatched",
    [(0, "A", 0, False), (7, "H", 7, False), (8, "I", 0, True), (25, "Z", 1, True), (27, "B2", 3, True)],
)
def test_owners_have_letters_and_colours(number: int, letter: str, colour: int, hatched: bool) -> None:
    """A letter is one owner's; a colour that returns is hatched."""
    assert owner_of("client", number) == ("client", letter, colour, hatched)


def test_a_client_is_the_same_in_all_groups() -> None:
    """Two groups on one page do not call two clients A, nor one client A and B."""
    owners = Owners()
    shop = [owners.owner("shop", name) for name in ("a", "b")]
    assert [one.letter for one in shop] == ["A", "B"]
    assert [owners.owner("billing", name).letter for name in ("c", "a")] == ["C", "A"]


def test_clients_of_one_group_differ_in_colour() -> None:
    """The group's ninth client is the first whose colour returns, whatever other groups have taken."""
    owners = Owners()
    owners.owner("shop", "first")
    for number in range(7):
        owners.owner("other", f"other-{number}")
    colours = [owners.owner("shop", name).colour for name in ("first", *(f"next-{n}" for n in range(7)))]
    assert sorted(colours) == list(range(COLOURS))


def test_letters_are_bounded() -> None:
    """Of 5,000 clients the last 1,024 have a letter each; one that is seen again and again keeps its own."""
    owners = Owners()
    kept = owners.owner("shop", "kept")
    letters = {}
    for number in range(5000):
        letters[number] = owners.owner(f"group-{number}", f"client-{number}").letter
        assert owners.owner("shop", "kept") == kept
    last = [letters[number] for number in range(5000 - 1023, 5000)]
    assert len({*last, kept.letter}) == 1024


async def test_a_client_has_its_letter_on_every_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the ribbon and the table of Order, among the members and queues of its group, and on the way of a key."""

    async def find_key(_admin: AdminClient, _topic: str, _key: str) -> tuple[SearchResult, int]:
        return SearchResult([message(QUEUES[3], 95, NOW_MS)], 0), 1

    monkeypatch.setattr(messages, "find_key", find_key)
    console = make_console(watched(reading(), epoch=3), runtime=Clock(NOW_MS))
    console.collector.owner("another", "z")
    for path in (f"/?group={GROUP}", f"/group?group={GROUP}", f"/key?topic={TOPIC}&key=k&group={GROUP}"):
        text = (await ask(console, path)).text
        chips = re.findall(
            r'<span class="chip o(\d)[^"]*" aria-hidden="true">(\w+)</span> <span class="long">(\w+)', text
        )
        assert ("2", "C", "b") in chips, path
        assert {chip for chip in chips if chip[2] in "ab"} <= {("1", "B", "a"), ("2", "C", "b")}, path
        assert set(re.findall(r"<title>(\w+): b", text)) == ({"C"} if path.startswith("/?") else set())
