"""What all sections have in common: whose parameters are reproduced."""

from __future__ import annotations

import dataclasses

from reality_check.report.summary import winner
from reality_check.results import ExperimentResults, MethodResults, TrialRecord


def test_the_winner_is_the_one_that_was_recorded(results: ExperimentResults) -> None:
    method = dataclasses.replace(results.methods[0], retrained=((0, 3),))
    best = winner(method)
    assert best is not None
    assert best.trial_index == 3, "though trial 5 has a higher value"


def test_before_the_search_is_complete_the_best_so_far_stands_for_it() -> None:
    values = [0.1, 0.3, 0.3, 0.9, None]
    trials = [
        TrialRecord(trial_index, "complete" if value else "running", value=value)
        for trial_index, value in enumerate(values)
    ]
    trials[3] = dataclasses.replace(trials[3], diverged="the loss became nan")
    best = winner(MethodResults("m", "L", search=tuple(trials)))
    assert best is not None
    assert best.trial_index == 1, "the earlier of two equal ones"
    assert winner(MethodResults("m", "L", search=tuple(trials[3:]))) is None
