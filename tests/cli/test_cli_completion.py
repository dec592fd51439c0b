"""`lockstep completion`: what the Tab key offers in bash, zsh and fish, for all programs."""

import os
import shutil
import subprocess

import pytest

from lockstep.broker.options import option_helps
from tests.commands import SCRIPTS, TIMEOUT_S, Lockstep
from tests.rows import each_row

NOWHERE = Lockstep("127.0.0.1:1")
PROGRAMS = ("lockstep", "lockstep-broker", "lockstep-sim", "lockstep-pipeline")
END = "--end--"  # of what a line is offered
SHELLS = ("bash", "zsh", "fish")


def in_shell(shell: str, script: str) -> list[str]:
    """The lines that a shell prints; skips where the machine has no such shell."""
    if shutil.which(shell) is None:
        pytest.skip(f"needs {shell}")
    environment = {**NOWHERE.environment, "PATH": f"{SCRIPTS}:{os.environ['PATH']}"}
    command = [shell, *(["-f"] if shell == "zsh" else ["--norc"] if shell == "bash" else ["--no-config"]), "-c", script]
    done = subprocess.run(
        command,
        env=environment,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.splitlines()


def offered_by_bash(*lines: str) -> list[list[str]]:
    """What is offered at the end of each line."""
    script = "source <(lockstep completion bash)\n"
    for line in lines:
        words = line.split(" ")
        function = f"_{words[0].replace('-', '_')}_completion"
        quoted = " ".join(f"'{word}'" for word in words)
        script += f"COMPREPLY=(); COMP_WORDS=({quoted}); COMP_CWORD={len(words) - 1}; {function} {words[0]}\n"
        script += f"printf '%s\\n' \"${{COMPREPLY[@]}}\" {END}\n"
    return in_parts(in_shell("bash", script))


def offered_by_fish(*lines: str) -> list[list[str]]:
    asked = "".join(f"complete -C '{line}'; echo {END}\n" for line in lines)
    found = in_shell("fish", f"lockstep completion fish | source\n{asked}")
    return in_parts([offered.partition("\t")[0] for offered in found])


def in_parts(lines: list[str]) -> list[list[str]]:
    """What stands before each END."""
    parts: list[list[str]] = [[]]
    for line in lines:
        if line == END:
            parts.append([])
        else:
            parts[-1].append(line)
    return parts[:-1]


CASES = [
    ("lockstep gro", "group"),
    ("lockstep group w", "watch"),
    ("lockstep consume --exit", "--exit-at-end"),
    ("lockstep completion ", "zsh"),
    ("lockstep-broker --lock-mo", "--lock-mode"),
    ("lockstep-broker --role name", "name-server"),
    ("lockstep-sim art", "article"),
    ("lockstep-pipeline pub", "publish"),
]


def check_bash(*cases: tuple[str, str]) -> None:
    """Nothing is offered that does not begin as the word does."""
    with each_row() as row:
        for (line, offered), found in zip(cases, offered_by_bash(*[line for line, _ in cases]), strict=True):
            with row(line):
                assert offered in found
                assert all(word.startswith(line.rpartition(" ")[2]) for word in found)


def test_bash_offers_commands() -> None:
    """One of the table above, for a quick run."""
    check_bash(CASES[0])


@pytest.mark.long
def test_bash_offers_commands_options_and_choices() -> None:
    """Of each program."""
    check_bash(*CASES[1:])


@pytest.mark.long
def test_fish_offers_the_same() -> None:
    """Asked as fish itself asks."""
    with each_row() as row:
        for (line, offered), found in zip(CASES, offered_by_fish(*[line for line, _ in CASES]), strict=True):
            with row(line):
                assert offered in found


@pytest.mark.long
def test_zsh_reads_its_script() -> None:
    """After compinit each program has its function."""
    script = "autoload -U compinit; compinit -D -u; source <(lockstep completion zsh); "
    names = " ".join(f"$_comps[{program}]" for program in PROGRAMS)
    (line,) = in_shell("zsh", script + f"print {names}")
    assert line.split() == [f"_{program.replace('-', '_')}_completion" for program in PROGRAMS]


@pytest.mark.parametrize("shell", SHELLS)
def test_each_script_has_all_programs_and_the_brokers_options(shell: str) -> None:
    """Each option of `lockstep-broker --help`."""
    script = NOWHERE("completion", shell).out
    assert all(program in script for program in PROGRAMS)
    names = [option.name for option in option_helps()]
    assert {"--data-dir", "--lock-mode", "--topic", "-D"} < set(names)
    helped = NOWHERE.run("lockstep-broker", "--help").out
    for name in names:
        assert name in helped
        plain = name.lstrip("-") if shell == "fish" else name
        assert plain in script


def test_an_unknown_shell_is_refused() -> None:
    """The allowed ones are named."""
    result = NOWHERE("completion", "cmd")
    assert (result.status, result.out) == (2, "")
    assert "'cmd' is not one of 'bash', 'zsh', 'fish'" in result.err
