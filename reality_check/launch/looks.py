"""What a worker does at a look: it decides whether the campaign ends there, and records it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from reality_check.config.method import Method
from reality_check.config.metrics import PRIMARY, stage_of
from reality_check.statistics import Look, at_look, compare_estimates, over_searches
from reality_check.studies.campaign import Campaign
from reality_check.studies.finished import stamped

#: By category and method, of each search the scores of its winner's retrainings.
Scores = Mapping[str, Mapping[str, Sequence[Sequence[float]]]]


def take_look(campaign: Campaign) -> bool:
    """Decide whether a campaign ends at a look, once all work before it is complete.

    It depends on recorded results only, so workers who look at the same time agree.

    Returns:
        Whether there was a look to take.
    """
    if not (campaign.looks.open and campaign.all_complete()):
        return False
    methods = [method for method in campaign.experiment.methods if method.control_of is None]
    scores: Scores = {
        str(category): {method.name: _scores(campaign, method, category) for method in methods}
        for category in campaign.experiment.protocol.categories
    }
    found = decide(scores, Look.at(campaign.searches, campaign.looks.sizes))
    campaign.baselines().note(f"look at {campaign.searches} searches", found)
    outcome = "ends here" if found["stops"] else "continues"
    print(stamped(f"look after {campaign.searches} searches: the campaign {outcome}"), flush=True)
    return True


def decide(scores: Scores, look: Look) -> dict[str, Any]:
    """Find whether a campaign ends at a look: one method is above all others in every category.

    By Welch's tests over searches at the spent level, after Holm's correction for all pairs.

    Returns:
        ``stops``, and ``open``: category and method of those that the leader is not above, or that
        have no results.
    """
    left = []
    for category, methods in scores.items():
        estimates = {m: at_look(over_searches(runs), look) for m, runs in methods.items() if runs}
        left += [[category, method] for method in methods if method not in estimates]
        pairs = compare_estimates(estimates)
        rivals = [pair for pair in pairs if pair.better == pairs[0].better]
        left += [[category, pair.other] for pair in rivals if not pair.distinct]
    return {"stops": not left, "open": left}


def _scores(campaign: Campaign, method: Method, category: str) -> list[list[float]]:
    """Of each search, the scores of its winner's retrainings; a diverged one has 0."""
    study = campaign.study(method, stage_of(category))
    if study is None:
        return []
    complete, runs = study.complete(), dict[int, list[float]]()
    for index, one in enumerate(campaign.retrained(method)):
        scores = (complete[index].scores or {}).get(category, {})
        runs.setdefault(one.search, []).append(scores.get(PRIMARY, 0.0))
    return list(runs.values())
