"""The searches: what each method was given, and what won."""

from __future__ import annotations

from typing import Any

from reality_check.config.metrics import STAGES
from reality_check.report.figures.plotting import ReportFigure
from reality_check.report.figures.search import search_figure
from reality_check.report.sections.blocks import Block, Folded, PlainTable, Section
from reality_check.report.summary import Progress, Summary, records_of, winner
from reality_check.report.text import NOTHING, counted, parameter, percent
from reality_check.results import MethodResults
from reality_check.utils.text import duration


def search_section(summary: Summary) -> Section:
    """Return the section."""
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
        best = winner(method)
        value = (
            f"best {100 * (best.value or 0.0):.2f} % at trial {best.trial_index}"
            if best
            else "none"
        )
        parts.append(f"{method.name}: {len(method.search)} trials, {value}.")
    alt = " ".join(["Search history of each method.", *parts])
    return [
        ReportFigure("search_history", caption, alt, lambda: search_figure(summary), paper=False)
    ]


def budget_table(summary: Summary) -> PlainTable:
    """What each method was given: trials, runs, time, and workers lost on the way."""
    return PlainTable(
        "Budget: what each method was given.",
        (
            "Method",
            "Search trials",
            "Diverged",
            "Failed",
            "Reproductions",
            "Complete runs",
            "Training time",
            "Attempts",
            "Workers lost",
        ),
        tuple(_budget_row(summary, method) for method in summary.results.methods),
    )


def _budget_row(summary: Summary, method: MethodResults) -> tuple[str, ...]:
    records = records_of(method)
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
    return (
        method.name,
        method.loss + geometry,
        parameters_text(best.params) or "none searched",
        str(best.trial_index),
        percent(best.value),
        ", ".join(map(str, best.fold_epochs)) or NOTHING,
    )


def parameters_text(params: dict[str, Any]) -> str:
    """One line a parameter: ``"loss.scale = 23.2\nlearning_rates.loss = 1e-06"``."""
    return "\n".join(f"{name} = {parameter(value)}" for name, value in params.items())
