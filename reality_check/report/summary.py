"""The results sorted, counted and compared, for all sections of the report."""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from statistics import fmean
from typing import Any

from reality_check.config.differences import value_at
from reality_check.config.metrics import CATEGORIES, METRICS, PRIMARY, Stage, stage_of
from reality_check.config.search import INDEPENDENT
from reality_check.results import (
    ExperimentResults,
    MethodResults,
    ResultRow,
    TrialRecord,
    ranking_scores,
)
from reality_check.statistics import (
    Bounds,
    Comparison,
    Difference,
    Estimate,
    Shares,
    Weakness,
    all_subsets,
    allow_for_skew,
    budget_curve,
    compare_estimates,
    estimate_difference,
    over_searches,
    probability_of_improvement,
    subset_shares,
    variance_shares,
    weak_evidence,
)

#: (category, metric, method)
ResultKey = tuple[str, str, str]


class Evidence(enum.Enum):
    """The values that intervals are computed over, which decides what verdicts are about.

    - ``SEARCHES``: repeated searches of each method; verdicts are about the losses.
    - ``SUBSETS``: all subsets of the trials of one random search; verdicts are about the losses.
    - ``SETTINGS``: retrainings of the winner of one search; verdicts are about these settings.
    - ``VALUES``: trainings with fixed values; verdicts are about these values.
    """

    SEARCHES = "searches"
    SUBSETS = "subsets"
    SETTINGS = "settings"
    VALUES = "values"

    @property
    def repeats(self) -> str:
        """Name of the units that n counts in tables."""
        return {
            Evidence.SEARCHES: "searches",
            Evidence.SUBSETS: "effective trials of one random search",
            Evidence.SETTINGS: "reproductions of one search's winner",
            Evidence.VALUES: "reproductions",
        }[self]

    @property
    def of_losses(self) -> bool:
        """Whether verdicts are about the losses tuned with this budget."""
        return self in (Evidence.SEARCHES, Evidence.SUBSETS)


@dataclass(frozen=True)
class Progress:
    """Progress of a method in a stage; ``planned`` is ``None`` if it is not known."""

    done: int
    planned: int | None

    @property
    def missing(self) -> bool:
        """Whether some of the planned work is not complete."""
        return self.planned is not None and self.done < self.planned

    def __str__(self) -> str:
        return str(self.done) if self.planned is None else f"{self.done} of {self.planned}"


