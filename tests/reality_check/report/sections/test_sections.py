"""The sections on statistics: what they compute, and word for word what they say."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import re
from typing import Any

import numpy as np
import pytest

from reality_check.report.analysis import Analysis, Pair
from reality_check.report.figures.comparison import paired_figure
from reality_check.report.figures.plotting import ReportFigure
from reality_check.report.figures.search import method_figure
from reality_check.report.render.html import report_html
from reality_check.report.render.latex import paired_tex
from reality_check.report.render.markdown import report_md
from reality_check.report.sections import budget, report_sections
from reality_check.report.sections.agreement import (
    agreement_section,
    agreement_sentence,
    curse_sentence,
)
from reality_check.report.sections.blocks import Bullets, Folded, Note, PlainTable, Section
from reality_check.report.sections.budget import budget_section, budgets, lead_sentences
from reality_check.report.sections.classes import classes_section
from reality_check.report.sections.cost import cost_section
from reality_check.report.sections.methods import methods_section
from reality_check.report.sections.paired import pair_sentence, paired_section
from reality_check.report.sections.ranks import rank_sentence, ranks_section
from reality_check.report.sections.search import importance_sentence
from reality_check.report.sections.tuning import luck_section
from reality_check.report.sections.verdict import headline
from reality_check.report.summary import Summary
from reality_check.report.tables import PAIR_COLUMNS, comparisons_csv
from reality_check.results import (
    Cost,
    ExperimentResults,
    Folder,
    Importance,
    MethodResults,
    QueryScores,
    ResultRow,
    TrialRecord,
)
from reality_check.statistics import (
    Agreement,
    Bounds,
    Difference,
    Estimate,
    LeadingMethod,
    cliffs_delta,
    cohens_d,
    expected_best,
    holm,
    paired_difference,
    paired_effect,
    percentile_interval,
    probability_of_improvement,
    rank_methods,
)

MAP = "mean_average_precision_at_r"


@pytest.fixture(autouse=True)
def drawn_at_once(laid_out: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every figure is laid out as soon as a section has it, whether or not a test looks at it."""
    make = ReportFigure.__init__

    def make_and_draw(figure: ReportFigure, *arguments: Any, **options: Any) -> None:
        make(figure, *arguments, **options)
        assert figure.files

    monkeypatch.setattr(ReportFigure, "__init__", make_and_draw)


def analysis(results: ExperimentResults) -> Analysis:
    return Analysis(Summary(results))


def texts(section: Section | None) -> list[str]:
    """Every sentence of a section, folded ones too."""
    assert section is not None
    found: list[str] = []
    blocks = list(section.blocks)
    for block in blocks:
        if isinstance(block, str):
            found.append(block)
        elif isinstance(block, Bullets):
            found += ["".join(line) for line in block.lines]
        elif isinstance(block, Folded):
            blocks += block.blocks
    return found


def runs_of(values: dict[str, list[float]], **changes: Any) -> ExperimentResults:
    rows = tuple(
        ResultRow("e", method, "ensemble", run, MAP, value)
        for method, found in values.items()
        for run, value in enumerate(found)
    )
    results = ExperimentResults("e", "mlrc", "mlrc", True, methods=(), rows=rows)
    return dataclasses.replace(results, **changes)


# -- pairs ---------------------------------------------------------------------------------------


def test_pairs_are_paired_by_seed_and_corrected_together(finished: ExperimentResults) -> None:
    found = analysis(finished).pairs["ensemble"]
    values = Summary(finished).samples("ensemble", MAP)
    assert len(found) == 6
    for pair in found:
        assert pair.difference == paired_difference(values[pair.better], values[pair.other])
        assert pair.difference.mean >= 0
        assert pair.seeds == 5
        assert pair.won == sum(
            a > b for a, b in zip(values[pair.better], values[pair.other], strict=True)
        )
        assert pair.anywhere is None
    assert [p.adjusted_p for p in found] == holm([p.difference.p_value or 0.0 for p in found])
    best = max(values, key=lambda method: np.mean(values[method]))
    assert [pair.better for pair in found[:3]] == [best] * 3
    against = analysis(finished).against_best["ensemble"]
    assert (against.best, against.pairs, against.apart) == (best, found[:3], ())


def test_only_common_seeds_are_compared(results: ExperimentResults) -> None:
    found = analysis(results).pairs["aggregate"]
    assert {pair.seeds for pair in found if "late & slow" in (pair.better, pair.other)} == {2}
    rows = [r for r in results.rows if r.method != "warped" or r.reproduction > 1]
    pairs = analysis(dataclasses.replace(results, rows=tuple(rows))).pairs["aggregate"]
    assert not any({"warped", "late & slow"} == {p.better, p.other} for p in pairs)


def test_the_order_of_a_pair_is_that_of_its_common_seeds() -> None:
    rows = runs_of({"a": [0.30, 0.30, 0.10], "b": [0.29, 0.28]}).rows
    (pair,) = analysis(runs_of({}, rows=rows)).pairs["ensemble"]
    assert (pair.better, pair.other, pair.seeds) == ("a", "b", 2)


