"""Method by method: the search with every trial, the winner's hyper-parameters, the curves."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from reality_check.config.metrics import METRICS, PRIMARY, Stage
from reality_check.report.figures.plotting import ReportFigure
from reality_check.report.figures.search import UNTRAINED_NOTE, method_figure
from reality_check.report.sections.blocks import Axis, Block, Folded, PlainTable, Section, Trials
from reality_check.report.sections.search import importance_sentence
from reality_check.report.summary import Summary, completed, winner
from reality_check.report.text import (
    NOTHING,
    counted,
    file_name,
    interval_text,
    listed,
    parameter,
    percent,
)
from reality_check.results import MethodResults, TrialRecord
from reality_check.utils.text import duration

_METRIC = METRICS[PRIMARY]


def methods_section(summary: Summary) -> Section | None:
    """Return the section; ``None`` before anything was trained."""
    shown = [m for m in summary.results.methods if m.search or m.reproductions or m.final]
    if not shown:
        return None
    folds = tuple(Folded(method.name, _about(summary, method)) for method in shown)
    text = "For each method: its search, the trial that won, and how the networks learned."
    return Section("methods", "Method by method", (text, *folds))


def _about(summary: Summary, method: MethodResults) -> tuple[Block, ...]:
    blocks: list[Block] = [_sentence(summary, method)]
    if (best := winner(method)) is not None and best.params:
        blocks.append(_parameters(method, best))
    if method.searched:
        blocks.append(importance_sentence(method))
    runs = [run for run in method.reproductions if any(run.curves)]
    if runs or (best is not None and (method.searched or best.curves)):
        names = [one.name for one in summary.results.methods]
        stem = f"method_{file_name(method.name, names)}"
        blocks.append(_figure(method, runs, best, summary.results.selected_by, stem))
    if method.searched and method.search:
        blocks.append(trials_fold(method, summary.results.selected_by))
    if method.final:
        blocks.append(_complete(summary, method))
    return tuple(blocks)


def _sentence(summary: Summary, method: MethodResults) -> str:
    """The loss, its geometry, and the results in every category."""
    geometry = "unit vectors" if method.normalize_embeddings else "embeddings as they are"
    results = []
    for category in summary.categories:
        if estimate := summary.estimates(category).get(method.name):
            results.append(f"{category} {interval_text(estimate)}")
    scores = f"; test {_METRIC} in percent: {listed(results)}" if results else ""
    return f"Loss {method.loss}, measured on {geometry}{scores}."


def _parameters(method: MethodResults, best: TrialRecord) -> PlainTable:
    shares = method.importance.shares if method.importance is not None else {}
    header = ("Hyper-parameter", "Winner", "Tried", *(["Importance"] if shares else []))
    rows = []
    for name, value in best.params.items():
        row = (name, parameter(value), _extent(method, name))
        share = f"{percent(shares[name], 0)} %" if name in shares else NOTHING
        rows.append((*row, share) if shares else row)
    caption = (
        f"Hyper-parameters of the winner of the search (trial {best.trial_index}, validation "
        f"score {percent(best.value)}), and the values that were tried."
    )
    return PlainTable(caption, header, tuple(rows), words=("Hyper-parameter", "Tried"))


def _extent(method: MethodResults, name: str) -> str:
    """From the lowest to the highest value that a trial had, or every choice."""
    values = [trial.params[name] for trial in method.search if name in trial.params]
    if not values or any(isinstance(v, str | bool) or v is None for v in values):
        return ", ".join(dict.fromkeys(map(str, values)))
    return f"{parameter(min(values))} to {parameter(max(values))}"


def _figure(
    method: MethodResults, runs: list[TrialRecord], best: TrialRecord | None, metric: str, stem: str
) -> ReportFigure:
    """Every trial against each parameter, then the learning curves."""
    caption, alt = [f"{method.name}: validation {metric}."], [f"{method.name}:"]
    if method.searched and best is not None:
        caption.append(
            "By parameter: every trial; the diamond is the winner, crosses at the bottom edge "
            "diverged."
        )
        alt.append(f"validation of the trials against {listed(list(method.searched))}, the best")
        pairs = [f"{key} = {parameter(value)}" for key, value in best.params.items()]
        alt.append(f"{percent(best.value)} at {listed(pairs)}.")
    if runs or (best is not None and best.curves):
        caption.append(
            "By fold: every reproduction, and dashed the winning trial of the search; the dot is "
            f"the best trained epoch, whose network is scored. {UNTRAINED_NOTE}"
        )
        folds = max((len(run.curves) for run in runs), default=0)
        reached = [[r.fold_values[n] for r in runs if n < len(r.fold_values)] for n in range(folds)]
        averages = [sum(values) / len(values) if values else None for values in reached]
        means = [f"fold {n} {percent(average)}" for n, average in enumerate(averages)]
        best_of = f"; mean best validation in percent: {listed(means)}" if means else ""
        alt.append(f"Learning curves of {counted(len(runs), 'reproduction')}{best_of}.")
    draw = partial(method_figure, method, runs, metric)
    return ReportFigure(stem, " ".join(caption), " ".join(alt), draw, paper=False)


def _complete(summary: Summary, method: MethodResults) -> str:
    """How many networks on all trainval classes there are; nothing of theirs was validated."""
    done = [run for run in method.final if run.state == "complete"]
    epochs = [run.params.get("epochs", 0) + run.params.get("follow_up_epochs", 0) for run in done]
    lengths = sorted({count for count in epochs if count})
    long = f" of {listed([str(count) for count in lengths])} epochs" if lengths else ""
    times = [run.seconds for run in done if run.seconds is not None]
    each = f", {duration(sum(times) / len(times))} each on average" if times else ""
    return (
        f"Complete: {counted(len(done), 'training')}{long}{each}; what they logged is in their "
        f"records ({_folder(summary, method)}/{Stage.FINAL})."
    )


def _folder(summary: Summary, method: MethodResults) -> str:
    """Where its records are: beside the report, or in the output folder that it comes from."""
    source = summary.folder_of(method.name)
    if source is None:
        return method.name
    same = method.name in source.methods
    name = method.name if same else method.name.removesuffix(f" ({source.label})")
    return f"{source.path}/{name}"


def trials_fold(method: MethodResults, metric: str = METRICS[PRIMARY]) -> Folded:
    """Return the trials of a method that searched, in their order.

    Args:
        method: that searched.
        metric: what chose among them.
    """
    value = f"validation {metric} (%)"
    trials = sorted(method.search, key=lambda trial: (trial.search, trial.trial_index))
    values = {name: [trial.params.get(name) for trial in trials] for name in method.searched}
    axes = [_axis(name, own, name in method.logarithmic) for name, own in values.items()]
    scores = [100 * (t.value or 0.0) if completed(t) else None for t in trials]
    axes.append(_axis(value, scores, False))
    best = winner(method)
    block = Trials(_table(method, trials, value), tuple(axes), trials.index(best) if best else None)
    return Folded(counted(len(trials), "trial"), (block,), headed=False)


def _axis(name: str, values: list[Any], logarithmic: bool) -> Axis:
    """Numbers lie between the lowest and the highest, choices side by side."""
    known = [value for value in values if value is not None]
    if any(isinstance(value, str | bool) for value in known):
        choices = list(dict.fromkeys(map(str, known)))
        spots = [None if v is None else float(choices.index(str(v))) for v in values]
        return Axis(name, choices[0], choices[-1], _between(spots))
    scale = math.log10 if logarithmic else float
    ends = [parameter(float(f"{end:.4g}")) for end in (min(known), max(known))] if known else []
    low, high = ends or ("", "")
    return Axis(name, low, high, _between([None if v is None else scale(v) for v in values]))


def _between(spots: list[float | None]) -> tuple[float | None, ...]:
    """From 0 to 1; in the middle where all are the same."""
    known = [spot for spot in spots if spot is not None]
    low, width = min(known, default=0.0), max(known, default=0.0) - min(known, default=0.0)
    return tuple(None if s is None else ((s - low) / width if width else 0.5) for s in spots)


def _table(method: MethodResults, trials: list[TrialRecord], value: str) -> PlainTable:
    several = len({trial.search for trial in trials}) > 1
    wordy = {
        name
        for name in method.searched
        if any(isinstance(t.params.get(name), str | bool | None) for t in trials)
    }
    rows = tuple(
        (
            *((str(trial.search),) if several else ()),
            str(trial.trial_index),
            percent(trial.value),
            *(parameter(trial.params.get(name, "")) for name in method.searched),
            duration(trial.seconds),
            "diverged" if trial.diverged is not None else trial.state,
        )
        for trial in trials
    )
    header = (
        *(("Search",) if several else ()), "Trial", value, *method.searched, "Time", "State",
    )  # fmt: skip
    return PlainTable(f"Trials of {method.name}.", header, rows, words=(header[0], *wordy, "State"))
