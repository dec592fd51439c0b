"""The articles live: each story plays as its section says, with exact times, and the text is made from it."""

import pytest
from typer.testing import CliRunner

from lockstep.simulation.articles.narration import Line, text_of
from lockstep.simulation.articles.play import narration_text, play
from lockstep.simulation.articles.registry import SECTIONS, UnknownSection, find_section
from lockstep.simulation.commands.app import app
from lockstep.simulation.lab.event_texts import Focus
from tests.rules.table import section_titles
from tests.tidy.source import ROOT

POINTS = {
    "1/1": (
        "A alone had q0, and handled 0 1 2 3 4 5, over all keys (key0, key1, key2 ...). 6 calls of 100 ms took "
        "600 ms: one queue is as fast as one listener."
    ),
    "1/2": (
        "'1' came again after 1 000, 1 000 ms, and then '2' and '3'. The other order was done at 2 400 ms, while "
        "q0 waited."
    ),
    "1/2.1": "q0 had 1000 and 1002; q1 had 1001. Each order was created, paid, shipped, in this order: yes.",
    "1/2.2": (
        "A's first requests were, in this order, GET_ROUTEINFO_BY_TOPIC, HEART_BEAT, GET_CONSUMER_LIST_BY_GROUP, "
        "LOCK_BATCH_MQ, QUERY_CONSUMER_OFFSET, PULL_MESSAGE, UPDATE_CONSUMER_OFFSET. Heartbeats left at 1 000, 2 "
        "000 ms."
    ),
    "1/2.2.1": (
        "A got the lock of q0 at 500 ms and renewed it at 1 500, 21 500, 41 500, 61 500 ms: after 1 000, 20 000, "
        "20 000, 20 000 ms."
    ),
    "1/2.2.2": "B was refused 60 000 ms after A's last renewal, and got the lock 60 001 ms after it, at 81 001 ms.",
    "1/2.2.3": "B was refused at 2 000, 12 000 ms. A gave the lock back at 15 000 ms, and B got it at 15 000 ms.",
    "1/2.2.4": (
        "The pull of 9 000 ms carried the offset 3, which the broker stored. At 10 000 and 20 000 ms a timer "
        "stored the offset with its own request."
    ),
    "1/2.2.5": (
        "The young queue was begun at offset 0, not at its end: the broker answered 0. A stored offset wins over "
        "the setting: the second time the queue was begun at 3."
    ),
    "1/2.2.6": (
        "The queue had offsets 30 to 50 left. The query at 1 000 ms was answered QUERY_NOT_FOUND. At 11 000 ms "
        "the answer was the offset that had been stored: 30."
    ),
    "1/2.2.7": "After the exception '0' came again 1 000 ms later, after SUSPEND 5 000 ms later. '1' waited behind it.",
    "2/consuming": (
        "The first message answered the pull that waited, and the listener had it at 4 000 ms, when it was sent. "
        "With its retry queue A pulled 8 times in 26 000 ms."
    ),
    "2/queue-lock": (
        "A renewed its lock at 21 000 ms and began its last call 30 000 ms later. The next call began at 64 320 "
        "ms, when the broker had answered again."
    ),
    "2/consume-lock": (
        "A wanted to give q1 up at 11 000, 22 000 ms, while its call ran. The call ended at 32 000 ms, the unlock "
        "came at 52 000 ms, and B's first call at 60 000 ms."
    ),
    "2/summary": (
        "A dropped q1 at 6 000 ms and unlocked it 20 200 ms later. A's last call was offset 13; B began with "
        "offset 13 at 36 000 ms."
    ),
    "3/heartbeats": (
        "The last heartbeat of A came at 31 000 ms. The broker dropped A at 160 000 ms; A's lock of q0 was 139 "
        "000 ms old, and B got it at 160 000 ms."
    ),
    "3/pull-service": (
        "Pulls of q0 failed at 12 000 and 15 000 ms. The next one reached the broker at 18 000 ms. '1' was "
        "handled at 24 000 ms."
    ),
    "3/pull-service-pull": (
        "A's last pull was at 3 000 ms, and its last call ended at 5 000 ms. B's first pull of q0 was at 5 000 ms."
    ),
    "3/flow-control": (
        "At 1 000 ms 1 024 messages were cached, more than 1 000, and A stopped pulling. The next pull was at 1 500 ms."
    ),
    "3/pull-callback": "A handled '0' and '2' of 7 messages. Its offset of q0 is 7: the end of the queue.",
    "3/concurrent": (
        "5 calls began at 8 000 ms; all but '1' were done at 8 100 ms, '1' at 12 000 ms. The broker was sent "
        "offset 1 at 10 000 ms, then 5 at 20 000 ms."
    ),
    "3/results": "Handled in one call: 0 1 2 3. Sent back: 2 3, which came again at 11 000 ms.",
    "3/retry-queues": (
        "'1' came again after 10 000 and 30 000 ms, from %RETRY%tower. '0' and '2' had been handled meanwhile."
    ),
    "3/committing-offsets": (
        "A had finished offset 32 and the broker had offset 17: B began there at 68 000 ms and handled 16 "
        "finished messages again."
    ),
    "3/offset-value": (
        "At 1 000 ms A stopped pulling: 33 messages were cached, with a span of 2 015 offsets. '0' was done at 4 "
        "000 ms, and in the end 2 100 messages were handled."
    ),
    "3/ordered": (
        "Requests for the lock failed at 53 010, 57 110, 61 210, 62 000 ms. That of 64 310 ms was granted; the "
        "next call began 10 ms later, with offset 52."
    ),
    "3/ordered-commits": (
        "Messages were handled as 0 1 2 3 4 2 3 4 5 6: ROLLBACK at '4' put back all since the COMMIT, and they "
        "came again 1 000 ms later. The broker has offset 7."
    ),
    "3/ordered-retries": (
        "'2' was tried 3 times and given up at 4 500 ms. It was in %DLQ%tower at 64 500 ms: the broker keeps the "
        "delay of its retries."
    ),
    "4/1": (
        "A gave the request up at 22 000 ms; its answer came at 22 500 ms, 1 500 ms after the request, and was "
        "matched with it by its opaque."
    ),
    "4/2-success": (
        "A pulled q0 from 0 and was told 30. It dropped the queue at 1 000 ms, stored the broker's offset 10 000 "
        "ms later, and handled offset 30 at 11 000 ms."
    ),
    "5/2-balance": (
        "Queues of each member: A 5 (until 5 000 ms); A 3, B 2 (until 30 000 ms); A 2, B 2, C 1 (until 55 000 ms); "
        "A 3, C 2 (until 75 000 ms)."
    ),
    "5/6": (
        "The application pulled at 1 000, 2 000, 3 000 ms, each time from the offset that it kept. The broker has "
        "offset 5 of q0."
    ),
    "5/7": (
        "A waited for its call of '0' until 5 000 ms, and then sent UPDATE_CONSUMER_OFFSET, UNLOCK_BATCH_MQ, "
        "UNREGISTER_CLIENT. B began with '1' at 5 000 ms."
    ),
}