def runs_at(seeds: dict[str, dict[int, float]]) -> ExperimentResults:
    """The MAP@R of each method at some seeds."""
    rows = tuple(
        ResultRow("e", method, "ensemble", seed, MAP, value)
        for method, values in seeds.items()
        for seed, value in values.items()
    )
    return runs_of({}, rows=rows)


def shown_pairs(results: ExperimentResults) -> list[str]:
    """The first sentences of the section, then the caption of its figure."""
    section = paired_section(analysis(results))
    assert section is not None
    (bullets, *_) = (block for block in section.blocks if isinstance(block, Bullets))
    return [*bullets.lines, *(figure.caption for figure in section.figures)]


#: Over all its runs a is the best, on the seeds that both have b is.
SWAPPED = {
    "a": {0: 0.31, 1: 0.30, 2: 0.305, 3: 0.50},
    "b": {0: 0.32, 1: 0.34, 2: 0.33},
    "c": {0: 0.20, 1: 0.22, 2: 0.21},
}


def test_the_best_method_is_that_of_the_headline_though_it_is_lower_on_common_seeds() -> None:
    found = analysis(runs_at(SWAPPED))
    against = found.against_best["ensemble"]
    assert headline(found.summary).startswith("a leads on MAP@R")
    assert [(pair.better, pair.other) for pair in against.pairs] == [("a", "b"), ("a", "c")]
    assert against.pairs[0].difference.mean == pytest.approx(-0.025)
    assert against.pairs[0] == found.pairs["ensemble"][0].turned()
    lines = shown_pairs(runs_at(SWAPPED))
    assert lines[0].startswith("ensemble: b is not distinguishable from a")
    assert lines[1] == (
        "ensemble: over all runs a has the highest mean, on common seeds b is above it."
    )
    assert "(highest mean over all runs) minus that of the others on common seeds" in lines[-1]
    assert lines[-1].endswith(lines[1])
    axes = paired_figure(found.summary, found.against_best).axes[0]
    assert axes.get_title(loc="left") == "ensemble: a minus …"
    dots = np.sort(np.asarray(axes.lines[1].get_xdata(), dtype=float))
    assert dots == pytest.approx([-4.0, -2.5, -1.0])
    tex = paired_tex(found)
    assert re.search(r"\n    a & b & \$-\$2\.50 &", tex)
    assert "on common seeds b is above it" in tex


def test_the_best_method_may_share_no_seed_with_others() -> None:
    other = {5: 0.30, 6: 0.31, 7: 0.33}
    found = analysis(runs_at({"a": other} | {name: SWAPPED[name] for name in "bc"}))
    against = found.against_best["ensemble"]
    assert against.best == "b"
    assert [pair.other for pair in against.pairs] == ["c"]
    assert against.apart == ("a",)
    apart = "ensemble: b, which has the highest mean over all runs, shares no seed with a."
    lines = shown_pairs(found.summary.results)
    assert lines[0].startswith("ensemble: b is above c by 12.00 points")
    assert lines[1] == apart
    assert lines[-1].endswith(apart)
    assert apart.partition(": ")[2] in paired_tex(found)
    alone = analysis(runs_at({"a": {5: 0.6, 6: 0.7}} | {name: SWAPPED[name] for name in "bc"}))
    lines = shown_pairs(alone.summary.results)
    assert lines == [
        "ensemble: a, which has the highest mean over all runs, shares no seed with b and c."
    ], "no figure, since there is nothing to draw"
    assert paired_tex(alone) == ""


def test_a_turned_pair_is_what_the_other_order_gives(queried: ExperimentResults) -> None:
    found = analysis(queried)
    pair = found.pairs["ensemble"][0]
    turned = pair.turned()
    values = Summary(queried).samples("ensemble", MAP)
    a, b = values[pair.other], values[pair.better]
    difference = paired_difference(a, b)
    assert turned.difference.mean == pytest.approx(difference.mean)
    assert turned.difference.half_width == pytest.approx(difference.half_width)
    assert turned.difference.p_value == pytest.approx(difference.p_value)
    for bounds, expected in (
        (turned.effect, paired_effect(a, b)),
        (turned.standardised, cohens_d(a, b)),
        (turned.improvement, probability_of_improvement(a, b)),
        (turned.dominance, cliffs_delta(a, b)),
    ):
        assert bounds is not None
        assert expected is not None
        assert dataclasses.astuple(bounds) == pytest.approx(dataclasses.astuple(expected), abs=1e-9)
    assert turned.won == sum(x > y for x, y in zip(a, b, strict=True))
    assert (turned.lost, turned.seeds) == (pair.won, pair.seeds)
    assert pair_sentence(turned) == pair_sentence(pair)