class Summary:
    """A read-only view of the results, in the order of tables and figures."""

    def __init__(self, results: ExperimentResults) -> None:
        self.results = results
        self._estimates: dict[tuple[str, str], dict[str, Estimate]] = {}
        self._comparisons: dict[str, dict[str, tuple[Comparison, ...]]] = {}

    def _protocol(self, key: str) -> Any:
        """Return a setting of the protocol by its dotted key, or ``None`` if it is not set."""
        return value_at(self.results.config, f"protocol.{key}")

    @cached_property
    def records(self) -> dict[str, MethodResults]:
        """The records of each method, by its name."""
        return {method.name: method for method in self.results.methods}

    @cached_property
    def evidence(self) -> Evidence:
        """The values that intervals are computed over."""
        searches = {row.search for row in self.results.rows} - {None}
        if not searches:
            return Evidence.VALUES
        if self._protocol("search.budget"):
            return Evidence.SUBSETS
        return Evidence.SEARCHES if len(searches) > 1 else Evidence.SETTINGS

    @cached_property
    def rows(self) -> dict[ResultKey, list[ResultRow]]:
        """The rows by category, metric and method, sorted by reproduction."""
        rows: dict[ResultKey, list[ResultRow]] = {}
        for row in sorted(self.results.rows, key=lambda row: row.reproduction):
            rows.setdefault((row.category, row.metric, row.method), []).append(row)
        return rows

    @cached_property
    def repeats(self) -> dict[ResultKey, dict[int, tuple[float, ...]]]:
        """The values of the reproductions of each search, or of each reproduction on its own."""
        return {key: self._by_repeat(rows) for key, rows in self.rows.items()}

    def _by_repeat(self, rows: Sequence[ResultRow]) -> dict[int, tuple[float, ...]]:
        """Return the values of rows by the number of their repeat, see :meth:`_repeat_of`."""
        repeats: dict[int, tuple[float, ...]] = {}
        for row in rows:
            repeat = self._repeat_of(row)
            repeats[repeat] = (*repeats.get(repeat, ()), float(row.value))
        return repeats

    def _repeat_of(self, row: ResultRow) -> int:
        """Return the number of a row's search, or of its reproduction without repeated searches."""
        if self.evidence is Evidence.SEARCHES and row.search is not None:
            return row.search
        return row.reproduction

    @cached_property
    def titles(self) -> dict[str, str]:
        """The titles of the three metrics of tables, by name."""
        return {name: self.results.metric(name).title for name in METRICS}

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """Names of the methods in the experiment's order."""
        return tuple(dict.fromkeys([*self.records, *(row.method for row in self.results.rows)]))

    @cached_property
    def ranked(self) -> tuple[str, ...]:
        """The methods by MAP@R in the first category with results, the best first."""
        estimates = next(filter(None, map(self.estimates, self.categories)), {})
        return tuple(sorted(self.methods, key=lambda method: rank_key(estimates.get(method))))

    @cached_property
    def origins(self) -> dict[str, str]:
        """The output folder of each method; empty if there is only one folder."""
        return {method.name: method.origin for method in self.results.methods if method.origin}

    @cached_property
    def categories(self) -> tuple[str, ...]:
        """Categories that the experiment asks for or has results in, in the order of tables."""
        asked = self._protocol("categories") or ()
        present = {*asked, *(row.category for row in self.results.rows)}
        return tuple(dict.fromkeys([c for c in CATEGORIES if c in present] + sorted(present)))

    @cached_property
    def controls(self) -> dict[str, str]:
        """The method that each control is a second copy of, by the name of the control."""
        return {m.name: m.control_of for m in self.results.methods if m.control_of is not None}

    def samples(self, category: str, metric: str) -> dict[str, tuple[float, ...]]:
        """Return each method's values: of its reproductions, or the means of its searches."""
        return {
            method: tuple(map(fmean, repeats.values()))
            for method in self.methods
            if (repeats := self.repeats.get((category, metric, method)))
        }

    def estimates(self, category: str, metric: str = PRIMARY) -> dict[str, Estimate]:
        """Return the estimate of each method that has results, with its interval over repeats.

        Before the experiment is finished, estimates have no intervals.
        """
        if (category, metric) not in self._estimates:  # cached, since every section uses them
            estimates = {}
            for method in self.methods:
                if rows := self.rows.get((category, metric, method)):
                    estimate = self.estimate(rows)
                    if self.evidence is Evidence.SEARCHES:
                        estimate = allow_for_skew(estimate, self._search_trials(method))
                    if not self.results.finished:
                        estimate = replace(estimate, half_width=None, error=None, deleted=())
                    estimates[method] = estimate
            self._estimates[category, metric] = estimates
        return self._estimates[category, metric]

    def _search_trials(self, method: str) -> Any:
        """Return the number of trials of each search of a method."""
        # A method may have a number of its own.
        own_number = self.results.settings_of(method).get("trials")
        return own_number or self._protocol("search.trials")

    def estimate(self, rows: Sequence[ResultRow]) -> Estimate:
        """Return the estimate of a method.

        Args:
            rows: at least one row of a method, category and metric; or differences of such rows.
        """
        if self.evidence is Evidence.SUBSETS:
            return all_subsets(*self.subsets(rows), self.budget, not self.scores_own_networks)
        return over_searches(list(self._by_repeat(rows).values()))

    def weaknesses(self, category: str) -> dict[str, Weakness]:
        """Return why intervals of MAP@R may not hold, or are missing, by method.

        :func:`weak_evidence` is for all subsets of one search whose trials were selected by MAP@R
        too. Diverged retrainings, which count as 0, are named with any evidence.
        """
        found = {}
        for method, estimate in self.estimates(category).items():
            weakness = None
            if self.evidence is Evidence.SUBSETS and self.results.selected_by.name == PRIMARY:
                rows = self.rows[category, PRIMARY, method]
                weakness = weak_evidence(*self.subsets(rows), self.budget, estimate)
            if estimate.half_width is not None:
                weakness = self.divergence(category, method) or weakness
            if weakness:
                found[method] = weakness
        return found

    def divergence(self, category: str, method: str) -> Weakness | None:
        """Return how many retrainings of a method diverged, or ``None`` if none did."""
        runs = getattr(self.records.get(method), stage_of(category), ())
        diverged = sum(run.diverged is not None for run in runs)
        return Weakness("diverged", diverged, len(runs)) if diverged else None

    @cached_property
    def budget_curves(self) -> dict[str, dict[int, Estimate]]:
        """The estimates in the first category by number of trials, for each method.

        Only finished results over all subsets of one random search have such curves. Controls have
        none.
        """
        curves = {}
        if self.evidence is Evidence.SUBSETS and self.results.finished:
            for method in self.methods:
                rows = self.rows.get((self.categories[0], PRIMARY, method))
                if rows and method not in self.controls:
                    curves[method] = budget_curve(*self.subsets(rows), not self.scores_own_networks)
        return {method: curve for method, curve in curves.items() if curve}

    def scatter(self, category: str, method: str) -> Shares:
        """Return the variances of a method's MAP@R between searches and between retrainings.

        With all subsets of one search, or with one training of every winner, the first contains
        both and the second is 0. It follows from the error sd √Σw² and the degrees of freedom
        1 / Σw² − 1 of an estimate with weights w (1 / K each for K searches).
        """
        repeats = self.repeats.get((category, PRIMARY, method), {})
        if self.evidence is Evidence.SEARCHES and max(map(len, repeats.values()), default=0) > 1:
            return variance_shares(list(repeats.values()))
        estimate = self.estimates(category).get(method)
        if not self.evidence.of_losses or estimate is None or estimate.error is None:
            return Shares(None, None)
        assert estimate.degrees is not None
        return Shares(estimate.error**2 * (estimate.degrees + 1), 0.0)

    def shares(self, category: str, method: str) -> dict[int, float]:
        """Return the weight of each reproduction in a method's estimate; weights sum to 1."""
        rows = self.rows[category, PRIMARY, method]
        if self.evidence is not Evidence.SUBSETS:
            # A mean of means: repeats count equally, and so do the values of one repeat.
            sizes = Counter(map(self._repeat_of, rows))
            return {r.reproduction: 1 / (sizes[self._repeat_of(r)] * len(sizes)) for r in rows}
        share = subset_shares(*self.subsets(rows), self.budget)
        position = self._positions(method)
        times = Counter(row.trial for row in rows)  # how often each trial was retrained
        return {
            row.reproduction: share.get(position.get(row.trial, -1), 0.0) / times[row.trial]
            for row in rows
        }

    @property
    def scores_own_networks(self) -> bool:
        """Whether test scores are those of the networks of the searches, not of retrainings."""
        return self._protocol("search.retrain") == "none"

    @property
    def scored_title(self) -> str:
        """The heading of the number of trainings that were scored on the test classes."""
        return "Own networks" if self.scores_own_networks else "Reproductions"

    @property
    def budget(self) -> int:
        """Number of trials for which scores are estimated from one random search."""
        return int(self._protocol("search.budget"))

    def subsets(self, rows: Sequence[ResultRow]) -> tuple[list[float], dict[int, float]]:
        """Return the validation score of each trial, and the test scores of retrained trials.

        Test scores are by position among the validation scores. The method of the rows must have
        one random search (:attr:`Evidence.SUBSETS`).
        """
        method = rows[0].method
        trials = [t for t in self.records[method].search if t.state == "complete"]
        position = self._positions(method)
        # A trial that diverged counts as 0, so its score is known without a retraining.
        tests: dict[int, list[float]] = {
            number: [0.0] for number, trial in enumerate(trials) if trial.diverged is not None
        }
        for row in rows:
            if row.trial in position:
                tests.setdefault(position[row.trial], []).append(float(row.value))
        return ranking_scores(trials), {number: fmean(values) for number, values in tests.items()}

    def _positions(self, method: str) -> dict[int | None, int]:
        """Return the position of each complete trial among these, by the trial's number."""
        complete = [t for t in self.records[method].search if t.state == "complete"]
        return {trial.trial_index: number for number, trial in enumerate(complete)}

    def comparisons(self, category: str, metric: str = PRIMARY) -> tuple[Comparison, ...]:
        """Return the comparisons of all pairs of methods; the best two methods come first.

        All tables, verdicts, figures and files show these comparisons. Controls are compared only
        with their own methods, see :meth:`control_differences`. There are none before the
        experiment is finished.
        """
        if not self.results.finished:
            return ()
        if metric not in self._comparisons:
            estimates = {
                each: {
                    m: e for m, e in self.estimates(each, metric).items() if m not in self.controls
                }
                for each in self.categories
            }
            found = compare_estimates(
                estimates,
                lambda each, a, b: self.shared_draws((each, metric, a), (each, metric, b)),
            )
            self._comparisons[metric] = {
                each: tuple(
                    replace(pair, improvement=self._improvement(each, metric, pair))
                    for pair in pairs
                )
                for each, pairs in found.items()
            }
        return self._comparisons[metric].get(category, ())

    def shared_draws(self, first: ResultKey, second: ResultKey) -> float:
        """Return the share of their draws that two results have in common.

        Trials of one number have the same draw for each name that both methods search, if they are
        drawn at random, of one seed, and neither method has draws of its own. The share is 0 also
        if other units are complete in one than in the other. See :func:`estimate_difference`.
        """
        if not self.evidence.of_losses:
            return 0.0
        records = [self.records[key[2]] for key in (first, second)]
        seeds = {folder.label: folder.seed for folder in self.results.folders}
        if any(record.has_own_draws for record in records) or (
            seeds.get(records[0].origin) != seeds.get(records[1].origin)
        ):
            return 0.0
        subsets = self.evidence is Evidence.SUBSETS
        # The numbers of the trials, searches or reproductions that each result comes from
        units = [
            (self._positions(key[2]) if subsets else self.repeats[key]).keys()
            for key in (first, second)
        ]
        names = [{*record.searched} for record in records]
        most = max(map(len, names))
        if not most or units[0] != units[1]:
            return 0.0
        share = len(names[0] & names[1]) / most
        if self._protocol("search.sampler") in (None, *INDEPENDENT):
            return share
        # A sampler that learns draws only its first trials at random.
        trials = max(self._search_trials(record.name) for record in records)
        return share * min(1.0, self._protocol("search.startup_trials") / trials)

    def _improvement(self, category: str, metric: str, pair: Comparison) -> Bounds | None:
        """Return the probability that the first method's score is above the other's."""
        if self.evidence is not Evidence.SUBSETS:
            samples = self.samples(category, metric)
            return probability_of_improvement(samples[pair.better], samples[pair.other])
        values, weights = [], []
        for name in (pair.better, pair.other):
            validation, tests = self.subsets(self.rows[category, metric, name])
            shares = subset_shares(validation, tests, self.budget)
            values.append([tests[trial] for trial in shares])
            weights.append(list(shares.values()))
        return probability_of_improvement(values[0], values[1], (weights[0], weights[1]))

    def control_differences(self, category: str) -> dict[str, Difference]:
        """Return the difference of each control from the method that it is a copy of."""
        estimates = self.estimates(category)
        return {
            control: estimate_difference(
                estimates[control],
                estimates[method],
                self.shared_draws((category, PRIMARY, control), (category, PRIMARY, method)),
            )
            for control, method in self.controls.items()
            if {control, method} <= set(estimates)
        }

    @cached_property
    def baselines(self) -> dict[str, dict[str, list[float]]]:
        """The values of each baseline, by its name and by metric."""
        values: dict[str, dict[str, list[float]]] = {}
        for row in self.results.baselines:
            values.setdefault(row.method, {}).setdefault(row.metric, []).append(float(row.value))
        return values

    @cached_property
    def final_metrics(self) -> dict[str, str]:
        """Printed names of the measured metrics that were asked for in addition to the three."""
        asked = self._protocol("final_metrics")
        present = {row.metric for row in (*self.results.rows, *self.results.baselines)}
        return {name: self.results.metric(name).title for name in asked or () if name in present}

    def progress(self, method: MethodResults, stage: Stage) -> Progress:
        """Return the number of complete and of planned trials of a stage."""
        records: tuple[TrialRecord, ...] = getattr(method, stage)
        done = sum(record.state == "complete" for record in records)
        asked = {
            Stage.SEARCH: method.searched,
            Stage.REPRODUCTIONS: self.categories != ("complete",) or records,
            Stage.FINAL: "complete" in self.categories,
        }
        if not asked[stage]:  # the experiment does not have the stage
            return Progress(done, None)
        planned = self._planned(method.name, stage)
        return Progress(done, max(planned or 0, len(records)) or planned)

    def planned_repeats(self, method: MethodResults, stage: Stage) -> int | None:
        """Return the planned number of repeats in a method's estimate, or ``None`` if unknown."""
        if self.evidence is Evidence.SUBSETS:
            return None  # estimates show missing retrainings themselves
        if self.evidence is Evidence.SEARCHES:
            return len({trial.search for trial in method.search}) or None
        return self.progress(method, stage).planned

    def _planned(self, method: str, stage: Stage) -> int | None:
        """Return the planned number of trials or runs of a stage, over all searches."""
        repeats = self._protocol("search.repeats") or 1
        if stage is Stage.SEARCH:
            count = self._search_trials(method)
        else:
            count = self._protocol("reproductions")
            # The trials that are retrained: the best few of one search, or the winner of each
            repeats = self._protocol("search.retrain_best") or repeats
        return count * repeats if isinstance(count, int) else None


