"""A fixture with a store of either kind, for tests of what both must do."""

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from lockstep.store import MessageStore
from tests.store.stores import FolderStore, MakeStore, memory_store


@pytest.fixture(params=["memory", "file"])
def new_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[MakeStore]:
    """Makes an empty store; settings are those of MemoryStore."""
    made: list[FolderStore] = []
    serials = itertools.count()

    def in_memory(**settings: Any) -> MessageStore:
        return memory_store(**settings)

    def in_files(**settings: Any) -> MessageStore:
        made.append(FolderStore(tmp_path / f"store-{next(serials)}", **settings))
        return made[-1].store

    yield in_memory if request.param == "memory" else in_files
    for folder_store in made:
        folder_store.kill()
