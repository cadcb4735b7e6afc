"""Scoring kept networks again, for output folders that lack the scores of every query."""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from reality_check.config.metrics import METRICS, Stage
from reality_check.evaluation.query_scores import TOLERANCE, read_query_scores
from reality_check.evaluation.scoring import Diverged
from reality_check.launch.scorer import Scorer
from reality_check.studies.campaign import Campaign, StageWork
from reality_check.studies.output_folder import query_scores_path
from reality_check.studies.trial import StoredTrial
from reality_check.training.prepared_experiment import PreparedExperiment


@dataclass(frozen=True)
class Rescored:
    """How many reproductions of an output folder were scored.

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
    """Score one reproduction; return why that is impossible, or ``None``."""
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
