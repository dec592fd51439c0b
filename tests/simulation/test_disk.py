"""The simulated disk: what survives a SIGKILL and a power cut, and the calls that fail because they were told to."""

import errno
from collections.abc import Callable, Coroutine

import pytest

from lockstep.remoting.host.storage import Storage, StoredFile
from lockstep.simulation import SimRuntime, World, simulate

OLD, NEW = b"o" * 3000, b"n" * 3000


def on_disk(runtime: SimRuntime, path: str, data: bytes) -> StoredFile:
    """A file whose name and bytes no power cut can take."""
    file = runtime.storage.open_file(path, create=True)
    file.write_at(0, data)
    file.sync()
    runtime.storage.sync_dir(path.rpartition("/")[0])
    return file


def cut(seed: int, prepare: Callable[[SimRuntime], object]) -> dict[str, bytes]:
    """What is on the disk after `prepare` and a power cut."""

    async def scenario(world: World) -> dict[str, bytes]:
        prepare(world.host("broker"))
        world.power_cut("broker")
        disk = world.host("broker").disk
        return {path: disk.read(path) for path in disk.paths()}

    return simulate(scenario, seed=seed).value


def kinds(outcomes: list[bytes], whole: bytes, none: bytes) -> set[str]:
    return {"whole" if found == whole else "none" if found == none else "torn" for found in outcomes}


def test_what_was_synced_survives_a_power_cut() -> None:
    """Bytes behind `sync` and names behind `sync_dir` are there, whatever the seed."""
    for seed in range(50):
        assert cut(seed, lambda runtime: on_disk(runtime, "store/log", OLD)) == {"store/log": OLD}


def test_what_was_not_synced_is_lost_kept_or_torn() -> None:
    """Bytes written over others and not synced: from the seed all, none or some of them are there, and nothing else."""

    def write_over(runtime: SimRuntime) -> None:
        on_disk(runtime, "store/log", OLD).write_at(0, NEW)

    found = [cut(seed, write_over)["store/log"] for seed in range(50)]
    assert found == [cut(seed, write_over)["store/log"] for seed in range(50)]
    assert kinds(found, NEW, OLD) == {"whole", "none", "torn"}
    assert all(set(data) <= set(OLD + NEW) and len(data) == len(OLD) for data in found)


def test_a_longer_file_may_be_zeros() -> None:
    """Bytes appended and not synced: what is missing of them is absent or reads as zeros."""

    def append(runtime: SimRuntime) -> None:
        on_disk(runtime, "store/log", OLD).write_at(len(OLD), NEW)

    found = [cut(seed, append)["store/log"] for seed in range(60)]
    assert all(data.startswith(OLD) and set(data) <= set(OLD + NEW + b"\0") for data in found)
    assert {len(data) for data in found} >= {len(OLD), len(OLD + NEW)}
    assert any(b"\0" in data for data in found)


def test_names_that_were_not_synced_may_be_as_before() -> None:
    """A rename without `sync_dir` is done or undone, never half; a new file may have no name."""

    def rename(runtime: SimRuntime) -> None:
        on_disk(runtime, "store/a.json", OLD)
        on_disk(runtime, "store/a.tmp", NEW)
        runtime.storage.rename("store/a.tmp", "store/a.json")
        runtime.storage.open_file("store/b.json", create=True).sync()

    found = [cut(seed, rename) for seed in range(40)]
    assert {(left["store/a.json"], "store/a.tmp" in left) for left in found} == {(OLD, True), (NEW, False)}
    assert {"store/b.json" in left for left in found} == {True, False}


def test_files_go_with_their_folder() -> None:
    """A folder's name needs a sync of its own: without it everything in it may be gone."""

    def deep(runtime: SimRuntime) -> None:
        runtime.storage.open_file("store/T/0/000", create=True).sync()
        runtime.storage.sync_dir("store/T/0")

    assert {tuple(cut(seed, deep)) for seed in range(40)} == {(), ("store/T/0/000",)}


def move_a_folder(runtime: SimRuntime) -> None:
    """Its files are on the disk, its new name is not; one of the files is deleted under that name."""
    for name in ("0/a", "0/b", "1/c"):
        on_disk(runtime, f"store/queues/T/{name}", OLD)
    for folder in ("store/queues", "store", "."):
        runtime.storage.sync_dir(folder)
    runtime.storage.rename("store/queues/T", "store/dropped-1")
    runtime.storage.delete("store/dropped-1/0/a")


