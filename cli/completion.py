"""`lockstep completion`: a shell script that completes the commands and options of all programs.

Programs made with typer are asked at each Tab, by an environment variable. The broker's options are in the script: it
has no commands, and must start fast.
"""

from collections.abc import Callable, Sequence
from typing import Final

from lockstep.broker.options import OptionHelp, option_helps
from lockstep.cli.options import Shell
from lockstep.cli.output import write_out

__all__ = ["PROGRAMS", "print_script"]

PROGRAMS: Final = ("lockstep", "lockstep-sim", "lockstep-pipeline")  # with typer
_BROKER: Final = "lockstep-broker"


def print_script(shell: Shell) -> None:
    program, broker = _SCRIPTS[shell]
    parts = [_HEAD[shell], *[program(name) for name in PROGRAMS], broker(option_helps())]
    write_out("\n".join(parts).encode())


def _function(program: str) -> str:
    return f"_{program.replace('-', '_')}_completion"


def _variable(program: str) -> str:
    return f"_{program.replace('-', '_').upper()}_COMPLETE"


# bash --------------------------------------------------------------------------------------------------------


def _bash(program: str) -> str:
    return f"""{_function(program)}() {{
    local IFS=$'\\n'
    COMPREPLY=( $(env COMP_WORDS="${{COMP_WORDS[*]}}" COMP_CWORD=$COMP_CWORD \\
        {_variable(program)}=complete_bash "$1" 2> /dev/null) )
}}
complete -o default -F {_function(program)} {program}
"""


def _bash_broker(options: Sequence[OptionHelp]) -> str:
    lines = []
    for option in options:
        if option.choices:
            lines.append(f'        {option.name}) words="{" ".join(option.choices)}" ;;')
        elif option.value is not None:  # nothing but the shell's own names of files
            lines.append(f"        {option.name}) return ;;")
    names = " ".join(option.name for option in options)
    cases = "\n".join(lines)
    return f"""{_function(_BROKER)}() {{
    local words="{names}"
    COMPREPLY=()
    case "${{COMP_WORDS[COMP_CWORD-1]}}" in
{cases}
    esac
    COMPREPLY=( $(compgen -W "$words" -- "${{COMP_WORDS[COMP_CWORD]}}") )
}}
complete -o default -F {_function(_BROKER)} {_BROKER}
"""


# zsh ---------------------------------------------------------------------------------------------------------


def _zsh(program: str) -> str:
    return f"""{_function(program)}() {{
    eval $(_TYPER_COMPLETE_ARGS="${{words[1,$CURRENT]}}" {_variable(program)}=complete_zsh {program} 2> /dev/null)
}}
compdef {_function(program)} {program}
"""


def _zsh_broker(options: Sequence[OptionHelp]) -> str:
    specs = []
    for option in options:
        text = option.help.replace("[", "(").replace("]", ")").replace(":", " -").replace("'", "")
        action = f"({' '.join(option.choices)})" if option.choices else "_files" if option.is_path else " "
        value = "" if option.value is None else f":{option.value.replace(':', ' ')}:{action}"
        repeated = "*" if option.repeats else ""
        specs.append(f"        '{repeated}{option.name}[{text}]{value}'")
    lines = " \\\n".join(specs)
    return f"""{_function(_BROKER)}() {{
    _arguments \\
{lines}
}}
compdef {_function(_BROKER)} {_BROKER}
"""


# fish --------------------------------------------------------------------------------------------------------


def _fish(program: str) -> str:
    ask = f"env {_variable(program)}=complete_fish _TYPER_COMPLETE_ARGS=(commandline -cp)"
    arguments, condition = (f"{ask} _TYPER_COMPLETE_FISH_ACTION={what} {program}" for what in ("get-args", "is-args"))
    return f'complete --command {program} --no-files --arguments "({arguments})" --condition "{condition}"\n'


def _fish_broker(options: Sequence[OptionHelp]) -> str:
    lines = [f"complete --command {_BROKER} --no-files"]
    for option in options:
        words = [f"complete --command {_BROKER}"]
        is_long = option.name.startswith("--")
        words.append(f"--long-option {option.name[2:]}" if is_long else f"--short-option {option.name[1:]}")
        if option.value is not None:
            words.append("--require-parameter")
        if option.choices:
            words.append(f"--no-files --arguments '{' '.join(option.choices)}'")
        elif option.is_path:
            words.append("--force-files")
        words.append(f"--description '{option.help.replace(chr(39), '')}'")
        lines.append(" ".join(words))
    return "\n".join(lines) + "\n"


_SCRIPTS: Final[dict[Shell, tuple[Callable[[str], str], Callable[[Sequence[OptionHelp]], str]]]] = {
    Shell.BASH: (_bash, _bash_broker),
    Shell.ZSH: (_zsh, _zsh_broker),
    Shell.FISH: (_fish, _fish_broker),
}
_HEAD: Final = {
    Shell.BASH: "# In ~/.bashrc: source <(lockstep completion bash)\n",
    Shell.ZSH: "# In ~/.zshrc, after compinit: source <(lockstep completion zsh)\n",
    Shell.FISH: "# In ~/.config/fish/config.fish: lockstep completion fish | source\n",
}