def rank_key(estimate: Estimate | None) -> float:
    """Return a sort key: the highest mean comes first, what has no finite mean last."""
    mean = math.nan if estimate is None else estimate.mean
    return -mean if math.isfinite(mean) else math.inf


def retrained_trials(method: MethodResults) -> list[TrialRecord]:
    """Return the trials that are retrained, or the best trials so far of unfinished searches."""
    if method.retrained:
        trials = {(trial.search, trial.trial_index): trial for trial in method.search}
        return [trials[key] for key in method.retrained if key in trials]
    best: dict[int, TrialRecord] = {}
    usable = (trial for trial in method.search if completed(trial) and trial.diverged is None)
    for trial in sorted(usable, key=lambda trial: -(trial.value or 0.0)):
        best.setdefault(trial.search, trial)  # the first of equally good ones
    return [best[search] for search in sorted(best)]


def winner(method: MethodResults) -> TrialRecord | None:
    """Return the best trial of all searches of a method, or ``None`` if there is none."""
    return max(retrained_trials(method), key=lambda trial: trial.value or 0.0, default=None)


def completed(record: TrialRecord) -> bool:
    """Whether the record is finished and has a finite value."""
    value = record.value
    return record.state == "complete" and value is not None and math.isfinite(value)


def sound_reproductions(method: MethodResults) -> list[TrialRecord]:
    """Return the reproductions that are finished, finite and did not diverge."""
    return [run for run in method.reproductions if completed(run) and not run.diverged]
