"""Methods compared on their common seeds, and what other test classes would make of it."""

from __future__ import annotations

from functools import partial

from reality_check.config.metrics import METRICS, PRIMARY
from reality_check.report.analysis import AgainstBest, Analysis, Pair
from reality_check.report.figures.comparison import paired_figure
from reality_check.report.figures.plotting import ReportFigure
from reality_check.report.sections.blocks import Block, Bullets, Folded, Note, PlainTable, Section
from reality_check.report.sections.verdict import relations
from reality_check.report.summary import Basis
from reality_check.report.text import NOTHING, counted, listed, p_text, points, true_minus
from reality_check.statistics import Bounds

_METRIC = METRICS[PRIMARY]
_RUNS = (
    "Reproductions of the same number share their seed: weights, batches and augmentation. The "
    "differences here are taken seed by seed, which the verdict above does not do, so that noise "
    "common to two methods cancels out. Pairs of a category are tested together (paired t, Holm)."
)
_INTRODUCTIONS = {
    Basis.SEARCHES: (
        "Searches of the same number share their start-up draws by the names of the parameters, "
        "and their reproductions share seeds. The differences here are taken search by search, "
        "which the verdict above does not do, so that luck common to two methods cancels out. "
        "Pairs of a category are tested together (paired t over the means of searches, Holm)."
    ),
    Basis.SUBSETS: (
        "Trials of the same number share their draws by the names of the parameters. The "
        "differences here leave out the same trials of both methods (joint jackknife), which the "
        "verdict above does not do, so that luck common to two methods cancels out. Pairs of a "
        "category are tested together (Holm)."
    ),
    Basis.SETTINGS: _RUNS,
    Basis.VALUES: _RUNS,
}
_CLASSES_NOTE = (
    "“Any classes”: 95 % interval of the difference if other test classes had been "
    "drawn and the networks had been trained again (classes resampled with all their queries, "
    "training noise added); of single pairs, not corrected for their number."
)
_TABLE_NOTE = (
    "d_z: the mean difference over its standard deviation; P: the probability that a run of the "
    "better method is above one of the other; δ: Cliff's delta, 2P − 1, and so is its interval. "
    "With few seeds the intervals are wide: a large d_z means a steady difference, not a large one."
)

#: What a pair is compared at, in the singular.
_UNITS = {Basis.SEARCHES: "common search", Basis.SUBSETS: "common trial"}


def paired_section(analysis: Analysis) -> Section | None:
    """Return the section; ``None`` where no two methods share a seed."""
    shown = {category: pairs for category, pairs in analysis.pairs.items() if pairs}
    if not shown:
        return None
    blocks: list[Block] = [_INTRODUCTIONS[analysis.summary.basis]]
    if figure := _figure(analysis):
        blocks.append(figure)
    lines: list[str] = []
    for category in shown:  # the best method and the next one, and what seeds make of the best
        against, basis = analysis.against_best[category], analysis.summary.basis
        lines += [f"{category}: {pair_sentence(pair, basis)}" for pair in against.pairs[:1]]
        lines += seed_sentences(category, against)
    blocks.append(Bullets(tuple(lines)))
    for category, pairs in shown.items():
        further = analysis.against_best[category].pairs[1:]
        more = tuple(pair_sentence(pair, analysis.summary.basis) for pair in further)
        table = _table(category, pairs)
        title = f"{category}: {counted(len(pairs), 'pair')}"
        blocks.append(Folded(title, (Bullets(more), table) if more else (table,)))
    blocks += [Note(_TABLE_NOTE), _against_verdict(analysis)]
    if any(pair.anywhere for pairs in shown.values() for pair in pairs):
        blocks.append(Note(_CLASSES_NOTE))
    return Section("paired", "Seed by seed", tuple(blocks))


def seed_sentences(category: str, against: AgainstBest) -> list[str]:
    """Say where the best method is not the best on common seeds, or has none with another one."""
    lines = []
    if against.above:
        lines.append(
            f"{category}: over all runs {against.best} has the highest mean, on common seeds "
            f"{listed(against.above)} {'is' if len(against.above) == 1 else 'are'} above it."
        )
    if against.apart:
        lines.append(
            f"{category}: {against.best}, which has the highest mean over all runs, shares no seed "
            f"with {listed(against.apart)}."
        )
    return lines


