"""Methods of an experiment whose results come from packs instead of trainings."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path

from reality_check.config.differences import differing_keys
from reality_check.config.metrics import metric_of
from reality_check.config.schema import Experiment
from reality_check.registry.joining import check_growth, check_joinable, joined_code
from reality_check.registry.pack import Pack, read_pack
from reality_check.studies.plan import Step
from reality_check.utils.errors import UsageError


def packs_of(experiment: Experiment) -> list[Pack]:
    """Return the packs that an experiment takes methods from, reduced to these methods.

    Raises:
        UsageError: nothing is left to train, a pack is not the one with which the experiment was
            begun, or a method was changed.
    """
    methods_by_pack: dict[tuple[str, str], list[str]] = {}
    for method in experiment.methods:
        if method.packed is not None:
            key = method.packed.file, method.packed.checksum
            methods_by_pack.setdefault(key, []).append(method.name)
    if methods_by_pack and not experiment.trained().methods:
        raise UsageError(
            "all methods come from packs, so there is nothing to train; join packs with "
            "reality-check merge A B --out DIR."
        )
    return [
        _checked_pack(experiment, Path(file), checksum, names)
        for (file, checksum), names in methods_by_pack.items()
    ]


def _checked_pack(experiment: Experiment, file: Path, checksum: str, names: Sequence[str]) -> Pack:
    """Return a pack reduced to some methods, which must be as in the experiment."""
    pack = read_pack(file)
    if pack.checksum != checksum:
        raise UsageError(
            f"{file} is not the pack that this experiment was begun with (checksum "
            f"{pack.checksum[:12]}, not {checksum[:12]}); bring that one back, or begin again with "
            "another --out."
        )
    for name in names:
        theirs, ours = (
            run.method(name).plain(exclude={"packed"}) for run in (pack.experiment, experiment)
        )
        if keys := list(differing_keys(theirs, ours)):
            raise UsageError(
                f"method {name!r} comes from {file}, but {keys[0]} is not as it was run; leave it "
                "as it is, or train the method here under a name of its own."
            )
    return _restricted(pack, names)


def _restricted(pack: Pack, names: Sequence[str]) -> Pack:
    """Return a pack with some of its methods, without baselines and sources."""
    # The names of files and studies begin with that of their method, so baselines and source
    # files, which belong to no method, are left out.
    folders = tuple(f"{name}/" for name in names)
    files = {name: content for name, content in pack.files.items() if name.startswith(folders)}
    methods = [pack.experiment.method(name) for name in names]
    return dataclasses.replace(
        pack,
        experiment=pack.experiment.model_copy(update={"methods": methods}),
        studies={name: study for name, study in pack.studies.items() if name.startswith(folders)},
        files=files,
    )


def check_packed(
    experiment: Experiment, code: Mapping[str, str], steps: Sequence[Step], packs: Sequence[Pack]
) -> dict[str, str]:
    """Check that packed methods were run with the settings of the experiment.

    User-defined metrics may be missing in a pack; its methods then have empty cells.

    Args:
        experiment: An experiment with packed methods.
        code: The fingerprints of the data and of the trained methods.
        steps: The steps in which the output folder grew.
        packs: The packs that :func:`packs_of` returns.

    Returns:
        The fingerprints, including those of the packed methods.

    Raises:
        UsageError: the runs differ in settings.
    """
    trained = experiment.trained().model_copy(update={"code": dict(code)})
    runs = [("this experiment", trained), *((pack.label, pack.experiment) for pack in packs)]
    compared = [(label, _without_own_metrics(run)) for label, run in runs]
    for (label, left), (other_label, right) in itertools.combinations(compared, 2):
        check_joinable((label, other_label), (left, right))
    check_growth(experiment, steps, packs)
    return joined_code([code, *(pack.experiment.code for pack in packs)])


def _without_own_metrics(experiment: Experiment) -> Experiment:
    """Return the experiment without user-defined metrics."""
    protocol = experiment.protocol
    metrics = [name for name in protocol.final_metrics if not metric_of(name).is_own]
    protocol = protocol.model_copy(update={"final_metrics": metrics})
    return experiment.model_copy(update={"protocol": protocol})
