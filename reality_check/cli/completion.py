"""Completion in shells: ``reality-check completion SHELL`` prints what a shell is to run.

The shell asks this program at each press of the key, so what is offered is always what exists:
commands and options as the parser has them, experiments, data sets, models and protocols of the
package and of the current folder. Nothing heavy is imported for that.
"""

from __future__ import annotations

import argparse
import re
import shlex
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

from reality_check.cli.parsing import Commands, add_command
from reality_check.utils.config_files import config_files, paper_files
from reality_check.utils.errors import UsageError
from reality_check.utils.exit_status import DONE

_DETAILS = """\
Completes commands, options, experiments, output folders and names of data sets,
models and protocols with the Tab key. Put the line of your shell where it
is read at each start:

  bash   ~/.bashrc                    eval "$(reality-check completion bash)"
  zsh    ~/.zshrc, after compinit     eval "$(reality-check completion zsh)"
  fish   ~/.config/fish/config.fish   reality-check completion fish | source
"""

#: What each shell runs; it gives the line, or the words, up to the cursor.
SCRIPTS = {
    "bash": """\
_reality_check() {
    local found
    COMPREPLY=()
    while IFS= read -r found; do
        COMPREPLY+=("$found")
    done < <(reality-check completion bash --line "${COMP_LINE:0:COMP_POINT}" 2>/dev/null)
    if [[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *[=/] ]]; then
        compopt -o nospace
    fi
}
complete -F _reality_check reality-check
""",
    "zsh": """\
_reality_check() {
    local -a found open whole
    local given="${(pj:\\n:)${(@Q)words[1,CURRENT]}}"
    found=("${(@f)$(reality-check completion zsh --words "$given" 2>/dev/null)}")
    open=(${(M)found:#*[=/]})
    whole=(${found:#*[=/]})
    compadd -S '' -a open
    compadd -a whole
}
compdef _reality_check reality-check
""",
    "fish": """\
function __reality_check
    set -l given (commandline -opc) (commandline -ct)
    reality-check completion fish --words (string join \\n -- $given | string collect) 2>/dev/null
end
complete -c reality-check -f -a '(__reality_check)'
""",
}

#: What `reality-check show` lists.
LISTINGS = (
    *("datasets", "models", "methods", "protocols", "experiments", "papers"),
    *("losses", "trunks", "miners", "distances", "reducers", "regularizers", "optimizers"),
    *("figures", "schema"),
)
#: Keys of an experiment that are changed most, with what may stand behind them.
_OVERRIDES: dict[str, Callable[[], Iterable[str]]] = {
    "dataset": lambda: config_files("datasets"),
    "model": lambda: config_files("models"),
    "protocol": lambda: config_files("protocols"),
    "protocol.search.trials": tuple,
    "protocol.reproductions": tuple,
    "seed": tuple,
    "device": lambda: ("auto", "cpu", "cuda", "mps"),
}
#: What a shell written for words treats as their end, and bash as the start of a new one.
_BREAKS = re.compile(r"^.*[=:]")
_SPECIAL = re.compile(r"([^\w@%+=:,./~-])")


def add_parser(commands: Commands) -> None:
    """Add the command."""
    title = "print what makes a shell complete commands"
    command = add_command(commands, "completion", run, title, _DETAILS)
    command.add_argument("shell", metavar="SHELL", help=", ".join(SCRIPTS))
    command.add_argument("--line", help=argparse.SUPPRESS)
    command.add_argument("--words", help=argparse.SUPPRESS)


def run(options: argparse.Namespace) -> int:
    """Print the script of a shell, or what it may offer; return the exit status."""
    if options.shell not in SCRIPTS:
        raise UsageError(f"there is no completion for {options.shell!r}; write {_or(SCRIPTS)}.")
    if options.line is None and options.words is None:
        print(SCRIPTS[options.shell], end="")
        return DONE
    words = options.words.split("\n") if options.line is None else _split(options.line)
    for word in complete(options.program, words[1:]):
        print(_for_bash(word, words[-1]) if options.shell == "bash" else word)
    return DONE