def test_a_folder_keeps_its_name_or_moves_with_all_that_is_in_it() -> None:
    """Never half of it. A file that was deleted after the move may be gone under either name."""
    found = [set(cut(seed, move_a_folder)) for seed in range(60)]
    kinds_found = set(map(frozenset, found))
    rest = {"0/b", "1/c"}
    assert kinds_found == {
        frozenset(f"{folder}/{name}" for name in rest | more)
        for folder in ("store/queues/T", "store/dropped-1")
        for more in (set[str](), {"0/a"})
    }


def test_a_move_of_a_folder_is_durable_behind_the_syncs_of_both_places() -> None:
    """The folder that it left, and the one that it came to."""

    def move(runtime: SimRuntime) -> None:
        move_a_folder(runtime)
        runtime.storage.sync_dir("store/queues")
        runtime.storage.sync_dir("store")
        runtime.storage.sync_dir("store/dropped-1/0")

    assert {frozenset(cut(seed, move)) for seed in range(20)} == {
        frozenset({"store/dropped-1/0/b", "store/dropped-1/1/c"})
    }


def run(story: Callable[[World, SimRuntime], Coroutine[None, None, None]]) -> None:
    async def scenario(world: World) -> None:
        await story(world, world.host("broker"))

    simulate(scenario)


def test_a_kill_loses_nothing() -> None:
    """What was handed over is there for the next process, synced or not; the dead one's later writes are not."""

    async def story(world: World, first: SimRuntime) -> None:
        file = first.storage.open_file("store/log", create=True)
        file.write_at(0, OLD)
        first.storage.rename("store/log", "store/renamed")
        world.crash("broker")
        file.write_at(0, NEW)
        assert world.host("broker").storage.read_file("store/renamed") == OLD

    run(story)


def write_and_sync(file: StoredFile) -> None:
    file.write_at(0, NEW)
    file.sync()
    file.write_at(0, b"later")


def test_a_sync_takes_its_time() -> None:
    """In a worker pool it returns after `sync_ms`. When the power goes before, it has promised nothing; when the
    process dies before, what its job would have done next has not been done."""

    async def story(world: World, runtime: SimRuntime) -> None:
        runtime.disk.sync_ms = 20
        file = on_disk(runtime, "store/log", OLD)
        done = runtime.new_worker_pool("flush", 1).submit(lambda: write_and_sync(file))
        await world.sleep_ms(19)
        assert not done.done()
        world.crash("broker")
        assert runtime.disk.read("store/log") == NEW
        second = world.host("broker")
        file = second.storage.open_file("store/log")
        done = second.new_worker_pool("flush", 1).submit(lambda: write_and_sync(file))
        await world.sleep_ms(21)
        assert done.done()
        assert second.disk.read("store/log")[:5] == b"later"

    run(story)

    async def lost(world: World) -> bytes:
        runtime = world.host("broker")
        runtime.disk.sync_ms = 20
        file = on_disk(runtime, "store/log", OLD)
        runtime.new_worker_pool("flush", 1).submit(lambda: write_and_sync(file))
        await world.sleep_ms(10)
        world.power_cut("broker")
        return runtime.disk.read("store/log")

    found = [simulate(lost, seed=seed).value for seed in range(40)]
    assert kinds(found, NEW, OLD) == {"whole", "none", "torn"}


def test_a_failed_sync_is_not_made_good_by_the_next() -> None:
    """What was written before a sync that failed may be lost although a later one returned."""

    def fail_once(runtime: SimRuntime) -> None:
        file = on_disk(runtime, "store/log", OLD)
        runtime.disk.fail("sync", errno.EIO, path="log", times=1)
        file.write_at(0, NEW)
        with pytest.raises(OSError, match="Input/output"):
            file.sync()
        file.sync()

    assert {cut(seed, fail_once)["store/log"] == NEW for seed in range(20)} == {True, False}


