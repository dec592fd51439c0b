"""The page and the text of a timeline: complete, linked, small, and safe with any names."""

import re
from html import unescape
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lockstep.simulation.commands.app import app
from lockstep.simulation.lab.cluster_log import LogLine
from lockstep.simulation.lab.experiment import LockMode
from lockstep.simulation.lab.findings import Finding
from lockstep.simulation.machine.host import HostEvent
from lockstep.simulation.search.plan_file import write_plan
from lockstep.simulation.timeline.build import timeline_of
from lockstep.simulation.timeline.evidence import Evidence
from lockstep.simulation.timeline.output import page_of, text_of
from lockstep.simulation.timeline.page import BYTES_MAX
from lockstep.simulation.worlds.experiment import WORLDS
from tests.order.test_page import Elements
from tests.simulation.timeline.runs import host, takeover, wide

HOSTILE = "\"><script>alert(1)</script><b title='&amp;"


def words(text: str) -> str:
    return " ".join(unescape(" ".join(Elements(text).texts)).split())


def named(evidence: Evidence, label: str) -> Evidence:
    evidence.label = label
    return evidence


def test_the_page_has_every_step_and_violation() -> None:
    """What the model has is in the table of steps with its reason, and each violation has its sentence."""
    evidence = takeover()
    said = words(page_of("takeover, seed 7", [evidence]))
    timeline = timeline_of(evidence)
    for moment in timeline.moments:
        assert f"{moment.at_ms / 1000:,.3f} {moment.text} {moment.why}".strip() in said
    assert "c1 and c2 handled queue 0 at once" in said
    assert "1 violation overlap" in said