def _against_verdict(analysis: Analysis) -> Note:
    """How many pairs come out otherwise than by Welch's test: nobody is to pick the nicer one."""
    welch = {
        (category, frozenset((comparison.better, comparison.other))): comparison.distinct
        for category in analysis.pairs
        for comparison in analysis.summary.comparisons(category)
    }
    pairs = [pair for of_category in analysis.pairs.values() for pair in of_category]
    told = [(p, welch.get((p.category, frozenset((p.better, p.other))), False)) for p in pairs]
    gained = sum(pair.distinct and not known for pair, known in told)
    lost = sum(known and not pair.distinct for pair, known in told)
    return Note(
        f"Of {counted(len(pairs), 'pair')}, {gained} can be distinguished here but not in the "
        f"verdict (Welch), {lost} there and not here. Tables and verdict always use "
        "Welch's test."
    )


def pair_sentence(pair: Pair, basis: Basis = Basis.VALUES) -> str:
    """Return one sentence on one pair, the higher one first, differences in percentage points."""
    if pair.difference.mean < 0:
        pair = pair.turned()
    relation, tie, gap = relations(pair, basis)
    over = f"over {counted(pair.seeds, _UNITS.get(basis, 'common seed'))}"
    low, high = pair.difference.low, pair.difference.high
    if low is None or high is None or pair.adjusted_p is None:
        return f"{tie}: a difference of {gap} {over}, too few for a test."
    holm = f"Holm {p_text(pair.adjusted_p)}" if pair.pairs > 1 else p_text(pair.adjusted_p)
    evidence = f"95 % interval {points(low)} to {points(high)} {over}, {holm}"
    if not pair.distinct:
        reason = f" after correction for {pair.pairs} pairs" if low > 0 and pair.pairs > 1 else ""
        return f"{tie}{reason}: a difference of {gap} ({evidence})."
    return f"{relation} by {gap} on these test classes ({evidence}){_elsewhere(pair)}."


def _elsewhere(pair: Pair) -> str:
    """What other test classes would make of a difference that stands."""
    if pair.anywhere is None:
        return ""
    interval = f"{points(pair.anywhere.low)} to {points(pair.anywhere.high)}"
    if pair.anywhere.low > 0:
        return f"; with other test classes too the interval is above 0 ({interval})"
    return f"; other test classes could reverse it ({interval})"


def _table(category: str, pairs: tuple[Pair, ...]) -> PlainTable:
    intervals = (f"Δ {_METRIC}", "95 %, seeds", "95 %, any classes")
    header = ("Better", "Other", *intervals, "Holm p", "Seeds won", "d_z", "P", "δ")
    rows = tuple(_row(pair) for pair in pairs)
    caption = f"{category}: every pair, differences in percentage points."
    return PlainTable(caption, header, rows, words=("Better", "Other"))


def _row(pair: Pair) -> tuple[str, ...]:
    mean, low, high = pair.difference.mean, pair.difference.low, pair.difference.high
    seeds = None if low is None or high is None else Bounds(mean, low, high)
    return (
        pair.better,
        pair.other,
        points(mean),
        points_range(seeds),
        points_range(pair.anywhere),
        NOTHING if pair.adjusted_p is None else p_text(pair.adjusted_p).lstrip("p= "),
        NOTHING if pair.won is None else f"{pair.won} of {pair.seeds}",
        bounds_text(pair.effect),
        bounds_text(pair.improvement),
        NOTHING if pair.dominance is None else true_minus(pair.dominance.value),
    )


def points_range(bounds: Bounds | None) -> str:
    """``"0.40 to 2.00"`` in percentage points."""
    return NOTHING if bounds is None else f"{points(bounds.low)} to {points(bounds.high)}"


def bounds_text(bounds: Bounds | None) -> str:
    """``"1.25 (0.40 to 2.00)"``: a plain number with its interval."""
    if bounds is None:
        return NOTHING
    value, low, high = map(true_minus, (bounds.value, bounds.low, bounds.high))
    return f"{value} ({low} to {high})"


def _figure(analysis: Analysis) -> ReportFigure | None:
    drawn = {
        category: against
        for category, against in analysis.against_best.items()
        if any(pair.difference.half_width is not None for pair in against.pairs)
    }
    if not drawn:
        return None
    pairs = [(category, pair) for category, against in drawn.items() for pair in against.pairs]
    any_classes = any(pair.anywhere for _, pair in pairs)
    caption = (
        f"{_METRIC} of the best method of each category (highest mean over all runs) minus that of "
        "the others on common seeds: single seeds (dots), mean and 95 % interval over seeds (thick "
        "line)"
        + (", and with other test classes too (thin line)." if any_classes else ".")
        + " Right of 0 the best method is above."
    )
    notes = [line for name, against in drawn.items() for line in seed_sentences(name, against)]
    told = [f"{name}: {pair_sentence(pair, analysis.summary.basis)}" for name, pair in pairs]
    alt = " ".join(["Differences seed by seed.", *told])
    draw = partial(paired_figure, analysis.summary, drawn)
    return ReportFigure("paired_differences", " ".join([caption, *notes]), alt, draw)
