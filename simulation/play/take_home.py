"""What a person takes home from a played plan: the command that repeats it, its file, a test for pytest, a picture.

Each of them makes the run that was played, to the same hash of its trace. What could not is not given.
"""

import inspect
import shlex
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from enum import Enum
from operator import attrgetter
from pathlib import Path
from typing import Any, Final, NamedTuple

from lockstep.simulation.lab.durations import duration_text
from lockstep.simulation.lab.experiment import Experiment, FaultEvent, Plan
from lockstep.simulation.lab.faults.table import FAULTS
from lockstep.simulation.lab.faults.text import fault_text
from lockstep.simulation.lab.parameters import parameter_text
from lockstep.simulation.lab.registry import experiment_names, find_experiment
from lockstep.simulation.lab.setup import Setup
from lockstep.simulation.lab.user.file import import_name
from lockstep.simulation.lab.user.story import Story, StoryPlan
from lockstep.simulation.search.plan_file import plan_text
from lockstep.simulation.timeline.output import page_of
from lockstep.simulation.timeline.watch import watched_run

__all__ = ["TakenHome", "take_home", "timeline_of_plans"]

_SETTINGS: Final = ("consumer", "broker")
_DURATIONS: Final = {"work_ms": "work", "life_ms": "life"}
# A test states these, as its defaults are others than those of a story.
_ALWAYS: Final = ("lock_mode", "consumers", "queues", "rate", "work_ms", "life_ms", "store")
_TEST_FILE: Final = "test_taken_home.py"
_START: Final = "cluster.start()"
_TEST: Final = '''\
"""{about}.

{how} A broken order or a lost message fails it.
"""

{imports}


@order_test(
{arguments}
)
async def test_taken_home(cluster):
{body}
'''
_LISTENER: Final = """\
async def listen(messages, context):  # your work instead of this sleep, which is on virtual time
    await asyncio.sleep({seconds})

"""


class TakenHome(NamedTuple):
    """Args:
    command: for a shell, beside a file `plan_file` with the text `plan`, which some commands read.
    test: the text of `test_file` for pytest; empty: the run has no place for a listener.
    """

    command: str
    plan_file: str
    plan: str
    test_file: str
    test: str


def take_home(name: str, plan: Plan) -> TakenHome:
    """What repeats a plan of the experiment with this name. Raises UnknownExperimentError."""
    experiment = find_experiment(name)
    plan_file = f"{Path(name.partition('.py:')[0]).name}-{plan.seed}.plan"
    words = _run_words(name, experiment, plan) or ["lockstep-sim", "replay", "--plan", plan_file]
    test = ""
    if isinstance(experiment, Story) and isinstance(plan, StoryPlan):
        test = _test_text(name, experiment, plan)
    return TakenHome(shlex.join(words), plan_file, f"{plan_text(name, plan, '', indent=2)}\n", _TEST_FILE, test)


def timeline_of_plans(name: str, plans: Sequence[Plan]) -> str:
    """The page with the timelines of plans side by side. It runs them, in this process."""
    experiment = find_experiment(name)
    runs = [watched_run(experiment, plan, str(plan.lock_mode)) for plan in plans]
    return page_of(f"{name}, seed {plans[0].seed}", runs, experiment.summary)


# The command -------------------------------------------------------------------------------------------------


def _run_words(name: str, experiment: Experiment[Any], plan: Plan) -> list[str]:
    """The words of `lockstep-sim run` that make this plan; empty: none do."""
    words = ["lockstep-sim", "run", name, "--seed", str(plan.seed), "--lock-mode", str(plan.lock_mode)]
    if experiment.draw(plan.seed, plan.lock_mode) == plan:
        return words
    if not isinstance(experiment, Story) or not isinstance(plan, StoryPlan):
        return []
    base = experiment.setup
    texts = {whose: _setting_texts(getattr(base, whose), getattr(plan, whose)) for whose in _SETTINGS}
    setup = {key: value for key, value in _plain(plan) if value != getattr(base, key)}
    made = experiment.with_setup(setup, _as_options(plan.events)).with_settings(**texts)
    if made.draw(plan.seed, plan.lock_mode) != plan:
        return []
    for key, value in setup.items():
        if key == "parameters":
            words += _parameter_words({name: one for name, one in value.items() if one != base.parameters[name]})
            continue
        option = key.removesuffix("_ms").replace("life", "for").replace("_", "-")
        if isinstance(value, bool):
            words.append(f"--{option}" if value else f"--no-{option}")
        else:
            words += [f"--{option}", duration_text(value) if key in _DURATIONS else str(value)]
    words += [word for whose, some in texts.items() for text in some for word in (f"--{whose}", text)]
    for event in plan.events:
        fault, _, rest = fault_text(event).partition(" ")
        words += [f"--{fault}", rest]
    return words


