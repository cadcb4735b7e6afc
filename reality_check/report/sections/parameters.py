"""Which hyper-parameters mattered."""

from __future__ import annotations

from functools import partial

from reality_check.report.figures.plotting import ReportFigure
from reality_check.report.figures.search import importance_figure
from reality_check.report.sections.blocks import Block, Bullets, Note, Section
from reality_check.report.summary import Summary, completed
from reality_check.report.text import counted, listed, percent
from reality_check.results import Importance, MethodResults

#: Fewer trials make no slice.
_FEWEST = 4

_IMPORTANCE_NOTE = (
    "Share of the variance of validation {metric} over the searched ranges that each parameter "
    "explains alone (functional ANOVA with a random forest; what parameters do only together is in "
    "none). A wide range makes a parameter important. Diverged trials are left out."
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
    clear = _clear(importance)
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


def _clear(importance: Importance) -> list[str]:
    """Parameters whose share is above what shuffled scores give."""
    return [name for name, share in importance.shares.items() if share > importance.noise]


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
