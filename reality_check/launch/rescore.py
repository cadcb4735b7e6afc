"""Scoring kept networks again, for output folders that lack the scores of every query."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from reality_check.config.metrics import METRICS
from reality_check.config.schema import Method
from reality_check.evaluation.categories import concatenate
from reality_check.evaluation.embedding_map import map_path, perplexity, sample_rows, tsne
from reality_check.evaluation.metrics import Diverged
from reality_check.evaluation.query_scores import TOLERANCE, packed
from reality_check.studies.campaign import Campaign, StageWork
from reality_check.studies.study import FrozenTrial
from reality_check.utils.errors import UsageError
from reality_check.utils.files import atomic_write


@dataclass(frozen=True)
class Rescored:
    """What became of the reproductions of an output folder.

    Attributes:
        there: how many had the scores of every query already.
        scored: how many were scored again.
        diverged: how many diverged, so that there is nothing to score.
        problems: a sentence for each that could not be scored.
    """

    there: int
    scored: int
    diverged: int
    problems: tuple[str, ...]


def rescore(campaign: Campaign, tell: Callable[[str], None] = lambda text: None) -> Rescored:
    """Write the scores of every query of all complete reproductions that lack them.

    Nothing is trained and no recorded result changes: where a kept network does not give its
    recorded metrics again (other images, say), nothing is written for it.

    Args:
        campaign: of the output folder; the data set must be there.
        tell: called with a line for each reproduction that is scored.
    """
    there, scored, diverged, problems = 0, 0, 0, []
    for unit in campaign.units():
        if unit.stage not in ("reproductions", "complete"):
            continue
        method = campaign.experiment.method(unit.method)
        for trial_index, trial in unit.study.complete().items():
            if trial.user_attrs.get("diverged"):
                diverged += 1
            elif _has_scores(campaign, unit, trial_index, trial):
                there += 1
            elif problem := _score(campaign, unit, method, trial_index, trial):
                problems.append(problem)
            else:
                scored += 1
                tell(f"{unit.method}, {unit.stage}, {trial_index}: scored")
    return Rescored(there, scored, diverged, tuple(problems))


def _has_scores(campaign: Campaign, unit: StageWork, trial_index: int, trial: FrozenTrial) -> bool:
    recorded = trial.user_attrs["scores"]
    by_run = {(unit.method, category, trial_index): means for category, means in recorded.items()}
    kept = campaign.read_queries(by_run)
    return kept is not None and all(
        kept.load(unit.method, category, trial_index) is not None for category in recorded
    )


def _score(
    campaign: Campaign, unit: StageWork, method: Method, trial_index: int, trial: FrozenTrial
) -> str | None:
    """Score one reproduction; what is in the way, or ``None``."""
    what = f"{unit.method}, {unit.stage}, {trial_index}"
    try:
        scores, _ = campaign.score(method, unit.stage, trial_index)
    except FileNotFoundError as error:
        return f"{what}: its network {error} is gone; only a new run can make it again."
    except (Diverged, RuntimeError) as error:
        return f"{what}: {error}."
    for category, means in trial.user_attrs["scores"].items():
        for name, title in METRICS.items():
            found = scores[category][name]
            if abs(found - means[name]) > TOLERANCE:
                return (
                    f"{what}: {title} ({category}) is {found:.4f} now but {means[name]:.4f} is "
                    "recorded, so the images, the network or the software are not those of the run."
                )
    campaign.keep_queries(method, unit.stage, trial_index, scores)
    return None


def draw_maps(campaign: Campaign, tell: Callable[[str], None] = lambda text: None) -> list[str]:
    """Write the map of every method that has a complete, sound reproduction.

    Args:
        campaign: of the output folder; the data set and the kept networks must be there.
        tell: called with a line for each map.

    Returns:
        A sentence for each method without one.

    Raises:
        UsageError: the images are not those of the run.
    """
    _check_images(campaign)
    rows, problems = sample_rows(campaign.test_set), []
    for method in campaign.experiment.methods:
        found = _sound_run(campaign, method)
        if found is None:
            problems.append(f"{method.name}: no sound reproduction is complete, so it has no map.")
            continue
        stage, trial_index = found
        try:
            embeddings = campaign.embed_test_rows(method, stage, trial_index, rows)
        except FileNotFoundError as error:
            problems.append(f"{method.name}: its network {error} is gone, so it has no map.")
            continue
        vectors = concatenate(embeddings, method.normalize_embeddings)
        _write(campaign, method, stage, trial_index, rows, tsne(vectors.cpu()))
        tell(f"{method.name}: map of {len(rows)} test images")
    return problems


def _check_images(campaign: Campaign) -> None:
    recorded = campaign.experiment.code.get("dataset")
    if recorded is not None and recorded != campaign.dataset.fingerprint():
        raise UsageError(
            f"the images of {campaign.experiment.dataset.name} are not those that the networks of "
            f"{campaign.out_dir} were trained on, so a map would mislead; name the same images "
            "with dataset.path in its experiment.yaml."
        )


def _sound_run(campaign: Campaign, method: Method) -> tuple[str, int] | None:
    """Study and number of the first complete reproduction that did not diverge."""
    for unit in campaign.units():
        if unit.method == method.name and unit.stage in ("reproductions", "complete"):
            for trial_index, trial in sorted(unit.study.complete().items()):
                if not trial.user_attrs.get("diverged"):
                    return unit.stage, trial_index
    return None


def _write(
    campaign: Campaign,
    method: Method,
    stage: str,
    trial_index: int,
    rows: NDArray[np.int64],
    points: NDArray[np.float32],
) -> None:
    about = {"stage": stage, "reproduction": trial_index, "perplexity": perplexity(len(rows))}
    arrays = {
        "points": points,
        "images": rows.astype(np.int32),
        "labels": campaign.test_set.labels[rows].astype(np.int32),
        "class_names": np.array(campaign.test_set.class_names, dtype=np.str_),
        "about": np.array(json.dumps(about)),
    }
    atomic_write(map_path(campaign.out_dir, method.name), packed(arrays))