def _parameter_words(parameters: Mapping[str, Any]) -> Iterator[str]:
    for name, value in parameters.items():
        option = name.replace("_", "-")
        if isinstance(value, bool):
            yield f"--{option}" if value else f"--no-{option}"
        else:
            yield from (f"--{option}", parameter_text(name, value))


def _plain(plan: StoryPlan) -> Iterator[tuple[str, Any]]:
    """The fields of a setup but for the lock mode and for settings."""
    for field in fields(Setup):
        if field.name not in (*_SETTINGS, "lock_mode"):
            yield field.name, getattr(plan, field.name)


def _setting_texts(base: Mapping[str, Any], settings: Mapping[str, Any]) -> list[str]:
    """NAME=VALUE for the settings that a story does not have by itself."""
    return [f"{key}={_setting(value)}" for key, value in settings.items() if key not in base or value != base[key]]


def _setting(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return value.name if isinstance(value, Enum) else str(value)


def _as_options(events: Sequence[FaultEvent]) -> list[FaultEvent]:
    """In the order that `run` gives them: by time, and at one instant by the order of its options."""
    options = list(FAULTS)
    return sorted(sorted(events, key=lambda event: options.index(event.fault)), key=attrgetter("at_ms"))


# The test ----------------------------------------------------------------------------------------------------


def _test_text(name: str, story: Story, plan: StoryPlan) -> str:
    settings = [value for whose in _SETTINGS for value in getattr(plan, whose).values()]
    if not all(isinstance(value, bool | int | float | str | None) for value in settings):
        return ""  # a setting that is no text, of a story in Python
    arguments = {"seeds": 1, "first_seed": plan.seed, **_test_setup(plan)}
    is_file = ".py:" in name
    if is_file and story.app is not None:
        path, attribute = Path(name.partition(".py:")[0] + ".py"), name.rpartition(":")[2]
        names = attribute
        if story.app().message is not None:
            names, arguments["message"] = f"{attribute}, message", _Code("message")
        imports = f"from {import_name(path)} import {names}\n\nfrom lockstep.simulation import order_test"
        body, how = f"await cluster.start({attribute})", f"Put it beside {path.name}, and run it with pytest."
    elif name in experiment_names() and not plan.parameters:  # an operator's acts are no text of a test
        imports = "import asyncio\n\nfrom lockstep.simulation import order_test"
        body = _LISTENER.format(seconds=plan.work_ms / 1000)
        body += _body_of(story).replace(_START, "cluster.start(listen)")
        how = "Run it with pytest, and put your own listener in."
    else:
        return ""  # a user's story is a test already
    return _TEST.format(
        about=f"{name}, seed {plan.seed}, {plan.lock_mode} locks, as it was played",
        how=how,
        imports=imports,
        arguments=textwrap.indent("\n".join(f"{key}={value!r}," for key, value in arguments.items()), "    "),
        body=textwrap.indent(body, "    "),
    )


class _Code(str):
    """Source text, which stands without quotes."""

    __slots__ = ()
    __repr__ = str.__str__


def _test_setup(plan: StoryPlan) -> dict[str, Any]:
    """The arguments of `order_test` for a plan."""
    plain = Setup()
    found: dict[str, Any] = {}
    for field in fields(Setup):
        value = getattr(plan, field.name)
        if field.name in _ALWAYS or value != getattr(plain, field.name):
            value = duration_text(value) if field.name in _DURATIONS else value
            found[_DURATIONS.get(field.name, field.name)] = str(value) if isinstance(value, Enum) else value
    events = [fault_text(event) for event in plan.events]
    if plan.strict:
        found["strict"] = True
    return found | ({"events": events} if events else {"swarm": []})


def _body_of(story: Story) -> str:
    """The source of a story without its head and its docstring."""
    lines = textwrap.dedent(inspect.getsource(story.body)).splitlines()
    first = next(number for number, line in enumerate(lines) if line.startswith("async def"))
    return textwrap.dedent("\n".join(lines[first + 2 :]))
