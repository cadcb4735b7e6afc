"""The searches: what each method was given, what won, and which hyper-parameters mattered."""

from __future__ import annotations

from functools import partial

from reality_check.config.metrics import STAGES
from reality_check.report.figures.plotting import ReportFigure
from reality_check.report.figures.search import importance_figure, search_figure
from reality_check.report.sections.blocks import Block, Bullets, Folded, Note, PlainTable, Section
from reality_check.report.summary import Progress, Summary, completed, winner
from reality_check.report.text import NOTHING, counted, listed, parameter, percent
from reality_check.results import MethodResults
from reality_check.utils.text import duration

#: Fewer trials make no slice.
_FEWEST = 4

_IMPORTANCE_NOTE = (
    "Share of the variance of validation {metric} over the searched ranges that each parameter "
    "explains alone (functional ANOVA with a random forest; what parameters do only together is in "
    "none). A wide range makes a parameter important. Diverged trials are left out."
)


def search_section(summary: Summary) -> Section:
    blocks: tuple[Block, ...] = (
        search_note(summary),
        winner_table(summary),
        Folded("What each method was given", (*_history(summary), budget_table(summary))),
    )
    return Section("search", "Search and budget", blocks)


def search_note(summary: Summary) -> str:
    """One sentence on the share of trials that diverged, for the search figure."""
    trials = [trial for method in summary.results.methods for trial in method.search]
    diverged = sum(trial.diverged is not None for trial in trials)
    return (
        f"{counted(len(trials), 'trial')}, {diverged} diverged (a diverged trial uses up budget "
        f"and counts as 0). Values are validation {summary.results.selected_by}, mean over folds."
    )


def _history(summary: Summary) -> list[ReportFigure]:
    """The figure of all trials; none before the first."""
    if not any(method.search for method in summary.results.methods):
        return []
    caption = (
        f"Validation {summary.results.selected_by} of every search trial (dots, mean over folds), "
        "the best so far (line) and the winner (diamond). A cross on the bottom edge is a trial "
        "that diverged: it counts as 0."
    )
    parts = []
    for method in summary.results.methods:
        value = "none"
        if best := winner(method):
            value = f"best {100 * (best.value or 0.0):.2f} % at trial {best.trial_index}"
        parts.append(f"{method.name}: {len(method.search)} trials, {value}.")
    alt = " ".join(["Search history of each method.", *parts])
    return [
        ReportFigure("search_history", caption, alt, lambda: search_figure(summary), paper=False)
    ]


def budget_table(summary: Summary) -> PlainTable:
    """What each method was given: trials, runs, time, and workers lost on the way."""
    runs = ("Search trials", "Diverged", "Failed", "Reproductions", "Complete runs")
    header = ("Method", *runs, "Training time", "Attempts", "Workers lost")
    rows = tuple(_budget_row(summary, method) for method in summary.results.methods)
    return PlainTable("Budget: what each method was given.", header, rows)


def _budget_row(summary: Summary, method: MethodResults) -> tuple[str, ...]:
    records = method.search + method.reproductions + method.final
    search, runs, complete = (_planned(summary.progress(method, stage)) for stage in STAGES)
    times = [record.seconds for record in records if record.seconds is not None]
    attempts = sum(record.attempts for record in records)
    return (
        method.name,
        search if method.searched else f"{search} (nothing to search)",
        str(sum(record.diverged is not None for record in records)),
        str(sum(record.state == "failed" for record in records)),
        runs,
        complete,
        duration(sum(times)) if times else NOTHING,
        str(attempts) if records else NOTHING,
        str(sum(max(0, record.attempts - 1) for record in records)),
    )


def _planned(progress: Progress) -> str:
    return str(progress) if progress.done or progress.planned else NOTHING


def winner_table(summary: Summary) -> PlainTable:
    """The trial of each method that was reproduced, with its hyper-parameters."""
    metric = summary.results.selected_by
    return PlainTable(
        f"Winners of the searches: best validation {metric} (mean over folds), and where each "
        "fold had its best epoch.",
        ("Method", "Loss", "Hyper-parameters", "Trial", f"Validation {metric}", "Best epochs"),
        tuple(_winner_row(method) for method in summary.results.methods),
        words=("Method", "Loss", "Hyper-parameters"),
    )


def _winner_row(method: MethodResults) -> tuple[str, ...]:
    geometry = "" if method.normalize_embeddings else " (embeddings not normalised)"
    best = winner(method)
    if best is None:
        why = "every trial diverged or failed" if method.search else "no trial yet"
        if not method.search and (method.final or not method.searched):
            why = "none searched"
        return (method.name, method.loss + geometry, why, NOTHING, NOTHING, NOTHING)
    parameters = [f"{name} = {parameter(value)}" for name, value in best.params.items()]
    return (
        method.name,
        method.loss + geometry,
        "\n".join(parameters) or "none searched",
        str(best.trial_index),
        percent(best.value),
        ", ".join(map(str, best.fold_epochs)) or NOTHING,
    )


def parameters_section(summary: Summary) -> Section | None:
    """Return the section; ``None`` before any method that searches has four trials."""
    searched = [m for m in summary.results.methods if m.searched and len(_shown(m)) >= _FEWEST]
    if not searched:
        return None
    known = [method for method in searched if method.importance is not None]
    blocks: list[Block] = [Bullets(tuple(importance_sentence(method) for method in searched))]
    if known:
        note = _IMPORTANCE_NOTE.format(metric=summary.results.selected_by)
        blocks += [_importance(known), Note(note)]
    return Section("parameters", "What the searches were sensitive to", tuple(blocks))


def importance_sentence(method: MethodResults) -> str:
    """Return one sentence on what mattered in the search of a method."""
    importance = method.importance
    if importance is None and len(method.searched) == 1:
        return f"{method.name}: only {method.searched[0]} was searched."
    if importance is None:
        return (
            f"{method.name}: {counted(len(_shown(method)), 'sound trial')} of "
            f"{len(method.searched)} parameters are too few to tell which of them mattered."
        )
    clear = [name for name, share in importance.shares.items() if share > importance.noise]
    if not clear:
        return (
            f"{method.name}: no parameter stands out in {importance.trials} trials; with shuffled "
            f"scores the largest share is {percent(importance.noise, 0)} %."
        )
    shares = [f"{name} ({percent(importance.shares[name], 0)} %)" for name in clear]
    rest = len(importance.shares) > len(clear)
    others = "; no other share exceeds that of shuffled scores" if rest else ""
    return (
        f"{method.name}: the score varied with {listed(shares)} in {importance.trials} "
        f"trials{others}."
    )


def _importance(methods: list[MethodResults]) -> ReportFigure:
    shown = {m.name: m.importance for m in methods if m.importance is not None}
    caption = (
        "Importance of each hyper-parameter. Dashed: the largest share in up to 19 shuffles of the "
        "scores among the trials; chance alone exceeds it in one search of twenty."
    )
    alt = "Importance of the hyper-parameters. " + " ".join(
        f"{name}: "
        + ", ".join(f"{key} {percent(share, 0)} %" for key, share in importance.shares.items())
        + f"; shuffled {percent(importance.noise, 0)} %."
        for name, importance in shown.items()
    )
    return ReportFigure("importance", caption, alt, partial(importance_figure, shown), paper=False)


def _shown(method: MethodResults) -> list[float]:
    return [t.value or 0.0 for t in method.search if completed(t) and t.diverged is None]
