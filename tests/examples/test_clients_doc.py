"""What docs/clients.md shows runs as it stands and prints what it says."""

import ast
import asyncio
import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lockstep.client
from tests.commands import Lockstep, running_broker
from tests.examples.documents import blocks

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "clients.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
LINKED = [(ROOT / "examples" / name).read_text(encoding="utf-8") for name in re.findall(r"examples/(\w+\.py)", TEXT)]
(SET_UP,) = blocks(TEXT, "sh")
COMMAND, *OPTIONS = shlex.split(SET_UP.partition("&\n")[0].replace("\\\n", ""))
PRINTED = re.compile(r"print\(.*\)  # (.*)$", re.MULTILINE)
SNIPPET_S = 60


@pytest.fixture(scope="module")
def broker() -> Iterator[Lockstep]:
    """That of the page, on free ports."""
    with running_broker(*OPTIONS) as lockstep:
        yield lockstep


def title_of(number: int) -> str:
    """The heading above a block."""
    before = TEXT[: TEXT.index(BLOCKS[number])]
    return f"{number}-{re.findall(r'^## (.*)$', before, re.MULTILINE)[-1].split(':')[0].lower().replace(' ', '-')}"


@pytest.mark.parametrize("number", range(len(BLOCKS)), ids=title_of)
def test_a_snippet_runs_and_prints_what_it_says(
    number: int, broker: Lockstep, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each is the inside of an `async def`; the comment behind a print is what it printed."""
    monkeypatch.setenv("NAMESRV_ADDR", broker.name_server)
    block = BLOCKS[number]
    expected = PRINTED.findall(block)
    names: dict[str, Any] = {}
    exec("async def snippet():\n" + textwrap.indent(block, "    "), names)
    asyncio.run(asyncio.wait_for(names["snippet"](), SNIPPET_S))
    assert capsys.readouterr().out.splitlines() == expected
    assert expected


def test_the_broker_of_the_page_makes_the_topics_of_the_examples() -> None:
    """None is missing, so that no example waits for a round of the rebalance; the tenant's own is there too."""
    assert COMMAND == "lockstep-broker"
    used = {topic for block in BLOCKS for topic in re.findall(r'(?:Message|subscribe)\("(\w+)"', block)}
    made = {option.removesuffix(":4") for option in OPTIONS if option.endswith(":4")}
    assert made == used | {"acme%Orders"}


def test_every_kind_of_client_is_shown() -> None:
    """Each client is in a snippet or in a program that the page links, each exported selector in the text."""
    clients = {"Producer", "TransactionProducer", "PushConsumer", "LitePullConsumer", "PullConsumer", "SimpleConsumer"}
    imported = {
        alias.name
        for code in [*("async def f():\n" + textwrap.indent(block, "    ") for block in BLOCKS), *LINKED]
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert clients <= imported
    assert len(BLOCKS) + len(LINKED) >= 13
    missing = set(re.findall(r"`((?:Allocate|allocate_|select_by_)\w+)`", TEXT)) - set(lockstep.client.__all__)
    assert not missing
    exported = {
        name
        for name in lockstep.client.__all__
        if re.match(r"Allocate(?!MessageQueueStrategy)|allocate_|select_by", name)
    }
    assert all(name in TEXT for name in exported)
