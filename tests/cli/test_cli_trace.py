"""`lockstep trace`: the verdict as an exit status, the report in words and as JSON, and stories."""

import json
from pathlib import Path

from tests.commands import Lockstep
from tests.order.stories import Story


def lockstep(*arguments: str) -> tuple[int, str, str]:
    """Exit status, stdout, stderr of the command."""
    return Lockstep("127.0.0.1:1")("trace", *arguments)


def written(folder: Path, story: Story) -> list[str]:
    """The files of a story."""
    for client, trace in story.traces.items():
        (folder / f"{client}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in trace), encoding="utf-8")
    return [str(folder / f"{client}.jsonl") for client in story.traces]


def test_the_status_is_the_verdict(tmp_path: Path) -> None:
    """0 in order, 3 not in order, 4 undecided; a file that is not there is an error of one line."""
    story = Story()
    story.own("a", 1, 0)
    story.handle("a", 1, 0, 1)
    status, out, _ = lockstep("check", *written(tmp_path, story))
    assert (status, out.splitlines()[0].split()) == (0, ["verdict", "in", "order"])
    story.handle("a", 1, 1)
    files = written(tmp_path, story)
    status, out, _ = lockstep("check", *files)
    assert status == 3
    assert f"lockstep trace show {files[0]} --queue orders/b/0 --group g --around 1" in out
    empty = tmp_path / "empty.jsonl"
    empty.touch()
    assert lockstep("check", str(empty))[0] == 4
    status, _, err = lockstep("check", str(tmp_path / "nowhere"))
    assert (status, len(err.splitlines())) == (1, 1)


def test_json_and_stories(tmp_path: Path) -> None:
    """The report as one object; a queue's records in time, near an offset, of one key."""
    story = Story()
    story.own("a", 1, 0)
    story.handle("a", 1, *range(20), keys="KL")
    files = written(tmp_path, story)
    report = json.loads(lockstep("check", *files, "-o", "json")[1])
    assert (report["verdict"], report["handled"], report["findings"]) == ("in order", 20, [])
    shown = lockstep("show", *files, "--queue", "orders/b/0", "--around", "10", "-o", "json")[1].splitlines()
    assert [json.loads(line)["offset"] for line in shown if "handled" in line] == list(range(7, 14))
    assert len(lockstep("show", *files, "--key", "L")[1].splitlines()) == 10
    status, _, err = lockstep("show", *files, "--queue", "orders")
    assert (status, "TOPIC/BROKER/N" in err) == (2, True)


def test_a_report_page(tmp_path: Path) -> None:
    """Written beside the verdict, in a folder that is made; a place that is none is an error of one line."""
    story = Story()
    story.own("a", 1, 0)
    story.handle("a", 1, 0, 2, 1)
    files = written(tmp_path, story)
    page = tmp_path / "there" / "page.html"
    status, out, _ = lockstep("check", *files, "--report", str(page))
    assert (status, "nonmonotonic-poll" in out) == (3, True)
    text = page.read_text(encoding="utf-8")
    assert f"lockstep trace show {files[0]} --queue orders/b/0 --group g --around 1" in text
    status, _, err = lockstep("check", *files, "--report", str(tmp_path))
    assert (status, len(err.splitlines())) == (2, 1)
