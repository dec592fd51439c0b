"""What docs/testing/ and examples/ show for each language runs as it stands, with its client of RocketMQ 5."""

import re
import shutil
from pathlib import Path

import pytest

from tests.interop.harness.drivers import JVM
from tests.interop.harness.installed import ROOT, require
from tests.interop.harness.programs import run_program
from tests.interop.harness.table import RowMaker
from tests.testing.plugin_project import Project

pytestmark = pytest.mark.timeout(900)
SOURCES = ROOT / "scripts" / "interop"
PROGRAMS = {"node": "examples/node/orders.js", "rust": "examples/rust/orders.rs"}  # whole files; others are in pages


def block(language: str, fence: str) -> str:
    """The only program of a page."""
    page = (ROOT / "docs" / "testing" / f"{language}.md").read_text(encoding="utf-8")
    (program,) = re.findall(rf"```{fence}\n(.*?)```", page, re.DOTALL)
    return str(program)


def java(folder: Path) -> None:
    classpath = f"{require('java5') / 'lib'}/*"
    (folder / "OrdersTest.java").write_text(block("java", "java"))
    shutil.copy(ROOT / "examples/java/src/test/java/LockstepBroker.java", folder)
    run_program(folder, "javac", "-nowarn", "-cp", classpath, "OrdersTest.java", "LockstepBroker.java")
    run_program(folder, "java", *JVM, "-cp", f".:{classpath}", "OrdersTest")


def go(folder: Path) -> None:
    require("go5")
    (folder / "orders_test.go").write_text(block("go", "go"))
    copy(folder, SOURCES / "go5/go.mod", SOURCES / "go5/go.sum", ROOT / "examples/go/broker_test.go")
    run_program(folder, "go", "test", ".")


def python(folder: Path) -> None:
    client = require("python5")
    project = Project(folder)
    project.write("test_orders.py", block("python", "python"))
    report = project.run(environment={"PYTHONPATH": str(client)})
    assert report.counts() == {"passed": 1}, report.text


def node(folder: Path) -> None:
    modules = require("node5") / "node_modules"
    copy(folder, ROOT / PROGRAMS["node"])
    run_program(folder, "node", "orders.js", NODE_PATH=str(modules))


def rust(folder: Path) -> None:
    target = require("rust5") / "target"
    (folder / "src").mkdir()
    shutil.copy(ROOT / PROGRAMS["rust"], folder / "src" / "main.rs")
    copy(folder, SOURCES / "rust5/Cargo.toml", SOURCES / "rust5/Cargo.lock")
    # Beside the driver of the other tests, with whose crates it is compiled.
    run_program(folder, "cargo", "run", "--release", "--quiet", "--locked", "--target-dir", str(target))


def copy(folder: Path, *files: Path) -> None:
    for one in files:
        shutil.copy(one, folder)


LANGUAGES = {one.__name__: one for one in (java, go, python, node, rust)}


@pytest.mark.parametrize("language", LANGUAGES)
def test_the_program_of_the_page_passes(language: str, tmp_path: Path, interop_row: RowMaker) -> None:
    row = interop_row(
        language.capitalize(), "5", "its client -> Lockstep", PROGRAMS.get(language, f"docs/testing/{language}.md")
    )
    LANGUAGES[language](tmp_path)
    row.order_kept = True  # which the program itself asserts


def test_each_page_is_run() -> None:
    assert {page.stem for page in (ROOT / "docs" / "testing").glob("*.md")} == LANGUAGES.keys() - PROGRAMS
