"""Options of commands that run a story in another way: its setup, its faults, settings of its hosts."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Annotated, Any, Final

import typer

from lockstep.simulation.lab.faults.table import FAULTS
from lockstep.simulation.lab.parameters import PARAMETERS

__all__ = ["BrokerSettings", "ConsumerSettings", "changes_of", "with_setup_and_faults"]

_SETTING: Final = "a setting, by its name in docs/settings.md, of"
ConsumerSettings = Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help=f"{_SETTING} a consumer")]
BrokerSettings = Annotated[list[str] | None, typer.Option(metavar="NAME=VALUE", help=f"{_SETTING} a broker")]


@dataclass(frozen=True)
class _Setup:
    """What a story may have in another way; None: as it is written."""

    consumers: Annotated[int | None, typer.Option(min=1, help="named c1, c2, ...")] = None
    queues: Annotated[int | None, typer.Option(min=1, help="of the topic at each broker")] = None
    brokers: Annotated[int | None, typer.Option(min=1, help="named broker, broker2, ...")] = None
    name_servers: Annotated[int | None, typer.Option(min=0, help="named names1, ...; 0: the broker carries it")] = None
    rate: Annotated[float | None, typer.Option(min=0, help="messages a second")] = None
    keys: Annotated[int | None, typer.Option(min=1, help="sharding keys")] = None
    retry_sends: Annotated[bool | None, typer.Option(help="make a failed send again until it is stored")] = None
    work: Annotated[str | None, typer.Option(metavar="500ms", help="of a call; not of your async listener")] = None
    life: Annotated[str | None, typer.Option("--for", metavar="3m", help="until all is healed")] = None
    store: Annotated[str | None, typer.Option(help="memory; async or sync: files")] = None
    strategy: Annotated[str | None, typer.Option(help="AVG, AVG_BY_CIRCLE, CONSISTENT_HASH or STICKY")] = None


def with_setup_and_faults(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command an option for each field of _Setup, each parameter of a story and each fault of the table."""
    own = inspect.signature(command)
    setup = [one.replace(kind=inspect.Parameter.KEYWORD_ONLY) for one in inspect.signature(_Setup).parameters.values()]
    faults = [
        inspect.Parameter(
            fault.name.replace("-", "_"),
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                list[str] | None,
                typer.Option(f"--{fault.name}", metavar=fault.example, help=fault.help, rich_help_panel="Faults"),
            ],
        )
        for fault in FAULTS.values()
    ]
    parameters = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=None,
            annotation=Annotated[
                str | None if one.metavar else bool | None,
                typer.Option(metavar=one.metavar or None, help=one.help, rich_help_panel="Stories of operators"),
            ],
        )
        for name, one in PARAMETERS.items()
    ]
    kept = [one for one in own.parameters.values() if one.kind is not inspect.Parameter.VAR_KEYWORD]
    added = [*setup, *parameters, *faults]
    command.__signature__ = own.replace(parameters=[*kept, *added])  # type: ignore[attr-defined]  # typer reads it
    command.__annotations__ |= {one.name: one.annotation for one in added}
    return command


def changes_of(given: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """What the added options of a command were given: arguments of Setup, and faults as texts."""
    names = [*(field.name for field in fields(_Setup)), *PARAMETERS]
    setup = {name: given[name] for name in names if given.get(name) is not None}
    faults = {name: texts for name, texts in given.items() if name not in names}
    return setup, [f"{name.replace('_', '-')} {text}" for name, texts in faults.items() for text in texts or ()]
