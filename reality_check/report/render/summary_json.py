"""``summary.json``: the experiment's results as plain data for other programs.

Its keys are a contract (``docs/results.md``): with the same :data:`VERSION`, keys are only ever
added. Metrics are fractions at full precision, unknown values are ``null``, and infinite arguments
are ``1e999``.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Mapping
from typing import Any

from reality_check.config.differences import value_at
from reality_check.config.metrics import METRICS, PRIMARY, STAGES, Stage
from reality_check.report.analysis import Analysis
from reality_check.report.sections.verdict import comparison_records, headline, pair_sentence
from reality_check.report.summary import Summary, winner
from reality_check.report.untrained import CATEGORY
from reality_check.results import ExperimentResults, MethodResults
from reality_check.statistics import CONFIDENCE, Centred, t_interval
from reality_check.utils.text import strict_json

#: Version of the keys, raised when a key is removed, renamed or given another meaning.
VERSION = 3

#: Suffixes of metrics measured in the geometry that a method does not use.
_GEOMETRIES = ("_raw", "_normalized")
#: Keys of values from the experiment's settings, which may be infinite.
_SETTINGS_KEYS = ("arguments", "miner", "params")


def summary_json(data: Mapping[str, Any]) -> str:
    """Return :func:`summary_data` as strict JSON, which every parser reads."""
    return strict_json(data, indent=1, ensure_ascii=False) + "\n"


def summary_data(analysis: Analysis) -> dict[str, Any]:
    """Return the content of ``summary.json``: dicts, lists, texts, numbers and None."""
    summary, results = analysis.summary, analysis.summary.results
    data = {
        "schema": "reality-check-summary",
        "version": VERSION,
        "experiment": _experiment(summary),
        "environment": _environment(summary),
        "metrics": _metrics(summary),
        "methods": [_method(summary, method) for method in results.methods],
        "results": list(_estimates(summary)),
        "baselines": list(_baselines(summary)),
        "basis": summary.evidence.value,
        "controls": [
            {"control": control, "method": summary.controls[control], "category": category}
            | _interval(difference)
            for category in summary.categories
            for control, difference in summary.control_differences(category).items()
        ],
        "budget_curves": [
            {"method": method, "trials": trials} | _interval(estimate)
            for method, curve in summary.budget_curves.items()
            for trials, estimate in curve.items()
        ],
        "verdict": headline(summary),
        "verdicts": list(_verdicts(analysis)),
        "deviations": [
            {"topic": deviation.topic, "text": deviation.text, "serious": deviation.serious}
            for deviation in results.deviations
        ],
        "cost": [
            dataclasses.asdict(cost) | {"method": cost.method or None} for cost in results.costs
        ],
    }
    return dict(finite(data))


def _experiment(summary: Summary) -> dict[str, Any]:
    """Return the settings that identify the experiment."""
    results, config = summary.results, summary.results.config
    return {
        "name": results.name,
        "protocol": results.protocol,
        "reference": results.reference,
        "finished": results.finished,
        "dataset": value_at(config, "dataset.name"),
        "trunk": value_at(config, "model.trunk"),
        "weights": value_at(config, "model.weights"),
        "seed": config.get("seed"),
        "categories": list(summary.categories),
        "confidence": CONFIDENCE,
    }


def _environment(summary: Summary) -> dict[str, Any]:
    """Return the software and the machine of the run."""
    facts = dict(summary.results.facts)
    return {
        "versions": summary.results.versions,
        "machine": facts.get("Machine"),
        "device": facts.get("Device"),
        "gpu": facts.get("GPU"),
        "trained_with": facts.get("Trained with"),
    }


def _metrics(summary: Summary) -> list[dict[str, Any]]:
    """Return the metrics of the results, with their names in tables."""
    rows = (*summary.results.rows, *summary.results.baselines)
    names = dict.fromkeys([*METRICS, *(row.metric for row in rows)])
    return [
        {"name": name, "title": _title(summary.results, name), "primary": name == PRIMARY}
        for name in names
    ]


def _title(results: ExperimentResults, metric: str) -> str:
    """Return the title of a metric, with the geometry if a method does not use it."""
    for ending in _GEOMETRIES:
        if metric.endswith(ending):
            return f"{_title(results, metric.removesuffix(ending))} ({ending[1:]} embeddings)"
    return results.metric(metric).title


def _method(summary: Summary, method: MethodResults) -> dict[str, Any]:
    """Return the settings, the search and the progress of a method."""
    settings = summary.results.settings_of(method.name)
    best = winner(method)
    return {
        "name": method.name,
        "loss": method.loss,
        "arguments": settings.get("arguments") or {},
        "miner": settings.get("miner"),
        "samples_per_class": settings.get("samples_per_class"),
        "normalize_embeddings": method.normalize_embeddings,
        "searched": list(method.searched),
        "control_of": method.control_of,
        "best_trial": None
        if best is None
        else {
            "search": best.search,
            "number": best.trial_index,
            "value": best.value,
            "params": best.params,
        },
        "retrained": [{"search": search, "number": number} for search, number in method.retrained],
        "stages": {stage: _progress(summary, method, stage) for stage in STAGES},
        "columns": [  # the user's own
            {"name": column.name, **dataclasses.asdict(column.description)}
            | {"value": column.value, "problem": column.problem}
            for column in method.columns
        ],
    }


def _progress(summary: Summary, method: MethodResults, stage: Stage) -> dict[str, Any]:
    """Return the numbers of a stage's trials by outcome."""
    progress, records = summary.progress(method, stage), getattr(method, stage)
    return {
        "complete": progress.done,
        "planned": progress.planned,
        "diverged": sum(record.diverged is not None for record in records),
        "failed": sum(record.state == "failed" for record in records),
    }