def test_other_classes_are_drawn_for_the_difference(queried: ExperimentResults) -> None:
    found = analysis(queried)
    pair = found.pairs["ensemble"][0]
    assert queried.queries is not None
    load, labels = queried.queries.load, queried.queries.labels

    def scores(method: str) -> np.ndarray:
        loaded = [load(method, "ensemble", run) for run in range(5)]
        return np.mean([each[0] for each in loaded if each is not None], axis=0)

    gap = scores(pair.better) - scores(pair.other)
    by_class = np.array([gap[labels == c].sum() for c in range(24)])
    drawn = np.random.default_rng(0).integers(24, size=(5000, 24))
    means = by_class[drawn].sum(axis=1) / (5 * 24)
    values = Summary(queried).samples("ensemble", MAP)
    spread = np.std(np.subtract(values[pair.better], values[pair.other]), ddof=1) / math.sqrt(5)
    noise = np.random.default_rng(1).standard_t(4, size=5000)
    expected = percentile_interval(means + spread * noise, pair.difference.mean, 24)
    assert pair.anywhere is not None
    assert dataclasses.astuple(pair.anywhere) == pytest.approx(dataclasses.astuple(expected))
    alone = found.uncertainties[pair.better, "ensemble"].classes
    assert pair.anywhere.high - pair.anywhere.low < alone.high - alone.low, "hard for both"


def test_the_uncertainty_of_one_method(queried: ExperimentResults) -> None:
    found = analysis(queried)
    assert set(found.uncertainties) == {
        (method, category)
        for method in Summary(queried).methods
        for category in ("aggregate", "ensemble", "complete")
    }
    assert found.unscored == ()
    assert found.test_classes == 24
    one = found.uncertainties["warped", "complete"]
    values = Summary(queried).samples("complete", MAP)["warped"]
    assert one.training.mean == one.classes.value == pytest.approx(np.mean(values))
    assert one.both is not None
    assert one.queries.high - one.queries.low < one.classes.high - one.classes.low
    assert one.both.high - one.both.low > one.classes.high - one.classes.low
    assert one.design_effect > 1.5


def test_how_much_wider_intervals_become_is_one_number_or_two(queried: ExperimentResults) -> None:
    found = analysis(queried)
    one = found.uncertainties["warped", "ensemble"]
    for half, said in ((0.02, "are 2.0 times"), (0.01, "are 2.0 to 4.0 times")):
        around = Bounds(0.3, 0.26, 0.34)
        wide = dataclasses.replace(one, training=Estimate(0.3, 0.02, 0.01, 4, 5), classes=around)
        other = dataclasses.replace(wide, training=Estimate(0.3, half, 0.01, 4, 5))
        found.__dict__["uncertainties"] = {("a", "x"): wide, ("b", "x"): other}
        assert said in texts(classes_section(found))[0]


@pytest.mark.parametrize(
    ("folders", "said"),
    [
        ("1", "reality-check score 'runs/my one' makes them from the kept networks, for the next"),
        ("12", "reality-check score runs/two makes them from"),
    ],
)
def test_scores_are_made_in_the_folders_that_lack_them(
    queried: ExperimentResults, folders: str, said: str
) -> None:
    assert queried.queries is not None
    whole = queried.queries

    def load(method: str, category: str, reproduction: int) -> np.ndarray | None:
        return None if method == "warped" else whole.load(method, category, reproduction)

    sources = {
        "1": Folder("one", "runs/my one", "e", ("warped",), 0, True),
        "2": Folder("two", "runs/two", "e", ("warped",), 0, True),
    }
    origin = {"1": "", "12": "two"}[folders]
    methods = tuple(dataclasses.replace(m, origin=origin) for m in queried.methods)
    part = QueryScores(whole.labels, whole.class_names, load)
    shown = tuple(sources[key] for key in folders)
    changed = dataclasses.replace(queried, queries=part, methods=methods, folders=shown)
    note = texts(classes_section(analysis(changed)))[-1]
    assert said in note
    assert "score ." not in note
    assert note.endswith("; nothing is trained.")


def test_scores_that_are_missing_are_named_and_the_rest_still_shown(
    queried: ExperimentResults,
) -> None:
    assert queried.queries is not None
    whole = queried.queries

    def load(method: str, category: str, reproduction: int) -> np.ndarray | None:
        if (method, category, reproduction) == ("warped", "complete", 3):
            return None
        return whole.load(method, category, reproduction)

    part = QueryScores(whole.labels, whole.class_names, load)
    found = analysis(dataclasses.replace(queried, queries=part))
    assert found.unscored == (("warped", "complete"),)
    assert len(found.uncertainties) == 11
    for pair in found.pairs["complete"]:
        assert (pair.anywhere is None) == ("warped" in (pair.better, pair.other))
    (note,) = [text for text in texts(classes_section(found)) if "reality-check score ." in text]
    assert note.startswith("The scores of every query are missing for warped (complete).")


def test_without_scores_the_section_says_how_to_get_them(finished: ExperimentResults) -> None:
    (note,) = texts(classes_section(analysis(finished)))
    assert note.startswith("The scores of every query are missing for warped (aggregate), ")
    assert "and 7 more." in note
    assert "reality-check score . makes them from the kept networks; nothing is trained." in note
    assert classes_section(analysis(runs_of({}))) is None


