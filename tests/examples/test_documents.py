"""Documents lead somewhere: their links, the headings behind a "#", and the files that they name."""

import os
import re
from pathlib import Path

import pytest

from tests.examples.documents import DOCUMENTS, ROOT, anchors, links, named_files, title

NAMES = [title(path) for path in DOCUMENTS]
OF_TODAY = [path for path in DOCUMENTS if path.name != "CHANGELOG.md"]  # that one tells of targets that came and went


@pytest.mark.parametrize("document", DOCUMENTS, ids=NAMES)
def test_links_lead_somewhere(document: Path) -> None:
    """Every relative link of a document names a file or a folder that is there, and a heading that is in it."""
    missing = []
    for target, anchor in links(document):
        path = Path(os.path.normpath(document.parent / target)) if target else document
        if not path.exists() or (anchor and anchor not in anchors(path)):
            missing.append(f"{target}#{anchor}" if anchor else target)
    assert not missing


@pytest.mark.parametrize("document", DOCUMENTS, ids=NAMES)
def test_files_named_in_documents_exist(document: Path) -> None:
    """`client/consumer/pull_loop.py` and the like are paths of this tree."""
    missing = [name for name in named_files(document) if not (ROOT / name).exists()]
    assert not missing


@pytest.mark.parametrize("document", OF_TODAY, ids=[title(path) for path in OF_TODAY])
def test_make_knows_the_targets_in_documents(document: Path) -> None:
    """Where a line or a piece of code begins with `make NAME`, the Makefile has that target."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    text = document.read_text(encoding="utf-8")
    named = set(re.findall(r"(?:^|`)(?:[A-Z]+=\S+ )*make ([a-z-]+)(?=[` \n])", text, re.MULTILINE))
    prose = {"a", "an", "it", "no", "of", "on", "sure", "the"}
    assert not named - prose - targets


def test_the_documents_are_found() -> None:
    """The tests above look at all that a reader may open first, and they find links and names in them."""
    assert {"README.md", "README.zh.md", "CONTRIBUTING.md", "SECURITY.md", "RELEASING.md", "docs/README.md"} <= {*NAMES}
    assert all(links(ROOT / name) for name in ("README.md", "README.zh.md", "docs/README.md", "docs/glossary.md"))
    assert named_files(ROOT / "docs" / "architecture.md")


def test_every_document_is_in_the_index() -> None:
    """docs/README.md links each page of the folder, and docs/decisions/README.md each decision."""
    for index in (ROOT / "docs" / "README.md", ROOT / "docs" / "decisions" / "README.md"):
        pages = {path.name for path in index.parent.glob("*.md")} - {index.name}
        linked = {target for target, _ in links(index)}
        assert pages <= linked, sorted(pages - linked)
