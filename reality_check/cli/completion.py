"""Completion in shells: ``reality-check completion SHELL`` prints what a shell is to run.

The shell asks this program at each press of the key, by way of argcomplete, so what is offered is
always what exists: commands and options as the parser has them, experiments, data sets, models and
protocols of the package and of the current folder. Nothing heavy is imported for that.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Callable, Iterable
from typing import Any

from reality_check.cli.parsing import Commands, add_command
from reality_check.utils.config_files import config_files, paper_files
from reality_check.utils.errors import UsageError
from reality_check.utils.exit_status import DONE

_DETAILS = """\
With it, the Tab key completes commands, options, experiments, output folders,
and names of data sets, models and protocols. Add your shell's line to its
startup file:

  bash   ~/.bashrc                    eval "$(reality-check completion bash)"
  zsh    ~/.zshrc, after compinit     eval "$(reality-check completion zsh)"
  fish   ~/.config/fish/config.fish   reality-check completion fish | source
"""
SHELLS = ("bash", "zsh", "fish")
#: What `reality-check show` lists.
LISTINGS = (
    *("datasets", "models", "methods", "protocols", "experiments", "papers"),
    *("losses", "trunks", "miners", "distances", "reducers", "regularizers", "optimizers"),
    "schema",
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


def add_parser(commands: Commands) -> None:
    title = "print the tab-completion script for a shell"
    command = add_command(commands, "completion", run, title, _DETAILS)
    command.add_argument("shell", metavar="SHELL", help=", ".join(SHELLS))


def run(options: argparse.Namespace) -> int:
    import argcomplete

    if options.shell not in SHELLS:
        raise UsageError(f"there is no completion for {options.shell!r}; write bash, zsh or fish.")
    print(argcomplete.shellcode(["reality-check"], shell=options.shell))
    return DONE


def answer(parser: argparse.ArgumentParser, **options: Any) -> None:
    """Tell the shell what the last word of its line may become, and end the process.

    Args:
        parser: of the whole command line.
        options: further ones of ``argcomplete.autocomplete``.
    """
    import argcomplete
    from argcomplete.completers import DirectoriesCompleter, FilesCompleter, SuppressCompleter

    files = FilesCompleter([".yaml"])
    offers: dict[str, Callable[..., Iterable[str]]] = {
        "EXPERIMENT": lambda prefix, **_: [*_experiments(), *files(prefix)],
        "WHAT": lambda prefix, **_: [*LISTINGS, *_experiments(), *files(prefix)],
        "DIR": DirectoriesCompleter(),
        "FILE": files,
        "TABLE": lambda prefix, **_: [*_published(), *FilesCompleter([".csv"])(prefix)],
        "SHELL": lambda **_: SHELLS,
        "KEY=VALUE": _overrides,
    }
    commands = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    for action in itertools.chain.from_iterable(c._actions for c in commands.choices.values()):
        metavar = str(action.metavar)
        if metavar in offers:
            action.completer = offers[metavar]
    options |= {"always_complete_options": False, "default_completer": SuppressCompleter()}
    argcomplete.autocomplete(parser, **options)


def _experiments() -> Iterable[str]:
    return [*config_files("experiments"), *paper_files()]


def _published() -> Iterable[str]:
    return [*(f"published/{name}" for name in config_files("published")), *paper_files()]


def _overrides(prefix: str, **_: Any) -> Iterable[str]:
    key, equals, _value = prefix.partition("=")
    if not equals:
        return [f"{name}=" for name in _OVERRIDES]
    return [f"{key}={value}" for value in _OVERRIDES.get(key, tuple)()]
