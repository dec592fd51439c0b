"""What a user's file has: `shop.py:consumer` is an application, a story, or a test of order."""

import inspect
import sys
from collections.abc import Callable
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from lockstep.client import Message
from lockstep.simulation.lab.user.app import AppError, UserApp, app_of
from lockstep.simulation.lab.user.story import ALL_FAULTS, Story, experiment
from lockstep.simulation.lab.user.story_cluster import StoryCluster

__all__ = ["UserFileError", "import_name", "more_folders", "story_of_file", "user_modules"]


class UserFileError(Exception):
    """The text says what is wrong with a file, in one line."""


def story_of_file(reference: str) -> Story:
    """The story of "FILE.py:NAME".

    The file runs anew in each run: what it keeps at its top level is as a database that all consumers share. Files that
    it imports are loaded once. A function `message(number)` in it makes the messages.

    Raises UserFileError.
    """
    path_text, _, name = reference.partition(".py:")
    path = Path(f"{path_text.removesuffix('.py')}.py")
    module = _load(path)  # outside of a simulation, with all that it imports
    found = _named(module, name, path)
    inner = getattr(found, "story", found)  # a test of order has its story
    if isinstance(inner, Story):
        return inner
    try:
        app_of(found)
    except AppError as error:
        raise UserFileError(f"{reference}: {error}") from None

    def app() -> UserApp:
        fresh = _load(path)
        return app_of(_named(fresh, name, path), message=_message_of(fresh))

    @experiment(name=reference, swarm=ALL_FAULTS, queues=4, rate=2, store="sync", app=app, modules=user_modules(path))
    async def story(cluster: StoryCluster) -> None:
        await cluster.start()

    return story


def _message_of(module: ModuleType) -> Callable[..., Message] | None:
    return getattr(module, "message", None)


def _load(path: Path) -> ModuleType:
    if not path.is_file():
        raise UserFileError(f"there is no file {path}")
    package = _package_of(path)
    for folder in (str(Path.cwd()), str(_import_folder(path))):  # as `python -m pytest` has them
        if folder not in sys.path:
            sys.path.insert(0, folder)
    name = import_name(path) if package else f"lockstep_user_{path.stem}"
    spec = spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = module_from_spec(spec)
    try:
        if package:
            import_module(package)
        spec.loader.exec_module(module)
    except SyntaxError as error:
        raise UserFileError(f"{path}:{error.lineno}: {error.msg}") from None
    except Exception as error:
        raise UserFileError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
    return module


def _named(module: ModuleType, name: str, path: Path) -> Any:
    if not name or not hasattr(module, name):
        own = [key for key, value in vars(module).items() if _is_own(module, value)]
        names = f"it has {', '.join(own)}" if own else "it has no function"
        wrong = f"{path} has no {name!r}" if name else f"{path}: which function? Write {path}:NAME"
        raise UserFileError(f"{wrong}; {names}")
    return getattr(module, name)


def _is_own(module: ModuleType, value: object) -> bool:
    if isinstance(value, Story):
        value = value.body
    return (inspect.isfunction(value) or inspect.isclass(value)) and value.__module__ == module.__name__


def import_name(path: Path) -> str:
    """What a file is called in an import statement of a file beside it."""
    package = _package_of(path)
    return f"{package}.{path.stem}" if package else path.stem


def _package_of(path: Path) -> str:
    """ "tests.shop" for a file of that package; empty: it is in none."""
    folder = path.resolve().parent
    return ".".join(folder.relative_to(_import_folder(path)).parts)


def _import_folder(path: Path) -> Path:
    """From which a file is imported: the first folder above it that is no package."""
    folder = path.resolve().parent
    while (folder / "__init__.py").is_file():
        folder = folder.parent
    return folder


def more_folders(path: Path) -> list[str]:
    """The folders below the current one from which this process imports, and from which a command would not.

    Args:
        path: the file of the command.
    """
    here = Path.cwd()
    known = {here, _import_folder(path)}
    found = [folder for text in sys.path if (folder := Path(text).resolve()).is_relative_to(here)]
    return [
        str(folder.relative_to(here))
        for folder in dict.fromkeys(found)
        if folder not in known and folder.is_dir() and "site-packages" not in folder.parts
    ]


def user_modules(path: Path) -> tuple[str, ...]:
    """The names of the user's loaded modules: in the folder of a file, or in the current one, and not installed."""
    folders = {path.resolve().parent, Path.cwd()}
    return tuple(
        name
        for name, module in list(sys.modules.items())
        if (file := getattr(module, "__file__", None)) is not None
        and not folders.isdisjoint(Path(file).parents)
        and "site-packages" not in Path(file).parts
        and not name.startswith("lockstep.")
    )