@pytest.mark.parametrize("name", POINTS)
def test_what_a_story_shows(name: str) -> None:
    """The point of each story, computed from what happened, to the millisecond; and the judge agrees."""
    narration = play(find_section(name))
    assert narration.point == POINTS[name]
    assert narration.judged.startswith(("in order", "not asked"))


def test_each_point_of_a_story_is_held() -> None:
    """Sections may share a story and its point; each pair of them is in the list above."""
    held = {(find_section(name).story, find_section(name).point) for name in POINTS}
    assert {(section.story, section.point) for section in SECTIONS if section.story} == held


def test_the_sections_are_those_of_the_articles() -> None:
    """Ids, titles and order are those of docs/COVERAGE.md; nearly all sections have a story."""
    listed = [title for title in section_titles() if "/" in title.partition(" ")[0]]
    assert [f"{section.id} {section.bare_title}" for section in SECTIONS] == listed
    assert [section.id for section in SECTIONS if section.story is None] == ["3/consume-service", "5/1"]


def test_a_story_is_told_alike_each_time() -> None:
    """Two runs of one seed have the same text and the same trace."""
    section = find_section("2/summary")
    assert list(narration_text(section)) == list(narration_text(section))
    assert play(section).trace_hash == play(section).trace_hash


def test_another_seed_moves_no_time() -> None:
    """The stories do not hang on chance: their network has no latency."""
    assert play(find_section("1/2.2.2"), seed=7).lines == play(find_section("1/2.2.2")).lines


