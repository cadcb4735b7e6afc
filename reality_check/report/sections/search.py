"""The searches: their budgets, their winners, and which hyper-parameters mattered."""

from __future__ import annotations

from reality_check.config.metrics import STAGES, Metric
from reality_check.report.sections.blocks import (
    Block,
    Bullets,
    Folded,
    Footnote,
    PlainTable,
    Section,
)
from reality_check.report.summary import Summary, completed, winner
from reality_check.report.wording import NOTHING, counted, listed, parameter, percent, score_text
from reality_check.results import MethodResults

#: Fewest trials from which the importance of parameters is reported.
_MIN_TRIALS = 4

_FOOTNOTE = (
    "Functional ANOVA with a random forest, over the searched ranges; what parameters do only "
    "together is in no share. A wide range makes a parameter important. Diverged trials are left "
    "out."
)


def search_section(summary: Summary) -> Section:
    """Return the section with the winners and budgets of the searches."""
    results, metric = summary.results, summary.results.selected_by
    trials = [trial for method in results.methods for trial in method.search]
    diverged = sum(trial.diverged is not None for trial in trials)
    sentence = (
        f"{counted(len(trials), 'trial')}, {diverged} diverged (a diverged trial uses up budget "
        f"and counts as {'0' if metric.percent else 'the worst'}). Values are validation "
        f"{metric.title}, mean over folds."
    )
    budgets = Folded("What each method was given", (_budget_table(summary),))
    blocks: list[Block] = [sentence, _winner_table(summary), budgets]
    if any(trial.stopped_after for trial in trials):
        blocks.append(Folded("Which trials the race stopped", (_race_table(summary),)))
    return Section("search", "Search and budget", tuple(blocks))


def _race_table(summary: Summary) -> PlainTable:
    """Return the table of the trials that were stopped, and of the trainings that this saved."""
    trials = {method.name: method.search for method in summary.results.methods if method.search}
    folds = max(len(trial.fold_values) for search in trials.values() for trial in search)
    ends = {t.stopped_after for search in trials.values() for t in search}
    stops = sorted(end for end in ends if end is not None)
    rows = []
    for name, search in trials.items():
        trained = [folds if t.stopped_after is None else t.stopped_after for t in search]
        counts = [
            f"{count} (at best no. {sum(other > stop for other in trained) + 1})"
            if (count := trained.count(stop))
            else NOTHING
            for stop in stops
        ]
        saved = 1 - sum(trained) / (folds * len(search))
        rows.append((name, *counts, str(trained.count(folds)), f"{percent(saved, 0)} %"))
    titles = (f"Stopped after {counted(stop, 'fold')}" for stop in stops)
    return PlainTable(
        "The race: how many trials were stopped when, as they could hardly be among the best any "
        "more, and how much of the trainings that saved. A trial that was stopped has no value of "
        "its own; it counts as just worse than all that were trained to the end.",
        ("Method", *titles, "Trained to the end", "Saved"),
        tuple(rows),
    )


def _budget_table(summary: Summary) -> PlainTable:
    """Return the table with the numbers of trials and runs of each method."""
    titles = "Search trials", summary.scored_title, "Complete runs"
    header = ("Method", *titles, "Diverged", "Failed")
    rows = []
    for method in summary.results.methods:
        records = method.search + method.reproductions + method.final
        progress = [summary.progress(method, stage) for stage in STAGES]
        # Of the search, and of reproductions and complete runs
        search, *runs = (str(p) if p.done or p.planned else NOTHING for p in progress)
        if not method.searched:
            search += " (nothing to search)"
        diverged = sum(record.diverged is not None for record in records)
        failed = sum(record.state == "failed" for record in records)
        rows.append((method.name, search, *runs, str(diverged), str(failed)))
    return PlainTable("Budget: what each method was given.", header, tuple(rows))


def _winner_table(summary: Summary) -> PlainTable:
    """Return the table of the winning trial of each method, with its hyper-parameters."""
    metric, words = summary.results.selected_by, ("Method", "Loss", "Hyper-parameters")
    return PlainTable(
        f"Winners of the searches: best validation {metric.title} (mean over folds), and where "
        "each fold had its best epoch.",
        (*words, "Trial", f"Validation {metric.title}", "Best epochs"),
        tuple(_winner_row(method, metric) for method in summary.results.methods),
        words,
    )


def _winner_row(method: MethodResults, metric: Metric) -> tuple[str, ...]:
    """Return the row of a method's winner, or one that says why there is none."""
    geometry = "" if method.normalize_embeddings else " (embeddings not normalised)"
    names = method.name, method.loss + geometry
    best = winner(method)
    if best is None:
        why = "no trial yet"
        if method.search:
            why = "every trial diverged or failed"
        elif method.final or not method.searched:
            why = "none searched"
        return (*names, why, NOTHING, NOTHING, NOTHING)
    parameters = [f"{name} = {parameter(value)}" for name, value in best.params.items()]
    return (
        *names,
        "\n".join(parameters) or "none searched",
        str(best.trial_index),
        score_text(best.value, metric),
        ", ".join(map(str, best.fold_epochs)) or NOTHING,
    )


def parameters_section(summary: Summary) -> Section | None:
    """Return the section, or ``None`` before any searched method has four sound trials."""
    searched = [
        m for m in summary.results.methods if m.searched and len(_sound_scores(m)) >= _MIN_TRIALS
    ]
    if not searched:
        return None
    blocks: list[Block] = [Bullets(tuple(map(_importance_sentence, searched)))]
    rows = [
        (method.name, name, percent(share, 0), percent(method.importance.noise, 0))
        for method in searched
        if method.importance is not None
        for name, share in method.importance.shares.items()
    ]
    if rows:
        caption = (
            f"Share of the variance of validation {summary.results.selected_by.title} that each "
            "parameter explains alone, and the largest share in up to 19 shuffles of the scores "
            "among the trials: chance alone exceeds it in one search of twenty."
        )
        header = ("Method", "Parameter", "Share (%)", "Shuffled (%)")
        blocks += [PlainTable(caption, header, tuple(rows), header[:2]), Footnote(_FOOTNOTE)]
    return Section("parameters", "What the searches were sensitive to", tuple(blocks))


def _importance_sentence(method: MethodResults) -> str:
    """Return a sentence on the parameters that mattered in the search of a method."""
    importance, trials = method.importance, counted(len(_sound_scores(method)), "sound trial")
    if importance is None:
        if len(method.searched) == 1:
            return f"{method.name}: only {method.searched[0]} was searched."
        return (
            f"{method.name}: {trials} of {len(method.searched)} parameters are too few to tell "
            "which of them mattered."
        )
    clear = [
        f"{name} ({percent(share, 0)} %)"
        for name, share in importance.shares.items()
        if share > importance.noise
    ]
    if not clear:
        return (
            f"{method.name}: no parameter stands out in {importance.trials} trials; with shuffled "
            f"scores the largest share is {percent(importance.noise, 0)} %."
        )
    others = ""
    if len(clear) < len(importance.shares):
        others = "; no other share exceeds that of shuffled scores"
    return (
        f"{method.name}: the score varied with {listed(clear)} in {importance.trials} "
        f"trials{others}."
    )


def _sound_scores(method: MethodResults) -> list[float]:
    """Return the scores of complete trials that did not diverge."""
    return [t.value or 0.0 for t in method.search if completed(t) and t.diverged is None]
