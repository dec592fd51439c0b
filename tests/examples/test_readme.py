"""What the README shows is so: its program and its tour run, it is short, and the Chinese one has the same commands."""

import hashlib
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.commands import SCRIPTS, TIMEOUT_S, Lockstep, running_broker
from tests.examples.documents import CODE, ROOT, blocks, code_blocks

README_BYTES_MAX = 8192
README = (ROOT / "README.md").read_text(encoding="utf-8")
CHINESE = (ROOT / "README.zh.md").read_text(encoding="utf-8")
TOURS = {name: (ROOT / name).read_text(encoding="utf-8") for name in ("README.md", "docs/tour.md")}
QUICKSTART = "<!-- quickstart"
STEPS = re.compile(r"^(\d+)  queue (\d)  offset (\d)  (.*)$", re.MULTILINE)
MOVED = re.compile(r"^\S+  moved +shop  orders@broker-a:\d  (\S+) -> (\S+)  \(rested \d+\.\d s\)$", re.MULTILINE)
# A busy machine needs longer than a reader's: the test waits for what the reader sleeps for.
WAITS = {
    "sleep 9\n": "until [ $(lockstep lock list -g shop -o json | grep -o '#[0-9]*' | sort -u | wc -l) = 2 ]\n"
    "do sleep 0.2; done; sleep 1\n",
    # A renewal, each 3.3 s, is what the watch fails to write after the first move: then it ends.
    "--seconds 15": f"--seconds {TIMEOUT_S} --renewals | sed -u '/ moved .*orders@/q'",
    "sleep 6 ": "until [ $(cat first.jsonl second.jsonl | wc -l) -ge 9 ]; do sleep 0.2; done ",
}


def test_the_readme_is_short() -> None:
    """A reader gets through it; what is longer has a page in docs/."""
    assert len(README.encode()) <= README_BYTES_MAX


def test_the_python_in_the_readme_runs(tmp_path: Path) -> None:
    """As it stands, but for the port and its end, which waits for the test: it prints what it sent, in order."""
    (program,) = blocks(README, "python")
    with running_broker() as lockstep:
        path = tmp_path / "program.py"
        program = program.replace("127.0.0.1:9876", lockstep.name_server)
        assert "asyncio.sleep(2)" in program
        path.write_text(program.replace("asyncio.sleep(2)", "asyncio.to_thread(input)"), encoding="utf-8")
        with lockstep.program(path) as running:
            lines = [running.line() for _ in range(2)]
            result = running.ended(data=b"\n")
    assert result == (0, "", "")
    assert [line.split()[1:] for line in lines] == [["0", "1001", "created"], ["1", "1001", "paid"]]


@pytest.mark.long
@pytest.mark.parametrize("name", TOURS)
def test_the_tour_runs(name: str, tmp_path: Path) -> None:
    """Its blocks run one after the other in one shell: messages are printed, and a killed consumer's queues move.

    The broker is the test's own, on free ports, with the options of the page.
    """
    tour = TOURS[name][TOURS[name].index(QUICKSTART) :]
    script = "".join(blocks(tour, "sh"))
    (setup,) = re.findall(r"\Amake setup\n\. \.venv/bin/activate\n(lockstep-broker .* &)\n", script)
    script = "sleep 600 &\n" + script[script.index(setup) + len(setup) :]
    for seconds, condition in WAITS.items():
        script = script.replace(seconds, condition)
    with running_broker(*shlex.split(setup)[1:-1]) as lockstep:
        out = in_a_shell(script, lockstep, tmp_path)
    shown = STEPS.findall(tour)
    assert shown
    printed = STEPS.findall(out)
    assert sorted(printed) == sorted(shown)
    assert all([s for s in printed if s[0] == key] == [s for s in shown if s[0] == key] for key, *_ in shown)
    moves = MOVED.findall(out)
    assert moves
    assert len(set(moves)) == 1
    assert not list(tmp_path.iterdir())


def in_a_shell(script: str, lockstep: Lockstep, folder: Path) -> str:
    """What it printed on stdout; with the project's commands on the path, as in an activated environment."""
    environment = {**lockstep.environment, "PATH": f"{SCRIPTS}:{lockstep.environment['PATH']}"}
    command = ["bash", "-c", script]
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=2 * TIMEOUT_S, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def paragraphs(text: str) -> list[str]:
    """The prose of a README: its paragraphs and points, without headings, code and tables."""
    prose = re.sub(r"^<!-- bench -->.*?<!-- /bench -->$", "", CODE.sub("", text), flags=re.DOTALL | re.MULTILINE)
    parts = [part.strip() for part in re.split(r"\n\n|\n(?=- )", prose)]
    return [part for part in parts if part and not part.startswith(("#", "<!--", "!["))]


def mark(paragraph: str) -> str:
    """Stands behind the Chinese paragraph: of which English text it is the translation."""
    return f"<!-- {hashlib.sha256(' '.join(paragraph.split()).encode()).hexdigest()[:6]} -->"


def test_the_chinese_readme_says_the_same() -> None:
    """Each paragraph of README.md has one with its mark in README.zh.md; what is new, changed or gone is named."""
    english = {mark(paragraph): paragraph for paragraph in paragraphs(README)}
    known = re.findall(r"<!-- [0-9a-f]{6} -->", CHINESE)
    changed = [f"write it in Chinese, with {key}: {text[:70]}" for key, text in english.items() if key not in known]
    gone = [f"{key} is of no paragraph of README.md: {chinese_of(key)}" for key in known if key not in english]
    assert not changed + gone, "\n".join(changed + gone)
    assert len(known) == len(english) == len(paragraphs(CHINESE))


def chinese_of(key: str) -> str:
    return next(paragraph for paragraph in paragraphs(CHINESE) if key in paragraph)[:40]


def test_the_chinese_readme_has_the_same_commands() -> None:
    """Every block of code, commands and output, is that of README.md, in its order; so are the marks of what is run."""
    assert code_blocks(CHINESE) == code_blocks(README)
    assert CHINESE.count(QUICKSTART) == README.count(QUICKSTART) == 1