def test_a_full_disk() -> None:
    """There is room up to the capacity: the write beyond fails with ENOSPC after a first part; space freed is there
    again. Zeros that nobody wrote take no room."""

    async def story(world: World, runtime: SimRuntime) -> None:
        storage, disk = runtime.storage, runtime.disk
        file = storage.open_file("store/log", create=True)
        file.set_size(1 << 30)
        file.write_at(0, bytes(4096))
        disk.capacity_bytes = disk.used_bytes + 8192
        assert storage.space("store").free_bytes == 8192
        with pytest.raises(OSError, match="No space") as full:
            file.write_at(4096, b"x" * 10_000)
        assert full.value.errno == errno.ENOSPC
        assert file.read_at(0, 20_000).count(b"x") == 8192
        file.set_size(4096)
        storage.open_append("store/other").write(b"fits")

    run(story)


def test_calls_fail_as_told() -> None:
    """By their name and a part of the path, so many times or until `heal`."""

    async def story(world: World, runtime: SimRuntime) -> None:
        storage, disk = runtime.storage, runtime.disk
        file = on_disk(runtime, "store/log", OLD)
        disk.fail("read_at", errno.EIO, path="log", times=1)
        disk.fail("open_file", errno.EACCES, path="secret")
        with pytest.raises(OSError, match="store/log") as failed:
            file.read_at(0, 1)
        assert failed.value.errno == errno.EIO
        assert file.read_at(0, 1) == b"o"
        with pytest.raises(PermissionError):
            storage.open_file("store/secret", create=True)
        disk.heal()
        storage.open_file("store/secret", create=True)

    run(story)


def test_a_lock_ends_with_its_process() -> None:
    """One holder at a time, also within a process; who died holds nothing."""

    async def story(world: World, runtime: SimRuntime) -> None:
        lock = runtime.storage.lock("store/lock")
        with pytest.raises(BlockingIOError):
            runtime.storage.lock("store/lock")
        lock.release()
        runtime.storage.lock("store/lock")
        world.crash("broker")
        world.host("broker").storage.lock("store/lock")

    run(story)


def test_readers_hold_a_lock_together() -> None:
    """Nobody else does meanwhile, nor they while one holds it alone; nothing is made for them."""

    async def story(_: World, runtime: SimRuntime) -> None:
        with pytest.raises(FileNotFoundError):
            runtime.storage.lock_shared("store/lock")
        runtime.storage.lock("store/lock").release()
        readers = [runtime.storage.lock_shared("store/lock") for _ in range(2)]
        for reader in readers:
            with pytest.raises(BlockingIOError):
                runtime.storage.lock("store/lock")
            reader.release()
        runtime.storage.lock("store/lock")
        with pytest.raises(BlockingIOError):
            runtime.storage.lock_shared("store/lock")

    run(story)


def test_names_are_those_of_a_file_system() -> None:
    """Folders are made with their files and listed; what is not there, no folder, or not empty is told by its error."""

    async def story(world: World, runtime: SimRuntime) -> None:
        storage: Storage = runtime.storage
        for path in ("/d/b", "/d/a/x"):
            storage.open_file(path, create=True).close()
        assert (storage.list_dir("/d"), storage.list_dir("/")) == (["a", "b"], ["d"])
        wrong: list[tuple[type[OSError], Callable[[], object]]] = [
            (FileNotFoundError, lambda: storage.open_file("/d/c")),
            (FileNotFoundError, lambda: storage.list_dir("/e")),
            (NotADirectoryError, lambda: storage.list_dir("/d/b")),
            (IsADirectoryError, lambda: storage.read_file("/d/a")),
            (OSError, lambda: storage.delete("/d/a")),
            (NotADirectoryError, lambda: storage.open_file("/d/b/c", create=True)),
            (FileNotFoundError, lambda: storage.rename("/d/c", "/d/e")),
            (NotADirectoryError, lambda: storage.rename("/d/a", "/d/b")),
            (OSError, lambda: storage.rename("/d/a", "/d/a/y")),
            (OSError, lambda: storage.rename("/d/a", "/d")),
        ]
        for error, call in wrong:
            with pytest.raises(error):
                call()
        storage.rename("/d/a", "/d/f")
        assert (storage.list_dir("/d"), storage.list_dir("/d/f")) == (["b", "f"], ["x"])
        storage.delete("/d/f/x")
        storage.delete("/d/f")
        assert storage.list_dir("/d") == ["b"]

    run(story)