def test_changes_of_tables_stand_behind_their_cause() -> None:
    """The lock table changes when the broker gives the expired lock to B, and not when it refuses it."""
    lines = list(narration_text(find_section("1/2.2.2")))
    given = next(number for number, line in enumerate(lines) if "gives B the lock of q0" in line)
    assert lines[given - 1].split() == ["81", "001", "ms", "B", "asks", "for", "the", "lock", "of", "q0"]
    assert lines[given + 1].strip() == "| lock of q0: A -> B"
    assert sum("lock of q0: " in line for line in lines if "|" in line) == 2


def test_a_section_shows_its_focus() -> None:
    """One story is shown with its sends in one section, and with its listener calls and locks in another."""
    sends, calls = ("\n".join(narration_text(find_section(name))) for name in ("2/queue-order", "1/2.1"))
    assert "sends '1000 paid' to q0" in sends
    assert "calls the listener" not in sends
    assert "calls the listener" in calls


def test_long_runs_are_shortened() -> None:
    """Of many lines of one kind in an instant, and of many instants with the same kinds, the middle is left out."""
    pulls = [Line(5, "A", Focus.PULLS, "pull", f"pulls {number}") for number in range(20)]
    ticks = [Line(1000 * number, "A", Focus.CALLS, "call", f"call {number}") for number in range(1, 11)]
    assert list(text_of(pulls + ticks)) == [
        "      5 ms  A        pulls 0",
        "            A        pulls 1",
        "            A        pulls 2",
        "            A        pulls 3",
        "            ...      15 more times like this",
        "            A        pulls 19",
        "  1 000 ms  A        call 1",
        "  2 000 ms  A        call 2",
        "  3 000 ms  A        call 3",
        "  4 000 ms  A        call 4",
        "  5 000 ms  ...      5 more times like this, until 9 000 ms",
        " 10 000 ms  A        call 10",
    ]


# The command ----------------------------------------------------------------------------------------------------------


def test_the_command_lists_and_tells() -> None:
    """Without an argument there is a line for each article and section; with one the section is told."""
    listed = CliRunner().invoke(app, ["article"])
    assert listed.exit_code == 0
    assert len(listed.stdout.splitlines()) == 5 + len(SECTIONS)
    assert "Article 3: RocketMQ消费者之消息消费过程分析, by yyxxn" in listed.stdout
    result = CliRunner().invoke(app, ["article", "1/2.2.2"])
    assert result.stdout.splitlines() == list(narration_text(find_section("1/2.2.2")))
    talk = CliRunner().invoke(app, ["article", "5/1"])
    assert "no mechanism" in talk.stdout


@pytest.mark.parametrize(
    ("name", "near"), [("1/2.2.9", "1/2.2"), ("4/2", "4/2-success"), ("2/lock", "2/lock-timer"), ("9", "5/")]
)
def test_a_wrong_section_names_the_nearest(name: str, near: str) -> None:
    """The error has the nearest ids, and the exit status is 2."""
    with pytest.raises(UnknownSection, match="the nearest are"):
        find_section(name)
    result = CliRunner().invoke(app, ["article", name])
    assert result.exit_code == 2
    assert near in result.stderr


def test_the_guide_quotes_a_story() -> None:
    """The lines of 1/2.2.2 in docs/simulator.md are those of the command."""
    guide = (ROOT / "docs" / "simulator.md").read_text(encoding="utf-8").partition("## The articles live")[2]
    quoted = guide.split("```text\n")[1].split("```")[0].splitlines()
    assert len(quoted) > 5
    assert [line for line in quoted if line not in narration_text(find_section("1/2.2.2"))] == []
