"""Methods that were not run as the others were: from packs, with other software or devices."""

from __future__ import annotations

from collections.abc import Iterator

from reality_check.config.metrics import Stage
from reality_check.config.schema import Experiment
from reality_check.report.text import listed
from reality_check.results import Deviation
from reality_check.studies.study import Studies, Study
from reality_check.utils.environment import split_versions


def origins(experiment: Experiment, stages: Studies) -> Iterator[Deviation]:
    """What a reader should know of methods with an origin of their own.

    Args:
        experiment: as it was run.
        stages: its studies, each with the software that it began with.
    """
    packs: dict[str, list[str]] = {}
    for method in experiment.methods:
        if method.packed is not None:
            source = f"{method.packed.experiment} ({method.packed.checksum[:12]})"
            packs.setdefault(source, []).append(method.name)
    for source, names in packs.items():
        yield Deviation(
            "packed results",
            f"Not trained in this run, but taken from the pack of {source}, with the same data, "
            f"split, network, protocol and seed: {listed(names)}.",
        )
    yield from _software(stages)


def _software(stages: Studies) -> Iterator[Deviation]:
    """Packages, kinds of machines and of devices that are not the same for all methods."""
    used: dict[str, dict[str, list[str]]] = {}
    for (method, stage, search), study in stages.items():
        if not method or search or stage is not _first_stage(stages, method):
            continue
        for kind, value in _ran_with(study).items():
            used.setdefault(kind, {}).setdefault(value, []).append(method)
    for kind, values in used.items():
        if len(values) > 1:
            each = "; ".join(f"{value}: {listed(names)}" for value, names in values.items())
            yield Deviation("versions", f"Not all methods ran with the same {kind}: {each}.")


def _first_stage(stages: Studies, method: str) -> Stage:
    """The stage that a method begins with."""
    return next(stage for name, stage, _ in stages if name == method)


def _ran_with(study: Study) -> dict[str, str]:
    about = study.about()
    trials = study.complete().values()
    devices = {trial.gpu or trial.device_kind for trial in trials}
    return {
        **split_versions(about.get("versions", "")),
        "kind of machine": str(about.get("machine")),
        **({"kind of device": " and ".join(sorted(devices))} if devices else {}),
    }
