"""What the project says of itself agrees: packages, locks, citations, commands, and nothing of the author's machine."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.tidy.source import PACKAGES, ROOT, modules, pyproject, report, texts

HERE = Path("tests/tidy/test_project.py")  # it spells out what it forbids
MACHINE_PATH = re.compile(r"(?<![\w./:~$}>-])/(?:work|root|home|tmp|Users)(?=/|\b)")
UNFINISHED = re.compile(r"\b(?:TODO|FIXME|XXX+)\b")  # SCHEDULE_TOPIC_XXXX is one word, and none of these
WRONG_NAME = re.compile(r"pip3? install [^\n`]*\blockstep\b(?!-mq)")
CITATION = re.compile(r"wire\.md,? (\d+(?:\.\d+)?)(?:(?:,| and) (\d+(?:\.\d+)?))*")
OUTSIDE = {Path("pipeline/autodiscovery/pyspark_lockstep"): "pyspark_lockstep"}  # Spark looks at the top alone
HEADING = re.compile(r"^#+ (\d+(?:\.\d+)?)\b", re.MULTILINE)


def matching_lines(pattern: re.Pattern[str]) -> Iterator[tuple[str, re.Match[str]]]:
    """("path:line", match) for each match in the project's text files, this one left out."""
    for path, text in texts():
        if path != HERE and "vectors" not in path.parts:
            for number, line in enumerate(text.splitlines(), 1):
                for match in pattern.finditer(line):
                    yield f"{path}:{number}", match


def test_no_paths_of_a_machine() -> None:
    """Code and documents name no folder that exists on one machine only; tests take tmp_path."""
    offences = [f"{place}: a machine's path: {match[0]}" for place, match in matching_lines(MACHINE_PATH)]
    assert not offences, report(offences)


def test_nothing_is_left_unfinished() -> None:
    """What is missing is done or said in words, not marked."""
    offences = [f"{place}: {match[0]}" for place, match in matching_lines(UNFINISHED)]
    assert not offences, report(offences)


def test_the_distribution_is_named_right() -> None:
    """`lockstep` on PyPI is another project; ours is lockstep-mq."""
    offences = [f"{place}: {match[0]}: the distribution is lockstep-mq" for place, match in matching_lines(WRONG_NAME)]
    assert not offences, report(offences)


def test_citations_of_the_wire_facts_lead_somewhere() -> None:
    """Every "wire.md 7.2" names a section that docs/wire.md has."""
    sections = set(HEADING.findall((ROOT / "docs/wire.md").read_text(encoding="utf-8")))
    offences = [
        f"{place}: docs/wire.md has no section {section}"
        for place, match in matching_lines(CITATION)
        for section in re.findall(r"\d+(?:\.\d+)?", match[0])
        if section not in sections
    ]
    assert sections
    assert not offences, report(offences)


def test_pyproject_lists_the_packages_that_exist() -> None:
    """A wheel holds every package folder with modules and no other, each typed."""
    setuptools = pyproject()["tool"]["setuptools"]
    folders = {wheel_name(source.path.parent) for source in modules().values()}
    tops = {f"lockstep.{name}" for name in PACKAGES if f"lockstep.{name}" in folders} | set(OUTSIDE.values())
    assert sorted(setuptools["packages"]) == sorted(folders)
    assert setuptools["package-dir"] == {name: folder_of(name).as_posix() for name in tops}
    assert {name for name, data in setuptools["package-data"].items() if "py.typed" in data} == tops
    assert all((ROOT / folder_of(name) / "py.typed").exists() for name in tops)


def test_the_reference_is_of_modules_that_exist() -> None:
    """`make docs`, which no test runs, names packages and modules of the tree."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8").replace("\\\n", " ")
    (names,) = re.findall(r"^API := (.*)$", makefile, re.MULTILINE)
    assert names.split()
    offences = [
        f"Makefile: API names {name}, which is not in the tree" for name in names.split() if name not in modules()
    ]
    assert not offences, report(offences)


def wheel_name(folder: Path) -> str:
    """The import name of a package's folder in a wheel."""
    return OUTSIDE.get(folder, ".".join(("lockstep", *folder.parts)))


def folder_of(name: str) -> Path:
    """Where a package that stands at the top of a wheel, or of lockstep in it, stands in the tree."""
    outside = {name: folder for folder, name in OUTSIDE.items()}
    return outside.get(name, Path(name.removeprefix("lockstep.")))


def pinned(name: str) -> set[str]:
    """The distributions that a lock file pins, in PyPI's spelling."""
    text = (ROOT / "requirements" / name).read_text(encoding="utf-8")
    return {match.lower() for match in re.findall(r"^([\w.-]+)==", text, re.MULTILINE)}


def required(requirements: list[str]) -> set[str]:
    return {re.split(r"[^\w.-]", requirement)[0].lower() for requirement in requirements}


def test_locks_cover_what_pyproject_asks_for() -> None:
    """core.txt pins the dependencies and the build backend; each other list pins core's and its extra's. An extra
    without a list of its own is in dev.txt, because its tests need it."""
    project = pyproject()["project"]
    core = required(project["dependencies"]) | required(pyproject()["build-system"]["requires"])
    assert core <= pinned("core.txt")
    for extra, requirements in project["optional-dependencies"].items():
        name = f"{extra}.txt" if (ROOT / "requirements" / f"{extra}.txt").exists() else "dev.txt"
        assert pinned("core.txt") | required(requirements) <= pinned(name), extra


def test_every_pin_has_hashes() -> None:
    """pip --require-hashes accepts each line of each lock."""
    offences = [
        f"{path.relative_to(ROOT)}:1: no hash for {block.splitlines()[0]}"
        for path in sorted((ROOT / "requirements").glob("*.txt"))
        for block in re.split(r"^(?=[\w.-]+==)", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
        if "--hash=sha256:" not in block
    ]
    assert not offences, report(offences)
