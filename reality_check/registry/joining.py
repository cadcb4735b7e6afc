"""Joining finished runs that differ only in their methods, as if they had been one run.

The records are joined, not the reports. The joint folder is an ordinary output folder: it has the
report of one run, and a run can continue in it.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from reality_check.config.compose import compose
from reality_check.config.differences import WEIGHTS, conflicting_keys
from reality_check.config.metrics import Stage
from reality_check.config.neutral_keys import is_result_neutral
from reality_check.config.schema import Experiment
from reality_check.registry.pack import Pack
from reality_check.studies.output_folder import describe_differences
from reality_check.studies.plan import Step, reproduction_order
from reality_check.utils.errors import UsageError

#: Keys in which joined runs may differ; all others affect results, or how runs are counted.
_MAY_DIFFER = (
    "name",
    "methods",
    "controls",
    "claims",
    "storage",
    "protocol.name",
    "protocol.note",
    "protocol.gallery",
)
_ORIGIN_FILE = "merged_from.json"
#: Attributes of the baselines that have an entry for each method.
_ATTRIBUTES_BY_METHOD = ("parameters", "inputs")


def joined(packs: Sequence[Pack]) -> Pack:
    """Return the pack that one run of all these methods would have written.

    The name, note and baselines come from the first pack.

    Raises:
        UsageError: the packs differ in data, split, network, protocol or seed, or share the name
            of a method or of a file with different content.
    """
    for first, second in itertools.combinations(packs, 2):
        check_joinable((first.label, second.label), (first.experiment, second.experiment))
    plain_experiments = [pack.experiment.plain() for pack in packs]
    claims = [claim for experiment in plain_experiments for claim in experiment["claims"]]
    joint = {
        **plain_experiments[0],
        "methods": [method for experiment in plain_experiments for method in experiment["methods"]],
        "controls": [name for experiment in plain_experiments for name in experiment["controls"]],
        # Without duplicates.
        "claims": [claim for n, claim in enumerate(claims) if claim not in claims[:n]],
        "code": joined_code([experiment["code"] for experiment in plain_experiments]),
        "storage": None,
        "studies": None,
    }
    steps = _steps(packs)
    experiment = compose(joint, where="the joint experiment")
    check_growth(experiment, steps, packs)
    studies = {name: study for pack in packs for name, study in pack.studies.items()}
    studies[Stage.BASELINES.value] = _baselines(packs)
    files = _files(packs) | {_ORIGIN_FILE: _origins(packs)}
    return Pack("the joint run", experiment, studies, tuple(steps), files)


def _may_differ(key: str) -> bool:
    """Return whether joined runs may differ in a key, which is dotted."""
    return is_result_neutral(key) or any(key == k or key.startswith(f"{k}.") for k in _MAY_DIFFER)


def check_growth(experiment: Experiment, steps: Sequence[Step], packs: Sequence[Pack]) -> None:
    """Check that reproductions with the same number repeat the same trial in all runs.

    Raises:
        UsageError: a pack grew in other steps than the experiment.
    """
    for pack in packs:
        order = reproduction_order(pack.experiment, list(pack.steps))
        if reproduction_order(experiment, list(steps)) != order:
            raise UsageError(
                f"{pack.label} grew in other steps than the others (steps.json), so that its "
                "reproductions have other numbers; run it again from the start, in a new folder."
            )


def check_joinable(labels: tuple[str, str], experiments: tuple[Experiment, Experiment]) -> None:
    """Check that two runs could have been one run.

    Args:
        labels: The names of the two runs in messages.
        experiments: The two experiments, with their fingerprints.

    Raises:
        UsageError: the runs differ in settings, or both have a method of the same name.
    """
    first, second = (experiment.plain() for experiment in experiments)
    both = " and ".join(labels)
    if keys := conflicting_keys(first, second, _may_differ):
        places = f"in {labels[0]}", f"in {labels[1]}"
        shown = describe_differences(keys, first, second, places)
        raise UsageError(
            f"{both} were not measured alike: {shown}. Such runs are shown side by side by "
            "reality-check report A B --out DIR, which also takes packs."
        )
    names, others = ([method.name for method in each.methods] for each in experiments)
    if twice := [name for name in names if name.lower() in map(str.lower, others)]:
        raise UsageError(
            f"{both} have the method {twice[0]!r} twice, but one run has it once; leave one of "
            "them out, or compare them with reality-check report A B --out DIR."
        )


def joined_code(codes: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return the fingerprints of all runs, which must not contradict each other, in one dict."""
    joint = {name: fingerprint for code in codes for name, fingerprint in code.items()}
    weights = [code[WEIGHTS].split(", ") for code in codes if WEIGHTS in code]
    if weights:  # of all networks, each once
        joint[WEIGHTS] = ", ".join(dict.fromkeys(itertools.chain(*weights)))
    return joint


def _steps(packs: Sequence[Pack]) -> list[Step]:
    """Return the steps of all packs in chronological order, without duplicates."""
    steps: dict[str, Step] = {}
    for step in sorted((s for pack in packs for s in pack.steps), key=lambda step: step.time):
        content = json.dumps([step.changes, step.settings, step.reproductions], sort_keys=True)
        first = steps.get(content, step)  # the same step as another pack took it
        # ``done`` has counts of the methods of one pack only.
        steps[content] = dataclasses.replace(first, done={**step.done, **first.done})
    return list(steps.values())


def _baselines(packs: Sequence[Pack]) -> dict[str, Any]:
    """Return the baselines of the first pack, with the attributes of the methods of all packs."""
    studies = [dict(pack.studies[Stage.BASELINES.value]) for pack in packs]
    attributes = dict(studies[0]["attributes"])
    for key in _ATTRIBUTES_BY_METHOD:
        attributes[key] = {
            name: value
            for study in studies
            for name, value in (study["attributes"].get(key) or {}).items()
        }
    return studies[0] | {"attributes": attributes}


def _files(packs: Sequence[Pack]) -> dict[str, bytes]:
    """Return the files of all packs.

    Raises:
        UsageError: two packs have different files of the same name.
    """
    files: dict[str, bytes] = {}
    for pack in packs:
        for name, content in pack.files.items():
            if name == _ORIGIN_FILE:
                continue
            if files.setdefault(name, content) != content:
                raise UsageError(
                    f"{name} in {pack.label} is not that of the others, but one run has one; only "
                    "runs with the same test queries and the same sources of your own are joined."
                )
    return files


def _origins(packs: Sequence[Pack]) -> bytes:
    """Return the content of the file that names the joined packs."""
    sources: list[dict[str, Any]] = [
        {
            "from": Path(pack.label).name,
            "checksum": pack.checksum or None,
            "methods": [method.name for method in pack.experiment.methods],
        }
        for pack in packs
    ]
    return (json.dumps(sources, indent=1) + "\n").encode()
