"""Method by method: every trial of the search by its parameters, and the learning curves."""

from __future__ import annotations

from functools import partial

from reality_check.config.metrics import METRICS, PRIMARY, Stage
from reality_check.report.figures.plotting import ReportFigure
from reality_check.report.figures.search import UNTRAINED_NOTE, method_figure
from reality_check.report.sections.blocks import Block, Folded, Section
from reality_check.report.summary import Summary, winner
from reality_check.report.text import (
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
    text = "For each method: its search, and how the networks learned; every trial: trials.csv."
    return Section("methods", "Method by method", (text, *folds))


def _about(summary: Summary, method: MethodResults) -> tuple[Block, ...]:
    blocks: list[Block] = [_sentence(summary, method)]
    best = winner(method)
    runs = [run for run in method.reproductions if any(run.curves)]
    if runs or (best is not None and (method.searched or best.curves)):
        names = [one.name for one in summary.results.methods]
        stem = f"method_{file_name(method.name, names)}"
        blocks.append(_figure(method, runs, best, summary.results.selected_by, stem))
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
