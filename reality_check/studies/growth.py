"""The growth of an experiment in its output folder, and the steps in which it has grown.

Trials, searches, reproductions, final metrics and methods may be added. Existing results are kept
and only the additions are trained, so that the outcome is, as far as seeds allow, the same as if
the experiment had started with them. Any other change makes another experiment.
"""

from __future__ import annotations

import copy
import json
import time
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from reality_check.config.differences import WEIGHTS, value_at
from reality_check.config.overrides import set_value
from reality_check.config.schema import Experiment
from reality_check.config.search import INDEPENDENT, of_kind
from reality_check.studies.plan import Step
from reality_check.utils.files import atomic_write
from reality_check.utils.own_names import own_path

#: Keys of numbers that may become larger; the first two make searches longer.
NUMBERS = (
    "protocol.search.trials",
    "protocol.search.trials_per_parameter",
    "protocol.search.repeats",
    "protocol.search.retrain_best",
    "protocol.reproductions",
)
#: Keys whose change makes searches draw more trials.
DRAWING = {*NUMBERS[:3], "methods"}
#: Keys of lists that may become longer.
LISTS = ("protocol.final_metrics", "controls")


def read_steps(out_dir: Path) -> list[Step]:
    """Return the steps in which the experiment of an output folder has grown, in order."""
    file = own_path(out_dir, "steps.json")
    return [Step(**step) for step in json.loads(file.read_text())] if file.exists() else []


def record_step(
    there: Experiment,
    changes: Mapping[str, tuple[Any, Any]],
    done: dict[str, dict[str, int]],
    out_dir: Path,
) -> None:
    """Record that the experiment ``there`` grows, before the larger one is written.

    ``changes`` has the values before and after by key; ``done`` is that of :class:`Step`.
    """
    steps, plain = read_steps(out_dir), {key: list(pair) for key, pair in changes.items()}
    if steps and steps[-1].changes == plain:
        return  # already recorded by a run that was killed later
    protocol = there.protocol
    step = Step(time.time(), plain, protocol.search.settings, protocol.reproductions, done)
    write_steps([*steps, step], out_dir)


def write_steps(steps: list[Step], out_dir: Path) -> None:
    """Write the steps in which the experiment of an output folder has grown."""
    atomic_write(
        own_path(out_dir, "steps.json"), json.dumps([asdict(step) for step in steps], indent=1)
    )


def without_growth(
    there: Mapping[str, Any], ours: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, tuple[Any, Any]]]:
    """Separate the growth of an experiment from its other changes.

    Args:
        there: the experiment of the output folder, as plain data.
        ours: the experiment of this run, as plain data.

    Returns:
        A copy of ``ours`` in which values that have only grown are those of ``there``, and the
        values there and here by key.
    """
    plain = copy.deepcopy(dict(ours))
    changes: dict[str, tuple[Any, Any]] = {}
    for key in NUMBERS:
        old, new = value_at(there, key, 1), value_at(ours, key, 1)  # one search has no repeats
        if old and new and new > old:  # null: this protocol does not use the key
            changes[key] = (old, new)
    for key in LISTS:
        old, new = value_at(there, key), value_at(ours, key)
        if old != new and all(item in new for item in old):
            changes[key] = (old, new)
            for item in new:
                if isinstance(item, str) and item not in (*old, *there["code"]):
                    plain["code"].pop(item, None)  # the fingerprint of a new metric of the user
    for key, (old, _) in changes.items():
        set_value(plain, key.split("."), old)
    begun, search = (experiment["protocol"]["search"] for experiment in (there, plain))
    plain["protocol"]["search"] = _as_begun(begun, search)
    old_names, new_names = (
        [method["name"] for method in experiment["methods"]] for experiment in (there, ours)
    )
    if set(old_names) <= set(new_names):
        by_name = {method["name"]: method for method in plain["methods"]}
        plain["methods"] = [by_name[name] for name in old_names]  # in the order of the folder
        if len(new_names) > len(old_names):
            changes["methods"] = (old_names, new_names)
            plain["code"] = _code_without_growth(there["code"], ours["code"])
    if "protocol.search.trials_per_parameter" in changes:  # the trials of a method follow from it
        trials = {method["name"]: method["trials"] for method in there["methods"]}
        for method in plain["methods"]:
            method["trials"] = trials.get(method["name"])
    return plain, changes


def _as_begun(recorded: Mapping[str, Any], search: dict[str, Any]) -> dict[str, Any]:
    """Return ``search``, with values of ``recorded`` that draw the existing trials the same way."""
    if (recorded["kind"], search["kind"]) == ("one", "repeated"):
        search = of_kind(search, "one")
    if "sampler" in recorded and "sampler" in search:
        # The number of existing trials that are drawn at random, before and now.
        old, new = (min(each["startup_trials"], recorded["trials"]) for each in (recorded, search))
        if search["sampler"] in INDEPENDENT or old == new:
            search["startup_trials"] = recorded["startup_trials"]
    return search


def _code_without_growth(recorded: Mapping[str, str], current: Mapping[str, str]) -> dict[str, str]:
    """Return the fingerprints of ``current``, without those of new methods."""
    code = {name: source for name, source in current.items() if name in {WEIGHTS, *recorded}}
    # One text has the fingerprints of all pretrained weights; new methods may add to it.
    old, new = (set(prints.get(WEIGHTS, "none").split(", ")) for prints in (recorded, current))
    if old <= new:
        code.pop(WEIGHTS, None)
        if WEIGHTS in recorded:
            code[WEIGHTS] = recorded[WEIGHTS]
    return code


def describe_changes(changes: Mapping[str, Any]) -> str:
    """Describe changes: ``protocol.search.trials from 4 to 8, methods + contrastive``."""
    return ", ".join(
        f"{key} + {', '.join(value for value in new if value not in old)}"
        if isinstance(new, list)
        else f"{key} from {old} to {new}"
        for key, (old, new) in changes.items()
    )
