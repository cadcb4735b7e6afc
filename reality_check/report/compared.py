"""The results of trials that were made elsewhere, for the same statistics as those of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from reality_check.config.metrics import PRIMARY
from reality_check.config.search import least_retrained
from reality_check.report.summary import Summary
from reality_check.report.trial_tables import Searches, Trial, read_trials
from reality_check.report.wording import counted, counts_text
from reality_check.results import (
    Deviation,
    ExperimentResults,
    MethodResults,
    ResultRow,
    TrialRecord,
)
from reality_check.statistics import MAX_LEFT_OUT, MIN_TESTED, left_out, subset_degrees
from reality_check.utils.errors import UsageError

#: The questions that no table answers: each with its answers, and what the answer means.
QUESTIONS = {
    "draws": {
        "independent": "The trials of a search are taken as drawn independently of each other (at "
        "random), because you said so.",
        "adaptive": "The trials of a search are taken as drawn by a sampler that learns from "
        "earlier ones, because you said so: only repeated searches are independent.",
    },
    "scores": {
        "retrained": "A test score is taken as that of a retraining with a fresh seed, because you "
        "said so: the verdict is about tuning a method, and training it again with what was found.",
        "own": "A test score is taken as that of the network of the trial itself, because you said "
        "so: the verdict is about the network that a search ends with, not about a retraining.",
    },
    "common-draws": {
        "yes": "Trial k of every method (with repeated searches: search k) is taken as having the "
        "same draws, because you said so. So methods are compared trial by trial where their "
        "trials are the same and more than half of their hyper-parameters.",
        "no": "Methods are taken as having draws of their own, because you said so.",
    },
}
_ASKED = {
    "draws": "how a search drew its trials: independently of each other (a random search), or by "
    "an adaptive sampler that learns from earlier ones (TPE, Gaussian process)",
    "scores": "what a test score is that of: a network retrained with a fresh seed, or the trial's "
    "own network",
    "common-draws": "whether trial k of every method has the same draws (the same learning rate, "
    "...)",
}
_UNKNOWN = (
    "No table says whether all trials that were made are in it, or whether test scores were looked "
    "at before the methods, the ranges and the budget were chosen. Either would favour a method."
)


@dataclass(frozen=True)
class Answers:
    """What a table does not say.

    Attributes:
        draws: ``"independent"`` or ``"adaptive"``: how a search drew its trials.
        scores: ``"retrained"`` or ``"own"``: the network that was scored on the test data.
        common_draws: ``"yes"`` or ``"no"``: whether trial k of every method has the same draws; a
            column ``draw`` says so by itself.
        budget: the number of trials of the search that verdicts are about, where all subsets of one
            search are estimated; by default a third of the trials.
        metric: the title of the test score.
    """

    draws: str | None = None
    scores: str | None = None
    common_draws: str | None = None
    budget: int | None = None
    metric: str | None = None


def compared_results(
    table: Any, name: str, columns: Mapping[str, str], answers: Answers
) -> ExperimentResults:
    """Return the results of a table of trials.

    Args:
        table: a CSV file, rows, a data frame or studies, see :func:`read_trials`.
        name: the title of the report.
        columns: the names of columns in the table by our names, see :func:`read_trials`.
        answers: what the table does not say.

    Raises:
        UsageError: the table cannot be read, a question is open, or no estimate is possible.
    """
    searches = read_trials(table, columns)
    if not searches:
        raise UsageError("the table has no trials.")
    given = _answered(searches, answers)
    repeated = any(len(by_search) > 1 for by_search in searches.values())
    for method, by_search in searches.items():
        _check_searches(method, by_search, repeated, given["draws"] == "adaptive")
        _check_scores(method, by_search, given["scores"] == "own")
    sizes = {method: len(next(iter(of.values()))) for method, of in searches.items()}
    budget = None if repeated else answers.budget or max(1, min(sizes.values()) // 3)
    results = ExperimentResults(
        name=name,
        protocol="",
        reference="",
        finished=True,
        methods=tuple(
            _method(method, by_search, given.get("common-draws") == "no")
            for method, by_search in searches.items()
        ),
        rows=tuple(_result_rows(name, searches, repeated)),
        deviations=(
            *(Deviation(question, QUESTIONS[question][word]) for question, word in given.items()),
            *_notes(searches, sizes, budget),
        ),
        config={
            "protocol": {"search": {"budget": budget}},
            "methods": [{"name": method, "trials": size} for method, size in sizes.items()],
        },
        measure=answers.metric or columns.get("test", "score"),
        tested_on="test data",
    )
    if budget is not None:
        _check_budget(Summary(results), budget)
    return results


def _answered(searches: Searches, answers: Answers) -> dict[str, str]:
    """Return the answer to each question that the table leaves open."""
    given = {"draws": answers.draws, "scores": answers.scores}
    if len(searches) > 1:
        drawn = any(trial.draw for of in searches.values() for ts in of.values() for trial in ts)
        given["common-draws"] = "yes" if drawn else answers.common_draws
    for question, answer in given.items():
        if answer not in QUESTIONS[question]:
            got = "" if answer is None else f", got {answer!r}"
            raise UsageError(
                f"the table does not say {_ASKED[question]}; answer with --{question} "
                f"{' or '.join(QUESTIONS[question])}{got}."
            )
    return {question: str(answer) for question, answer in given.items()}


def _check_searches(
    method: str, by_search: Mapping[str, Sequence[Trial]], repeated: bool, adaptive: bool
) -> None:
    """Refuse a single adaptive search, and searches that are no repetitions of each other."""
    if len(by_search) == 1 and (repeated or adaptive):
        why = "others have several" if repeated else "its sampler is adaptive"
        raise UsageError(
            f"{method} has one search and {why}: one search shows what it found, not what another "
            "would find; repeat it with other seeds, three times or more (column search)."
        )
    if not any(trial.tests for trials in by_search.values() for trial in trials):
        raise UsageError(f"no trial of {method} has a test score.")
    counts = {search: len(trials) for search, trials in by_search.items()}
    if len(set(counts.values())) > 1:
        raise UsageError(
            f"searches of {method} must have equal numbers of trials, got {counts_text(counts)}."
        )
    for search, trials in by_search.items():
        where = f"search {search} of {method}" if repeated else method
        best = _winner(trials)
        if best.validation is None:
            raise UsageError(f"no trial of {where} has a validation score.")
        if repeated and not best.tests:
            raise UsageError(
                f"trial {best.label}, which won {where}, has no test score; score what each search "
                "has chosen (0 if its training diverged)."
            )


def _check_scores(method: str, by_search: Mapping[str, Sequence[Trial]], own: bool) -> None:
    """Refuse test scores that no search could have chosen, or that cannot be of one network."""
    for trial in (trial for trials in by_search.values() for trial in trials if trial.tests):
        if trial.validation is None:
            raise UsageError(
                f"trial {trial.label} of {method} has a test score, but no validation score; a "
                "retraining has the method, search and trial of the trial that it retrains."
            )
        if own and len(trial.tests) > 1:
            raise UsageError(
                f"trial {trial.label} of {method} has {len(trial.tests)} test scores, but --scores "
                "own is about one network; write --scores retrained if these are retrainings."
            )


def _winner(trials: Sequence[Trial]) -> Trial:
    """Return the trial with the best validation score; of equal ones, one with a test score."""
    return max(trials, key=lambda t: (t.validation is not None, t.validation or 0.0, bool(t.tests)))


def _method(
    method: str, by_search: Mapping[str, Sequence[Trial]], own_draws: bool
) -> MethodResults:
    """Return the records of a method; a trial without a validation score loses to all others."""
    trials = [(number, trial) for number, of in enumerate(by_search.values()) for trial in of]
    worst = min(t.validation for _, t in trials if t.validation is not None) - 1
    records = [
        TrialRecord(
            trial.number,
            "complete",
            worst if trial.validation is None else trial.validation,
            trial.params,
            search=search,
        )
        for search, trial in trials
    ]
    values: dict[str, set[str]] = {}
    for name, value in (item for _, trial in trials for item in trial.params.items()):
        values.setdefault(name, set()).add(str(value))
    return MethodResults(
        name=method,
        loss="",
        search=tuple(sorted(records, key=lambda r: (r.search, r.trial_index))),
        # Without parameters, the draw as a whole is what methods may have in common.
        searched=tuple(name for name in values if len(values[name]) > 1) if values else ("draw",),
        has_own_draws=own_draws,
    )


def _result_rows(name: str, searches: Searches, repeated: bool) -> Iterator[ResultRow]:
    """Yield the test scores of the winners of repeated searches, or of all trials of one search."""
    for method, by_search in searches.items():
        scored = (
            (search, trial, scores)
            for search, trials in enumerate(by_search.values())
            for trial in ([_winner(trials)] if repeated else trials)
            for scores in trial.tests
        )
        for run, (search, trial, scores) in enumerate(scored):
            for category, value in scores.items():
                yield ResultRow(name, method, category, run, PRIMARY, value, search, trial.number)


def _notes(searches: Searches, sizes: Mapping[str, int], budget: int | None) -> Iterator[Deviation]:
    """Yield what else a reader should know of the table."""
    if budget is not None:
        yield Deviation(
            "budget",
            f"The verdict is about a search of {budget} trials (--budget), estimated from all such "
            f"subsets of one search of each method: {counts_text(sizes)} trials.",
        )
    elif len(set(sizes.values())) > 1:
        text = f"The searches of the methods are not of one length: {counts_text(sizes)} trials."
        yield Deviation("unequal search", text, True)
    missing = {
        method: sum(trial.validation is None for trials in of.values() for trial in trials)
        for method, of in searches.items()
    }
    if any(missing.values()):
        yield Deviation(
            "failed trials",
            f"Trials without a validation score (failed, pruned, diverged): {counts_text(missing)}. "
            "They use up budget and lose to all others.",
        )
    yield Deviation("unknown", _UNKNOWN)


def _check_budget(summary: Summary, budget: int) -> None:
    """Refuse a budget that the trials of a method do not allow to be estimated."""
    for (category, _, method), rows in summary.rows.items():
        validation, tests = summary.subsets(rows)
        trials = len(validation)
        allowed = [n for n in range(1, trials + 1) if subset_degrees(trials, n) >= MIN_TESTED - 1]
        if budget not in allowed:
            instead = f"write --budget {allowed[-1]} or less" if allowed else "make more"
            raise UsageError(
                f"--budget {budget} of the {trials} trials of {method}: fewer than {MIN_TESTED} "
                f"effective trials would decide, which allows no interval; {instead}."
            )
        share = left_out(validation, tests, budget)
        if share > MAX_LEFT_OUT:
            raise UsageError(
                f"{share:.0%} of all searches of {budget} trials of {method} are won by a trial "
                f"without a test score ({category}); score at least the best "
                f"{least_retrained(trials, budget)} trials (0 if a training diverged), or write a "
                "larger --budget."
            )