# -- sentences on pairs --------------------------------------------------------------------------


def pair(**changes: Any) -> Pair:
    difference = Difference(0.012, 0.008, 0.004, (10, 10))
    made = Pair("A", "B", difference, 0.004, 1, "ensemble", won=9, lost=1)
    return dataclasses.replace(made, **changes)


def test_a_pair_that_differs() -> None:
    assert pair_sentence(pair()) == (
        "A is above B by 1.20 points MAP@R on these test classes (95 % interval 0.40 to 2.00 over "
        "10 common seeds, p = 0.004)."
    )
    assert pair_sentence(pair(pairs=6, anywhere=Bounds(0.012, 0.001, 0.023))) == (
        "A is above B by 1.20 points MAP@R on these test classes (95 % interval 0.40 to 2.00 over "
        "10 common seeds, Holm p = 0.004); with other test classes too the interval is "
        "above 0 (0.10 to 2.30)."
    )
    assert pair_sentence(pair(anywhere=Bounds(0.012, -0.003, 0.027))).endswith(
        "; other test classes could reverse it (−0.30 to 2.70)."
    )


def test_a_pair_that_does_not() -> None:
    doubtful = pair(adjusted_p=0.07, pairs=6, anywhere=Bounds(0.012, 0.001, 0.023))
    assert pair_sentence(doubtful) == (
        "A is not distinguishable from B after correction for 6 pairs: a difference of "
        "1.20 points MAP@R "
        "(95 % interval 0.40 to 2.00 over 10 common seeds, Holm p = 0.07)."
    )
    unsure = pair(difference=Difference(0.002, 0.008, 0.6, (10, 10)), adjusted_p=0.6, pairs=6)
    assert pair_sentence(unsure) == (
        "A is not distinguishable from B: a difference of "
        "0.20 points MAP@R (95 % interval −0.60 to 1.00 "
        "over 10 common seeds, Holm p = 0.6)."
    )
    single = pair(difference=Difference(0.012, None, None, (1, 1)), adjusted_p=None)
    assert pair_sentence(single) == (
        "A is not distinguishable from B: a difference of "
        "1.20 points MAP@R over 1 common seed, too few for "
        "a test."
    )


# -- ranks ---------------------------------------------------------------------------------------


def blocks(rows: list[list[float]]) -> list[dict[str, float]]:
    return [dict(zip("ABC", row, strict=True)) for row in rows]


def test_sentences_on_ranks() -> None:
    few = rank_methods(blocks([[3.0, 2.0, 1.0]] * 2))
    assert rank_sentence("ensemble", few) == (
        "ensemble: A has the best mean rank (1.00 of 3) over 2 common seeds, but that is too few "
        "to distinguish any two of 3 methods by ranks (at least 3)."
    )
    mixed = rank_methods(blocks([[3.0, 2.0, 1.0], [1.0, 2.0, 3.0]] * 3))
    assert "but ranks do not distinguish the methods (Friedman p = " in rank_sentence("x", mixed)
    clear = rank_methods(blocks([[3.0, 2.0, 1.0]] * 10))
    assert rank_sentence("x", clear) == (
        "x: A has the best mean rank (1.00 of 3), not distinguishable from B (Friedman p < 0.001, "
        "10 common seeds, critical difference 1.05)."
    )
    sure = rank_methods(blocks([[3.0, 2.0, 1.0]] * 12))
    assert "distinguishable from all others" in rank_sentence("x", sure)


def test_ranks_over_cells_are_a_table_and_over_seeds_a_test(finished: ExperimentResults) -> None:
    found = analysis(finished)
    ranks = found.mean_ranks["warped"]
    assert len(ranks) == 9
    summary = Summary(finished)
    for (category, metric), rank in ranks.items():
        means = {m: np.mean(v) for m, v in summary.samples(category, metric).items()}
        assert rank == 1 + sum(mean > means["warped"] for mean in means.values())
    assert found.rankings["ensemble"].blocks == 5
    section = ranks_section(found)
    assert section is not None
    assert [figure.stem for figure in section.figures] == ["ranks"]
    two = runs_of({"a": [0.3, 0.2], "b": [0.1, 0.2]})
    assert ranks_section(analysis(two)) is None


def test_ranks_wait_for_all_methods(build: Any) -> None:
    found = analysis(build({"warped": 2, "<b>x</b>": 2}))
    assert ranks_section(found) is None
    section = ranks_section(analysis(build(dict.fromkeys(Summary(build()).methods, 2))))
    assert section is not None
    assert section.figures == [], "two seeds are too few for four methods"
    assert "too few to distinguish any two of 4 methods" in texts(section)[0]


# -- budget --------------------------------------------------------------------------------------


