"""The trials of each method by parameter, and its learning curves."""

from __future__ import annotations

from functools import partial

from reality_check.config.metrics import Metric
from reality_check.report.figures.plotting import ReportFigure
from reality_check.report.figures.search import UNTRAINED_EPOCHS, method_figure
from reality_check.report.sections.blocks import Folded, Section
from reality_check.report.summary import Summary, winner
from reality_check.report.wording import counted, file_name, listed, parameter, score_text
from reality_check.results import MethodResults, TrialRecord


def methods_section(summary: Summary) -> Section | None:
    """Return the section, or ``None`` before anything was trained."""
    names = [method.name for method in summary.results.methods]
    folds = []
    for method in summary.results.methods:
        best = winner(method)
        runs = [run for run in method.reproductions if any(run.curves)]
        if runs or (best is not None and (method.searched or best.curves)):
            stem = f"method_{file_name(method.name, names)}"
            figure = _figure(method, runs, best, summary.results.selected_by, stem)
            folds.append(Folded(method.name, (figure,)))
    text = "For each method: its search, and how the networks learned; every trial: trials.csv."
    return Section("methods", "Method by method", (text, *folds)) if folds else None


def _figure(
    method: MethodResults,
    runs: list[TrialRecord],
    best: TrialRecord | None,
    metric: Metric,
    stem: str,
) -> ReportFigure:
    """Return the figure of a method's trials by parameter, and of its learning curves.

    Args:
        method: the method.
        runs: its reproductions with learning curves.
        best: the winning trial of its search, if there is one.
        metric: the metric of the validation scores.
        stem: file name of the figure without suffix.
    """
    caption, alt = [f"{method.name}: validation {metric.title}."], [f"{method.name}:"]
    if method.searched and best is not None:
        caption.append(
            "By parameter: every trial; the diamond is the winner, crosses at the bottom edge "
            "diverged."
        )
        alt.append(f"validation of the trials against {listed(list(method.searched))}, the best")
        pairs = [f"{key} = {parameter(value)}" for key, value in best.params.items()]
        alt.append(f"{score_text(best.value, metric)} at {listed(pairs)}.")
    if runs or (best is not None and best.curves):
        caption.append(
            "By fold: every reproduction, and dashed the winning trial of the search; the dot is "
            f"the best trained epoch, whose network is scored. {UNTRAINED_EPOCHS}"
        )
        texts = []
        for fold in range(max((len(run.curves) for run in runs), default=0)):
            values = [run.fold_values[fold] for run in runs if fold < len(run.fold_values)]
            mean = sum(values) / len(values) if values else None
            texts.append(f"fold {fold} {score_text(mean, metric)}")
        unit = " in percent" if metric.percent else ""
        best_of = f"; mean best validation{unit}: {listed(texts)}" if texts else ""
        alt.append(f"Learning curves of {counted(len(runs), 'reproduction')}{best_of}.")
    draw = partial(method_figure, method, runs, metric)
    return ReportFigure(stem, " ".join(caption), " ".join(alt), draw, paper=False)