def _estimates(summary: Summary) -> Iterator[dict[str, Any]]:
    """Yield the estimate of each method by category and metric."""
    # Each pair of category and metric once
    for category, metric in dict.fromkeys((r.category, r.metric) for r in summary.results.rows):
        weaknesses = summary.weaknesses(category) if metric == PRIMARY else {}
        for method, estimate in summary.estimates(category, metric).items():
            yield {
                "method": method,
                "category": category,
                "metric": metric,
                "n": estimate.n,
                "runs": len(summary.rows[category, metric, method]),
                "effective_n": estimate.effective_n,
                "weakness": weaknesses[method]._asdict() if method in weaknesses else None,
                **_interval(estimate),
            }


def _interval(number: Centred) -> dict[str, Any]:
    return {"mean": number.mean, "low": number.low, "high": number.high}


def _baselines(summary: Summary) -> Iterator[dict[str, Any]]:
    """Yield the mean and interval of each baseline and metric."""
    for method, by_metric in summary.baselines.items():
        for metric, values in by_metric.items():
            names = {"method": method, "category": CATEGORY, "metric": metric, "n": len(values)}
            yield names | _interval(t_interval(values))


def _verdicts(analysis: Analysis) -> Iterator[dict[str, Any]]:
    """Yield all pairs as in ``comparisons.csv``, each with its sentence."""
    summary = analysis.summary
    pairs = [pair for category in summary.categories for pair in summary.comparisons(category)]
    for record, pair in zip(comparison_records(analysis), pairs, strict=True):
        yield record | {
            "about": "losses" if summary.evidence.of_losses else "settings",
            "sentence": pair_sentence(pair, summary),
        }


def finite(value: Any, from_settings: bool = False) -> Any:
    """Return JSON data in which numbers that are not finite are None.

    Numbers from the experiment's settings, which ``from_settings`` marks, are kept.
    """
    if isinstance(value, Mapping):
        return {str(k): finite(v, from_settings or k in _SETTINGS_KEYS) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item, from_settings) for item in value]
    if hasattr(value, "item"):  # a NumPy number
        value = value.item()
    if isinstance(value, float):
        return value if from_settings or math.isfinite(value) else None
    return value if isinstance(value, str | int | bool | None) else str(value)
