"""Scoring kept networks again, for output folders that lack the scores of every query."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from reality_check.campaign import Campaign, Unit
from reality_check.config.schema import Method
from reality_check.measuring import Diverged
from reality_check.query_scores import TOLERANCE
from reality_check.results import METRICS
from reality_check.search import FrozenTrial


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
        for slot, trial in unit.study.complete().items():
            if trial.user_attrs.get("diverged"):
                diverged += 1
            elif _has_scores(campaign, unit, slot, trial):
                there += 1
            elif problem := _score(campaign, unit, method, slot, trial):
                problems.append(problem)
            else:
                scored += 1
                tell(f"{unit.method}, {unit.stage}, {slot}: scored")
    return Rescored(there, scored, diverged, tuple(problems))


def _has_scores(campaign: Campaign, unit: Unit, slot: int, trial: FrozenTrial) -> bool:
    recorded = trial.user_attrs["scores"]
    by_run = {(unit.method, category, slot): means for category, means in recorded.items()}
    kept = campaign.read_queries(by_run)
    return kept is not None and all(
        kept.load(unit.method, category, slot) is not None for category in recorded
    )


def _score(
    campaign: Campaign, unit: Unit, method: Method, slot: int, trial: FrozenTrial
) -> str | None:
    """Score one reproduction; what is in the way, or ``None``."""
    what = f"{unit.method}, {unit.stage}, {slot}"
    try:
        scores, _ = campaign.score(method, unit.stage, slot)
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
    campaign.keep_queries(method, unit.stage, slot, scores)
    return None
