"""Methods that were not run together with the others: from packs, or with other software."""

from __future__ import annotations

from collections.abc import Iterator

from reality_check.config.schema import Experiment
from reality_check.report.text import listed
from reality_check.results import Deviation
from reality_check.studies.study import Studies
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
    """Packages, and the kind of machine, that are not the same for all methods."""
    used: dict[str, dict[str, list[str]]] = {}
    for (method, _, search), study in stages.items():
        about = study.about()
        software = {**split_versions(about.get("versions", "")), "machine": about.get("machine")}
        for package, version in software.items():
            if method and not search:
                names = used.setdefault(package, {}).setdefault(str(version), [])
                names += [method] * (method not in names)
    for package, versions in used.items():
        if len(versions) > 1:
            each = "; ".join(f"{version}: {listed(names)}" for version, names in versions.items())
            yield Deviation("versions", f"Not all methods ran with the same {package}: {each}.")
