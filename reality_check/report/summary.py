"""What the sections of the report have in common: the results sorted, counted and compared."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from reality_check.config.metrics import CATEGORIES, METRICS, PRIMARY, Stage, title
from reality_check.report.statistics import Comparison, compare_pairs
from reality_check.results import ExperimentResults, Folder, MethodResults, TrialRecord

_PLANS = {
    Stage.SEARCH: ("protocol", "search", "trials"),
    Stage.REPRODUCTIONS: ("protocol", "reproductions"),
    Stage.FINAL: ("protocol", "reproductions"),
}


@dataclass(frozen=True)
class Progress:
    """How far one method is in one stage; ``planned`` is ``None`` where nobody says."""

    done: int
    planned: int | None

    @property
    def missing(self) -> bool:
        """Whether some of the planned work is not complete."""
        return self.planned is not None and self.done < self.planned

    def __str__(self) -> str:
        if self.planned is None:
            return str(self.done)
        return f"{self.done} of {self.planned}"


class Summary:
    """Read-only view of the results, in the order in which tables and figures show them."""

    def __init__(self, results: ExperimentResults) -> None:
        self.results = results

    @cached_property
    def values(self) -> dict[tuple[str, str, str], dict[int, float]]:
        """By (category, metric, method): the value of each reproduction, in their order."""
        values: dict[tuple[str, str, str], dict[int, float]] = {}
        for row in sorted(self.results.rows, key=lambda row: row.reproduction):
            key = (row.category, row.metric, row.method)
            values.setdefault(key, {})[row.reproduction] = float(row.value)
        return values

    @cached_property
    def methods(self) -> tuple[str, ...]:
        """Names of the methods in the experiment's order."""
        named = [method.name for method in self.results.methods]
        return tuple(dict.fromkeys(named + [row.method for row in self.results.rows]))

    @cached_property
    def origins(self) -> dict[str, str]:
        """By method, the output folder it comes from; empty where there is only one."""
        return {method.name: method.origin for method in self.results.methods if method.origin}

    def folder_of(self, method: str) -> Folder | None:
        """The output folder that a method comes from; ``None`` in the report of a folder itself."""
        folders, label = self.results.folders, self.origins.get(method)
        return next((f for f in folders if len(folders) == 1 or f.label == label), None)

    @cached_property
    def categories(self) -> tuple[str, ...]:
        """Categories that the experiment asks for or has results in, in the tables' order."""
        asked = _lookup(self.results.config, "protocol", "categories")
        wanted = [c for c in asked if isinstance(c, str)] if isinstance(asked, list) else []
        present = {row.category for row in self.results.rows} | set(wanted)
        return tuple(dict.fromkeys([c for c in CATEGORIES if c in present] + sorted(present)))

    def samples(self, category: str, metric: str) -> dict[str, tuple[float, ...]]:
        """The values of each method that has some, one per reproduction."""
        runs = {m: self.values.get((category, metric, m), {}) for m in self.methods}
        return {method: tuple(values.values()) for method, values in runs.items() if values}

    def comparisons(self, category: str, metric: str = PRIMARY) -> tuple[Comparison, ...]:
        """Every pair of methods on one metric in one category; the best two come first."""
        return compare_pairs(self.samples(category, metric))

    @cached_property
    def other_geometries(self) -> dict[str, str]:
        """Metrics measured on the geometry a method does not use, with their printed names."""
        present = {row.metric for row in self.results.rows}
        names = {"_raw": "raw embeddings", "_normalized": "normalised embeddings"}
        return {
            metric + suffix: f"{label} ({text})"
            for suffix, text in names.items()
            for metric, label in METRICS.items()
            if metric + suffix in present
        }

    @cached_property
    def final_metrics(self) -> dict[str, str]:
        """Metrics asked for in addition to the three and measured, with their printed names."""
        asked = _lookup(self.results.config, "protocol", "final_metrics")
        present = {row.metric for row in (*self.results.rows, *self.results.baselines)}
        return {name: title(name) for name in asked or () if name in present}

    def progress(self, method: MethodResults, stage: Stage) -> Progress:
        """How many trials of a stage are complete, and how many there will be."""
        records: tuple[TrialRecord, ...] = getattr(method, stage)
        done = sum(record.state == "complete" for record in records)
        if stage is Stage.SEARCH and not method.searched:
            return Progress(done, None)
        if stage is Stage.FINAL and "complete" not in self.categories:
            return Progress(done, None)
        if stage is Stage.REPRODUCTIONS and self.categories == ("complete",) and not records:
            return Progress(done, None)
        planned = _lookup(self.results.config, *_PLANS[stage])
        known = len(records) or None
        return Progress(done, max(planned, len(records)) if isinstance(planned, int) else known)


def winner(method: MethodResults) -> TrialRecord | None:
    """The trial whose parameters are reproduced; before the search is complete, the best so far."""
    if method.winner is not None:
        return next((t for t in method.search if t.trial_index == method.winner), None)
    able = [t for t in method.search if completed(t) and t.diverged is None]
    return max(able, key=lambda trial: (trial.value or 0.0, -trial.trial_index), default=None)


def completed(record: TrialRecord) -> bool:
    """Whether the record is finished and has a finite value."""
    value = record.value
    return record.state == "complete" and value is not None and math.isfinite(value)


def sound_reproductions(method: MethodResults) -> list[TrialRecord]:
    """The reproductions that are finished, finite and did not diverge."""
    return [run for run in method.reproductions if completed(run) and not run.diverged]


def records_of(method: MethodResults) -> tuple[TrialRecord, ...]:
    """Everything recorded about a method, in the order of the stages."""
    return method.search + method.reproductions + method.final


def _lookup(config: Mapping[str, Any], *path: str) -> Any:
    value: Any = config
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value
