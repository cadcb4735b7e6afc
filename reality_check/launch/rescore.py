"""Scoring kept networks again, for output folders that lack the scores of every query."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from reality_check.config.metrics import METRICS, Stage
from reality_check.evaluation.categories import concatenate
from reality_check.evaluation.embedding_map import map_path, perplexity, sample_rows, tsne
from reality_check.evaluation.metrics import Diverged
from reality_check.evaluation.query_scores import TOLERANCE, packed, read_query_scores
from reality_check.launch.scorer import Scorer
from reality_check.studies.campaign import Campaign, StageWork
from reality_check.studies.output_folder import query_scores_path
from reality_check.studies.trial import StoredTrial
from reality_check.training.prepared_experiment import PreparedExperiment
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


def rescore(
    campaign: Campaign, prepared: PreparedExperiment, log: Callable[[str], None] = lambda text: None
) -> Rescored:
    """Write the scores of every query of all complete reproductions that lack them.

    Nothing is trained and no recorded result changes: where a kept network does not give its
    recorded metrics again (other images, say), nothing is written for it.
    """
    scorer = Scorer(prepared, campaign.out_dir)
    there, scored, diverged, problems = 0, 0, 0, []
    for work in _scored_stages(campaign):
        for index, trial in work.study.complete().items():
            if trial.diverged is not None:
                diverged += 1
            elif _has_scores(campaign.out_dir, work, index, trial):
                there += 1
            elif problem := _score(prepared, scorer, work, index, trial):
                problems.append(problem)
            else:
                scored += 1
                log(f"{work.method}, {work.stage}, {index}: scored")
    return Rescored(there, scored, diverged, tuple(problems))


def _scored_stages(campaign: Campaign) -> list[StageWork]:
    scored = (Stage.REPRODUCTIONS, Stage.FINAL)
    return [work for work in campaign.ready_stages() if work.stage in scored]


def _has_scores(out_dir: Path, work: StageWork, index: int, trial: StoredTrial) -> bool:
    recorded = trial.scores or {}
    by_run = {(work.method, category, index): means for category, means in recorded.items()}
    kept = read_query_scores(out_dir, functools.partial(query_scores_path, out_dir), by_run)
    return kept is not None and all(
        kept.load(work.method, category, index) is not None for category in recorded
    )


def _score(
    prepared: PreparedExperiment, scorer: Scorer, work: StageWork, index: int, trial: StoredTrial
) -> str | None:
    """Score one reproduction; what is in the way, or ``None``."""
    what = f"{work.method}, {work.stage}, {index}"
    method = prepared.method(work.method)
    try:
        scores, _ = scorer.score(method, work.stage, index)
    except FileNotFoundError as error:
        return f"{what}: its network {error} is gone; only a new run can make it again."
    except (Diverged, RuntimeError) as error:
        return f"{what}: {error}."
    for category, means in (trial.scores or {}).items():
        for name, title in METRICS.items():
            value = scores[category][name]
            if abs(value - means[name]) > TOLERANCE:
                return (
                    f"{what}: {title} ({category}) is {value:.4f} now but {means[name]:.4f} is "
                    "recorded, so the images, the network or the software are not those of the run."
                )
    scorer.keep_queries(method, work.stage, index, scores)
    return None


def draw_maps(
    campaign: Campaign, prepared: PreparedExperiment, log: Callable[[str], None] = lambda text: None
) -> list[str]:
    """Write the map of every method that has a complete, sound reproduction.

    Returns:
        A sentence for each method without one.

    Raises:
        UsageError: the images are not those of the run.
    """
    _check_images(prepared, campaign.out_dir)
    scorer = Scorer(prepared, campaign.out_dir)
    rows, problems = sample_rows(prepared.test_set), []
    for method in campaign.experiment.methods:
        sound = (
            (work.stage, index)
            for work in _scored_stages(campaign)
            if work.method == method.name
            for index, trial in work.study.complete().items()
            if trial.diverged is None
        )
        if (run := next(sound, None)) is None:
            problems.append(f"{method.name}: no sound reproduction is complete, so it has no map.")
            continue
        stage, index = run
        try:
            embeddings = scorer.embed_test_rows(prepared.method(method.name), stage, index, rows)
        except FileNotFoundError as error:
            problems.append(f"{method.name}: its network {error} is gone, so it has no map.")
            continue
        vectors = concatenate(embeddings, method.normalize_embeddings)
        about = {"stage": stage, "reproduction": index, "perplexity": perplexity(len(rows))}
        arrays = {
            "points": tsne(vectors.cpu()),
            "images": rows.astype(np.int32),
            "labels": prepared.test_set.labels[rows].astype(np.int32),
            "class_names": np.array(prepared.test_set.class_names, dtype=np.str_),
            "about": np.array(json.dumps(about)),
        }
        atomic_write(map_path(campaign.out_dir, method.name), packed(arrays))
        log(f"{method.name}: map of {len(rows)} test images")
    return problems


def _check_images(prepared: PreparedExperiment, out_dir: Path) -> None:
    recorded = prepared.experiment.code.get("dataset")
    if recorded is not None and recorded != prepared.dataset.fingerprint():
        raise UsageError(
            f"the images of {prepared.experiment.dataset.name} are not those that the networks of "
            f"{out_dir} were trained on, so a map would mislead; name the same images with "
            "dataset.path in its experiment.yaml."
        )
