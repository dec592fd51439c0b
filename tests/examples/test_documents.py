"""Documents lead somewhere: their links, headings behind a "#", the files and targets of make that they name."""

import os
import re
from pathlib import Path

from tests.examples.documents import DOCUMENTS, ROOT, anchors, links, named_files, title


def test_links_lead_somewhere() -> None:
    """Every relative link of a document names a file or a folder that is there, and a heading that is in it."""
    found = {path: anchors(path) for path in DOCUMENTS}
    missing = []
    for document in DOCUMENTS:
        for target, anchor in links(document):
            path = Path(os.path.normpath(document.parent / target)) if target else document
            if not path.exists() or (anchor and anchor not in found.get(path, set())):
                missing.append(f"{title(document)}: {target}#{anchor}")
    assert not missing


def test_files_named_in_documents_exist() -> None:
    """`client/consumer/pull_loop.py` and the like are paths of this tree."""
    missing = [
        f"{title(path)}: {name}" for path in DOCUMENTS for name in named_files(path) if not (ROOT / name).exists()
    ]
    assert not missing


def test_make_knows_the_targets_in_documents() -> None:
    """Where a line or a piece of code begins with `make NAME`, the Makefile has that target."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    known = set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    known |= {"a", "an", "it", "no", "of", "on", "sure", "the"}  # prose
    command = re.compile(r"(?:^|`)(?:[A-Z]+=\S+ )*make ([a-z-]+)(?=[` \n])", re.MULTILINE)
    texts = {title(path): path.read_text(encoding="utf-8") for path in DOCUMENTS}
    missing = [
        f"{name}: make {target}" for name, text in texts.items() for target in set(command.findall(text)) - known
    ]
    assert not missing


def test_the_documents_are_found() -> None:
    """The tests above look at all that a reader may open first, and they find links and names in them."""
    assert {"README.md", "README.zh.md", "CONTRIBUTING.md", "SECURITY.md", "RELEASING.md", "docs/README.md"} <= {
        title(path) for path in DOCUMENTS
    }
    assert all(links(ROOT / name) for name in ("README.md", "README.zh.md", "docs/README.md", "docs/glossary.md"))
    assert named_files(ROOT / "docs" / "architecture.md")


def test_every_document_is_in_the_index() -> None:
    """docs/README.md links each page of the folder."""
    index = ROOT / "docs" / "README.md"
    pages = {path.name for path in index.parent.glob("*.md")} - {index.name}
    linked = {target for target, _ in links(index)}
    assert pages <= linked, sorted(pages - linked)