def complete(parser: argparse.ArgumentParser, words: Sequence[str]) -> list[str]:
    """What the last word may become.

    Args:
        parser: of the whole command line.
        words: what stands behind ``reality-check`` up to the cursor; the last one is unfinished.

    Returns:
        Whole words. Those that end in ``=`` or ``/`` may be continued.
    """
    *before, last = words or [""]
    commands = _commands(parser)
    name = next((word for word in before if word in commands), None)
    if name is None:
        offered: Iterable[str] = [*commands, *_options(parser)]
    else:
        offered = _offered(commands[name], before[before.index(name) + 1 :], last)
    return sorted({word for word in offered if word.startswith(last)})


def _offered(command: argparse.ArgumentParser, before: Sequence[str], last: str) -> Iterable[str]:
    options = {text: action for action in command._actions for text in action.option_strings}
    places = [action for action in command._actions if not action.option_strings]
    count, waiting = 0, None
    for word in before:
        if waiting is not None:
            waiting = None
        elif word in options:
            waiting = options[word] if options[word].nargs != 0 else None
        else:
            count += 1
    if waiting is not None:
        return _values(waiting, last)
    if last.startswith("-"):
        return [text for text in _options(command) if text not in before]
    if not places:
        return []
    repeated = places[-1].nargs in ("*", "+")
    if count >= len(places) and not repeated:
        return []
    return _values(places[min(count, len(places) - 1)], last)


def _values(action: argparse.Action, last: str) -> Iterable[str]:
    """What may stand where the parser's help has this word in capitals."""
    if action.choices is not None:
        return map(str, action.choices)
    offer = {
        "EXPERIMENT": lambda: [*_experiments(), *_paths(last, ".yaml")],
        "WHAT": lambda: [*LISTINGS, *_experiments(), *_paths(last, ".yaml")],
        "NAME": _figures,
        "DIR": lambda: _paths(last),
        "FILE": lambda: _paths(last, ".yaml"),
        "SHELL": lambda: SCRIPTS,
        "KEY=VALUE": lambda: _overrides(last),
    }.get(str(action.metavar))
    if "|" in str(action.metavar):
        return str(action.metavar).split("|")
    return offer() if offer else []


def _experiments() -> Iterable[str]:
    return [*config_files("experiments"), *paper_files()]


def _figures() -> Iterable[str]:
    folder = Path(__file__).parents[1] / "papers" / "figures"
    return [file.stem for file in folder.glob("*.py") if not file.name.startswith("_")]


def _overrides(last: str) -> Iterable[str]:
    key, equals, _ = last.partition("=")
    if not equals:
        return [f"{name}=" for name in _OVERRIDES]
    return [f"{key}={value}" for value in _OVERRIDES.get(key, tuple)()]


def _paths(last: str, ending: str | None = None) -> list[str]:
    """Folders, and files of an ending, that begin with what is there of a path."""
    folder, _, start = last.rpartition("/")
    shown = f"{folder}/" if "/" in last else ""
    try:
        entries = list(Path(shown or ".").expanduser().iterdir())
        return [
            f"{shown}{path.name}{'/' if path.is_dir() else ''}"
            for path in entries
            if (not path.name.startswith(".") or start.startswith("."))
            and (path.is_dir() or (ending is not None and path.name.endswith(ending)))
        ]
    except (OSError, RuntimeError):  # the latter: ~ of a user that is not there
        return []


def _commands(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    subparsers = [a for a in parser._actions if isinstance(a, argparse._SubParsersAction)]
    return dict(subparsers[0].choices) if subparsers else {}


def _options(parser: argparse.ArgumentParser) -> list[str]:
    return [
        text
        for action in parser._actions
        for text in action.option_strings
        if text.startswith("--") and action.help != argparse.SUPPRESS
    ]


def _split(line: str) -> list[str]:
    """The words of an unfinished line; an open quote is left out."""
    for closing in ("", '"', "'"):
        try:
            words = shlex.split(line + closing)
        except ValueError:
            continue
        return [*words, ""] if not closing and line[-1:].isspace() else words
    return [*line.split(" ")]


def _for_bash(word: str, last: str) -> str:
    """The part that bash replaces, which begins behind the last = or :, written for its parser."""
    begun = _BREAKS.match(last)
    return _SPECIAL.sub(r"\\\1", word[begun.end() :] if begun else word)


def _or(words: Iterable[str]) -> str:
    return " or ".join(words)