def searched(name: str, values: list[float], again: list[float]) -> MethodResults:
    return MethodResults(
        name,
        "L",
        search=tuple(
            TrialRecord(name, "search", i, "complete", value=v, params={"x": float(i + 1)})
            for i, v in enumerate(values)
        ),
        reproductions=tuple(
            TrialRecord(name, "reproductions", i, "complete", value=v) for i, v in enumerate(again)
        ),
        searched=("x",),
    )


@pytest.fixture
def four_trials_will_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget, "_FEWEST", 4)


@pytest.mark.usefixtures("four_trials_will_do")
def test_budgets_compare_the_second_half_with_one_retraining() -> None:
    steep = searched("steep", [0.1, 0.2, 0.3, 0.4], [0.38, 0.39])
    flat = searched("flat", [0.30, 0.301, 0.3, 0.302], [0.30, 0.28])
    unknown = searched("unknown", [0.1, 0.1, 0.1, 0.2], [0.2])
    summary = Summary(runs_of({}, methods=(steep, flat, unknown)))
    found = budgets(summary)
    values = [0.1, 0.2, 0.3, 0.4]
    assert found[0].curve == pytest.approx(expected_best(values))
    # Best of two of four: .2 once, .3 twice, .4 three times of six.
    assert found[0].gain == pytest.approx(0.4 - (0.2 + 2 * 0.3 + 3 * 0.4) / 6)
    assert found[0].spread == pytest.approx(0.01 / math.sqrt(2))
    lines = texts(budget_section(summary))
    assert lines[0] == (
        "The second half of the trials is expected to have gained more than the standard deviation "
        "of one retraining for steep (6.67 points): more trials may well have found better "
        "parameters."
    )
    assert lines[1].endswith(
        "for flat (0.07 points): more of the same search would have changed little."
    )
    assert lines[2] == (
        "The second half of the trials is expected to have gained this: unknown (5.00 points). "
        "It takes two retrainings to say whether that is much."
    )
    assert lines[3] == (
        "The highest expected validation score has flat with 1 and steep with 2 to 4 trials (there "
        "by 9.80 points): with another budget another method is expected to have led on validation."
    )


@pytest.mark.usefixtures("four_trials_will_do")
def test_diverged_trials_count_and_diverged_retrainings_do_not() -> None:
    method = searched("m", [0.3, 0.3, 0.3, 0.3], [0.3, 0.32])
    lost = TrialRecord("m", "search", 4, "complete", value=0.0, diverged="NaN")
    gone = TrialRecord("m", "reproductions", 2, "complete", value=0.0, diverged="NaN")
    method = dataclasses.replace(
        method, search=(*method.search, lost), reproductions=(*method.reproductions, gone)
    )
    (found,) = budgets(Summary(runs_of({}, methods=(method,))))
    assert found.trials == 5
    assert found.curve[0] == pytest.approx(0.24)
    assert found.spread == pytest.approx(0.02 / math.sqrt(2))


@pytest.mark.usefixtures("four_trials_will_do")
def test_one_leader_or_one_method() -> None:
    both = [searched(n, v, []) for n, v in (("a", [0.3] * 4), ("b", [0.2] * 4))]
    found = budgets(Summary(runs_of({}, methods=tuple(both))))
    assert lead_sentences([LeadingMethod("a", 1, 4)], found) == [
        "a has the highest expected validation score with any number of trials up to 4: the order "
        "at the top does not depend on the budget."
    ]
    assert lead_sentences([LeadingMethod("a", 1, 4)], found[:1]) == []