@pytest.mark.parametrize("name", ["one violation", "none", "many", "two runs", "empty"])
def test_all_links_resolve(name: str) -> None:
    """Shapes name steps that exist, links of violations lead to steps, and no id is there twice."""
    runs = {
        "one violation": [takeover()],
        "none": [wide(2, 5)],
        "many": [wide(3, 20, wrongs=300)],
        "two runs": [named(takeover(), "buggy"), wide(2, 5)],
        "empty": [Evidence("faithful")],
    }[name]
    elements = Elements(page_of("a title", runs)).all
    ids = [attributes["id"] for _, attributes in elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    named_steps = [attributes["data-s"] for _, attributes in elements if "data-s" in attributes]
    links = [attributes["href"][1:] for tag, attributes in elements if tag == "a"]
    assert {*named_steps, *links} <= set(ids)
    assert bool(named_steps) == (name != "empty")
    assert bool(links) == (name in ("one violation", "many", "two runs"))


def test_the_page_loads_nothing() -> None:
    """No element asks for another file, and no style does."""
    page = page_of("a title", [takeover()])
    elements = Elements(page).all
    assert not [
        tag for tag, attributes in elements if "src" in attributes or tag in ("link", "img", "iframe", "object")
    ]
    assert not re.search(r"@import|url\((?!#)", page)


@pytest.mark.parametrize(
    ("queues", "calls", "wrongs"),
    [
        (2, 2_000, 0),
        pytest.param(60, 200, 0, marks=pytest.mark.long),
        pytest.param(2, 20_000, 0, marks=pytest.mark.long),
        pytest.param(5, 400, 400, marks=pytest.mark.long),
    ],
)
def test_long_runs_stay_small(queues: int, calls: int, wrongs: int) -> None:
    """Whatever is in a run, its page is below 300 KB, alone and side by side, and says what is not shown."""
    evidence = wide(queues, calls, wrongs)
    page = page_of("long", [evidence])
    assert len(page.encode()) < BYTES_MAX
    assert "are drawn as" in page or "left out" in page or "not drawn" in page
    assert len(page_of("long", [evidence, named(takeover(), "other")]).encode()) < BYTES_MAX


def test_hostile_names_are_text() -> None:
    """Names of hosts, kinds, settings and logs may have any characters: they make no element and no attribute."""
    evidence = takeover()
    evidence.label = evidence.error = HOSTILE
    evidence.settings = {HOSTILE: HOSTILE}
    evidence.addresses["10.0.0.1"] = HOSTILE
    evidence.hosts.append(host(1, HOSTILE, HostEvent.STARTED))
    evidence.log.append(LogLine(2, HOSTILE, "error", HOSTILE, {HOSTILE: HOSTILE}))
    evidence.findings.append(Finding(HOSTILE, 3, HOSTILE, HOSTILE))
    page = page_of(HOSTILE, [evidence, takeover()])
    elements = Elements(page)
    assert len([tag for tag, _ in elements.all if tag == "script"]) == 2
    assert "<script>alert" not in page
    assert page.count("&lt;script&gt;alert") > 10


def test_an_empty_run_has_a_page() -> None:
    """A world in which nothing ran: no lane but that of faults, and no violation."""
    said = words(page_of("nothing", [Evidence("faithful", error="LimitError: too long")]))
    assert "no violation" in said
    assert "the run ended before its end LimitError: too long" in said


# As text -----------------------------------------------------------------------------------------------------


def test_the_text_has_the_same_steps() -> None:
    """One line a step, a violation names the numbers of the steps with its records, and these point back."""
    lines = text_of("takeover, seed 7", [takeover()])
    timeline = timeline_of(takeover())
    steps = [line for line in lines if re.match(r" *\d+ +[\d.]+ s  ", line)]
    assert len(steps) == len(timeline.moments) + 1
    first, second = timeline.wrongs[0].steps
    assert lines[-1].endswith(f"overlap: c1 and c2 handled queue 0 at once [steps {first} and {second}]")
    assert [line.split()[0] for line in lines if line.endswith("<- violation 1")] == [str(first), str(second)]


def test_the_text_is_not_thinned() -> None:
    """As text all moments of a long run are shown."""
    assert len(text_of("long", [wide(3, 1000)])) > 4000


# The command -------------------------------------------------------------------------------------------------


def test_the_command_writes_a_page_and_text(tmp_path: Path) -> None:
    """With -o one file with both modes side by side; without it the text of the same seed."""
    path = tmp_path / "t.html"
    done = CliRunner().invoke(app, ["timeline", "worlds", "--seed", "5", "-o", str(path)])
    assert (done.exit_code, "violations: faithful" in done.output) == (0, True), done.output
    page = path.read_text(encoding="utf-8")
    assert "<h1>worlds, seed 5</h1>" in page
    done = CliRunner().invoke(app, ["timeline", "worlds", "--seed", "5", "--lock-mode", "fenced"])
    assert (done.exit_code, "under epoch" in done.output, "== faithful" in done.output) == (0, True, False)


def test_the_command_shows_a_plan_of_a_file(tmp_path: Path) -> None:
    """A plan that was shrunk has one run, in the mode of the plan."""
    path = tmp_path / "small.plan"
    write_plan(path, "worlds", WORLDS.draw(5, LockMode.FAITHFUL), "stale-pull")
    done = CliRunner().invoke(app, ["timeline", "--plan", str(path)])
    assert done.exit_code == 0, done.output
    assert done.output.startswith("worlds, small.plan of seed 5\n")
    assert "stale-pull" in done.output.splitlines()[-1]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["wrlds"], "no experiment is named 'wrlds'"),
        (["worlds", "--seed", "1", "--lock-mode", "fence"], "'fence' is not allowed; use faithful, fenced or both"),
        (["worlds"], "give NAME and --seed, or --plan FILE"),
        (["worlds", "--plan", "x.plan"], "--plan goes without NAME and --seed"),
        (["worlds", "--seed", "x"], "Input should be a valid integer"),
        (
            ["worlds", "--seed", "5", "--lock-mode", "fenced", "-o", "/no/such/folder/t.html"],
            "--output: cannot write /no/such/folder/t.html: No such file or directory",
        ),
    ],
)
def test_a_wrong_call_is_one_clear_error(arguments: list[str], said: str) -> None:
    """Exit status 2, and the message says what is wrong and what is allowed."""
    done = CliRunner().invoke(app, ["timeline", *arguments], env={"TERM": "dumb", "COLUMNS": "200"})
    assert done.exit_code == 2
    assert said in " ".join(done.output.split())