def test_nothing_is_said_of_few_trials_nor_of_several_searches() -> None:
    few = searched("c", [0.01 * i for i in range(19)], [])
    assert budget_section(Summary(runs_of({}, methods=(few,)))) is None
    enough = searched("c", [0.01 * i for i in range(20)], [])
    assert budget_section(Summary(runs_of({}, methods=(enough,)))) is not None
    halves = tuple(dataclasses.replace(t, search=t.trial_index // 10) for t in enough.search)
    twice = dataclasses.replace(enough, search=halves)
    assert budget_section(Summary(runs_of({}, methods=(twice,)))) is None


# -- parameters ----------------------------------------------------------------------------------


def test_sentences_on_importance() -> None:
    method = dataclasses.replace(
        searched("m", [0.1] * 25, []), searched=("scale", "margin", "rate")
    )
    few = dataclasses.replace(method, search=method.search[:8])
    assert importance_sentence(few) == (
        "m: 8 sound trials of 3 parameters are too few to tell which of them mattered."
    )
    found = Importance({"scale": 0.62, "rate": 0.3, "margin": 0.05}, 0.25, 25)
    assert importance_sentence(dataclasses.replace(method, importance=found)) == (
        "m: the score varied with scale (62 %) and rate (30 %) in 25 trials; no other "
        "share exceeds that of shuffled scores."
    )
    nothing = Importance({"scale": 0.2}, 0.25, 25)
    assert importance_sentence(dataclasses.replace(method, importance=nothing)) == (
        "m: no parameter stands out in 25 trials; with shuffled scores the largest share is 25 %."
    )
    single = dataclasses.replace(method, searched=("scale",))
    assert importance_sentence(single) == "m: only scale was searched."


def test_slices_of_every_kind_of_parameter_are_drawn(finished: ExperimentResults) -> None:
    trials = tuple(
        TrialRecord(
            "m", "search", i, "complete", value=0.1 * i,
            params={"rate": 10.0**-i, "mode": "soft" if i % 2 else "hard", "flag": None, "k": i},
            diverged="NaN" if i == 3 else None,
        )
        for i in range(6)
    )  # fmt: skip
    method = MethodResults(
        "m", "L", search=trials, searched=("rate", "mode", "flag", "k"), logarithmic=("rate",)
    )
    section = methods_section(Summary(dataclasses.replace(finished, methods=(method,))))
    assert section is not None
    assert [figure.stem for figure in section.figures] == ["method_m"]
    assert "the best 50.00 at rate = 1e-05" in section.figures[0].alt
    (fold,) = (block for block in section.blocks if isinstance(block, Folded))
    (table,) = (block for block in fold.blocks if isinstance(block, PlainTable))
    assert table.rows == (
        ("rate", "1e-05", "1e-05 to 1"),
        ("mode", "soft", "hard, soft"),
        ("flag", "None", "None"),
        ("k", "5", "0 to 5"),
    )
    known = dataclasses.replace(method, importance=Importance({"rate": 0.62, "k": 0.1}, 0.2, 6))
    section = methods_section(Summary(dataclasses.replace(finished, methods=(known,))))
    assert section is not None
    (fold,) = (block for block in section.blocks if isinstance(block, Folded))
    (table,) = (block for block in fold.blocks if isinstance(block, PlainTable))
    assert [row[-1] for row in table.rows] == ["62 %", "—", "—", "10 %"]


@pytest.mark.parametrize("low", [0.0052, 0.0011])
def test_a_narrow_logarithmic_axis_has_ticks_to_read(low: float) -> None:
    draw = np.random.default_rng(0)
    rates = [low, *draw.uniform(low, 0.048, 7).tolist()]
    trials = tuple(
        TrialRecord("m", "search", i, "complete", value=0.3, params={"rate": rate})
        for i, rate in enumerate(rates)
    )
    method = MethodResults("m", "L", search=trials, searched=("rate",), logarithmic=("rate",))
    figure = method_figure(method, ())
    figure.draw_without_rendering()
    axes = figure.axes[0]
    low, high = axes.get_xlim()
    shown = [
        label.get_text()
        for place, label in zip(axes.get_xticks(), axes.get_xticklabels(), strict=True)
        if low <= place <= high
    ]
    assert 2 <= len(shown) <= 4, "enough to read, and too few to overlap"
    assert "0.01" in shown


def learned(name: str, runs: int, folds: int = 2) -> MethodResults:
    """A method whose search and reproductions have curves; that of run 1 ends in NaN.

    Both networks that were not trained are better than any that was.
    """

    def values(run: int) -> tuple[float, ...]:
        return tuple(0.2 + fold / 10 + run / 100 for fold in range(folds))

    def curves(run: int) -> Any:
        ends = [(6, math.nan)] if run == 1 else []
        return tuple(((-1, 0.5), (0, 0.6), (2, 0.1), (4, top), *ends) for top in values(run))

    trial = TrialRecord(name, "search", 0, "complete", value=0.3, params={"x": 1}, curves=curves(0))
    again = tuple(
        TrialRecord(
            name, "reproductions", run, "complete",
            value=0.3, fold_values=values(run), curves=curves(run),
        )
        for run in range(runs)
    )  # fmt: skip
    complete = TrialRecord(
        name, "complete", 0, "complete", value=0.2, params={"epochs": 20}, seconds=90.0
    )
    return MethodResults(name, "L", (trial,), again, (complete,), searched=("x",))


def test_learning_curves_are_of_every_fold_and_reproduction() -> None:
    method = learned("a b", 3)
    section = methods_section(Summary(runs_of({}, methods=(method,))))
    assert section is not None
    assert [figure.stem for figure in section.figures] == ["method_a_b"]
    # Means of 0.20, 0.21, 0.22, and a tenth more in the second fold.
    assert section.figures[0].alt == (
        "a b: validation of the trials against x, the best 30.00 at x = 1. Learning curves of 3 "
        "reproductions; mean best validation in percent: fold 0 21.00 and fold 1 31.00."
    )
    assert texts(section)[-1] == (
        "Complete: 1 training of 20 epochs, 1 min 30 s each on average; what they logged is in "
        "their records (a b/final)."
    )
    panels = method_figure(method, method.reproductions).axes
    assert [axes.get_title(loc="left") for axes in panels] == ["", "fold 0", "fold 1"]
    lines = [line for line in panels[2].lines if len(line.get_xdata()) > 1]  # type: ignore[arg-type]
    assert [list(map(float, line.get_ydata())) for line in lines[:3]] == [  # type: ignore[arg-type]
        pytest.approx([50.0, 60.0, 10.0, 30.0 + run]) for run in range(3)
    ]
    dots = [line for line in panels[2].lines if line.get_marker() == "o"]
    assert [float(np.asarray(dot.get_xdata())[0]) for dot in dots] == [4] * 4, "it was trained"
    assert [line.get_linestyle() for line in lines] == ["-", "-", "-", "--"]


def test_records_are_where_the_method_was_trained() -> None:
    folder = Folder("one", "runs/one", "e", ("a b",), 0, True)
    method = dataclasses.replace(learned("a b (one)", 1), origin="one")
    results = runs_of(
        {}, methods=(method,), folders=(folder, dataclasses.replace(folder, label=""))
    )
    assert texts(methods_section(Summary(results)))[-1].endswith("records (runs/one/a b/final).")


def test_methods_without_records_have_no_part() -> None:
    assert methods_section(Summary(runs_of({}, methods=(MethodResults("a", "L"),)))) is None


def test_cost_is_by_method_stage_and_device() -> None:
    costs = (
        Cost("a", "search", "cuda", 4, 2.5),
        Cost("a", "final", "cuda", 1, 0.25),
        Cost("a", "search", "cpu", 1, 0.5),
        Cost("", "baselines", "cpu", 2, 0.01),
    )
    section = cost_section(Summary(runs_of({}, costs=costs)))
    assert texts(section) == [
        "0.51 hours of CPU processes and 2.75 GPU hours in all, over 8 attempts."
    ]
    assert section is not None
    (table,) = (block for block in section.blocks if isinstance(block, PlainTable))
    assert table.rows == (
        ("a", "cuda", "2.50", "—", "0.25", "2.75", "5"),
        ("a", "cpu", "0.50", "—", "—", "0.50", "1"),
        ("baselines", "cpu", "—", "—", "—", "0.01", "2"),
    )
    assert cost_section(Summary(runs_of({}))) is None


# -- agreement -----------------------------------------------------------------------------------


def test_winners_against_their_retrainings() -> None:
    a = searched("a", [0.40, 0.44, 0.41], [0.42, 0.43])
    b = searched("b", [0.30, 0.31], [0.315, 0.315])
    section = agreement_section(Summary(runs_of({}, methods=(a, b))))
    assert texts(section) == [
        "1 of 2 winners scored above the mean of their retrainings; on average by 0.50 points of "
        "validation score."
    ]
    assert curse_sentence([Estimate(0.01, None, None, None, 3)]) == (
        "The winner of the search scored above the mean of its retrainings by 1.00 points of "
        "validation score."
    )
    assert agreement_section(Summary(runs_of({}))) is None


def test_agreement_over_methods_and_within_them() -> None:
    methods = tuple(
        searched(name, [best, 0.1], again)
        for name, best, again in (
            ("a", 0.44, [0.41, 0.42, 0.43]),
            ("b", 0.42, [0.40, 0.39, 0.38]),
            ("c", 0.40, [0.37, 0.36, 0.35]),
        )
    )
    tests = {"a": [0.25, 0.26, 0.27], "b": [0.23, 0.22, 0.21], "c": [0.24, 0.235, 0.23]}
    lines = texts(agreement_section(Summary(runs_of(tests, methods=methods))))
    assert lines[1] == (
        "ensemble: Winners' validation and test order 2 of 3 pairs the same way (Spearman 0.50, "
        "n = 3 methods, p = 1): not enough to say that they agree."
    )
    assert lines[2] == (
        "ensemble: Validation and test order 9 of 9 pairs the same way (Spearman 1.00, n = 9 "
        "reproductions within methods, p = 0.01)."
    )


def test_disagreement_and_no_variation_are_said() -> None:
    opposite = Agreement(-0.9, 0.01, 9, 1, 30)
    assert agreement_sentence(opposite, "x", "reproductions within methods", "Validation") == (
        "x: Validation and test order 1 of 30 pairs the same way (Spearman −0.90, n = 9 "
        "reproductions within methods, p = 0.01): they disagree."
    )
    assert "does not vary" in agreement_sentence(Agreement(math.nan, 1, 3, 0, 0), "x", "y", "z")


# -- where they are shown ------------------------------------------------------------------------


def folds(section: Section) -> list[str]:
    """The anchors of what is folded in a section."""
    return [b.anchor for b in section.blocks if isinstance(b, Folded) and b.anchor]


def test_sections_come_in_order_with_unique_anchors(queried: ExperimentResults) -> None:
    sections = report_sections(analysis(queried))
    assert [section.anchor for section in sections] == [
        *("overview", "box", "comparison", "statistics"),
        *("search", "methods", "facts", "again"),
    ]
    assert {section.anchor: folds(section) for section in sections if folds(section)} == {
        "statistics": ["verdict", "paired", "classes", "ranks", "baselines"],
        "search": ["parameters", "agreement"],
        "facts": ["reproductions"],
    }
    page = report_html(queried.name, sections)
    text = report_md(queried.name, sections)
    for anchor in (name for section in sections for name in folds(section)):
        assert page.count(f'<details id="{anchor}"') == 1
    for section in sections:
        assert f'<section id="{section.anchor}"' in page
        assert f"## {section.heading}" in text or section.anchor == "overview"
        for figure in section.figures:
            assert f"](figures/{figure.stem}.svg)" in text
    places = [text.index(f"## {name}") for name in ("Verdict", "Seed by seed", "Search and budget")]
    assert places == sorted(places)
    searched = sum(bool(method.searched) for method in queried.methods)
    drawn = sum(len(section.figures) for section in sections)
    assert page.count('<div class="panels"') == drawn
    assert page.count('<div class="trials"') == searched
    bare = report_sections(analysis(runs_of({})))
    empty = {section.anchor for section in bare} | {a for section in bare for a in folds(section)}
    assert not empty & {"paired", "classes", "ranks", "budget", "parameters", "agreement"}
    assert not empty & {"methods", "folders", "intervals", "published", "galleries"}


def test_comparisons_csv_has_every_pair_and_every_digit(queried: ExperimentResults) -> None:
    found = analysis(queried)
    rows = list(csv.DictReader(io.StringIO(comparisons_csv(found))))
    assert list(rows[0]) == list(PAIR_COLUMNS)
    assert len(rows) == 18
    pair = found.pairs["aggregate"][0]
    assert float(rows[0]["difference"]) == pair.difference.mean
    assert pair.anywhere is not None
    assert pair.improvement is not None
    assert float(rows[0]["any_classes_low"]) == pair.anywhere.low
    assert float(rows[0]["probability_high"]) == pair.improvement.high
    assert rows[0]["holm_p"] == repr(pair.adjusted_p)
    empty = csv.DictReader(
        io.StringIO(comparisons_csv(analysis(runs_of({"a": [0.3], "b": [0.2]}))))
    )
    assert next(empty)["difference_low"] == ""


def test_the_latex_table_has_the_pairs_of_the_best(finished: ExperimentResults) -> None:
    text = paired_tex(analysis(finished))
    rows = [line for line in text.splitlines() if len(re.findall(r"(?<!\\)&", line)) == 6]
    assert len(rows) == 1 + 3 * 3
    assert "−" not in text
    assert r"\textless{}b\textgreater{}" in text
    assert text.count(r"\begin{table*}") == text.count(r"\end{table*}") == 1
    bare = re.sub(r"\\[{}\\]", "", text)
    assert bare.count("{") == bare.count("}")
    assert paired_tex(analysis(runs_of({"a": [0.3], "b": [0.2]}))) == ""


def test_pairs_that_welch_tells_otherwise_are_counted() -> None:
    noise = np.array([0.0, 0.05, -0.04, 0.02])
    values = {"a": (0.31 + noise).tolist(), "b": (0.30 + noise + [0, 1e-4, 0, -1e-4]).tolist()}
    section = paired_section(analysis(runs_of(values)))
    assert section is not None
    (note,) = [b.text for b in section.blocks if isinstance(b, Note) and "Welch" in b.text]
    assert note.startswith(
        "Of 1 pair, 1 can be distinguished here but not in the verdict (Welch), 0 there and not "
        "here."
    )


def test_the_paired_section_folds_each_category(queried: ExperimentResults) -> None:
    section = paired_section(analysis(queried))
    assert section is not None
    folded = [block for block in section.blocks if isinstance(block, Folded)]
    assert [block.title.partition(":")[0] for block in folded] == [
        "aggregate",
        "ensemble",
        "complete",
    ]
    assert [figure.stem for figure in section.figures] == ["paired_differences"]
    assert paired_section(analysis(runs_of({"a": [0.3]}))) is None


# -- what moves the scores -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("runs", "header", "cells", "what"),
    [
        (
            [(0.29, 0.31), (0.39, 0.41)],
            ("Searches", "Training"),
            ("7.00", "1.41"),
            "of what searches find, of the training of one winner",
        ),
        (
            [(0.3,), (0.4,)],
            ("Search and training",),
            ("7.07",),
            "of what one search finds and one training makes of it",
        ),
    ],
)
def test_searches_are_told_from_trainings_where_a_winner_has_several(
    runs: list[tuple[float, ...]], header: tuple[str, ...], cells: tuple[str, ...], what: str
) -> None:
    values = [(search, value) for search, found in enumerate(runs) for value in found]
    rows = tuple(
        ResultRow("e", "m", "aggregate", run, MAP, value, search=search, trial=0)
        for run, (search, value) in enumerate(values)
    )
    config = {"protocol": {"search": {"trials": 10}}}
    results = ExperimentResults("e", "p", "mlrc", True, (), rows, config=config)
    section = luck_section(Analysis(Summary(results)))
    assert section is not None
    (table,) = section.blocks
    assert isinstance(table, PlainTable)
    assert table.header == ("Method", "Category", *header, "Test classes")
    assert [row[2:-1] for row in table.rows] == [cells]
    assert what in table.caption
