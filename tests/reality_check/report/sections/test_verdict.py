"""The sentences: word for word, and honest about what cannot be told."""

from __future__ import annotations

import dataclasses
from typing import Any

from reality_check.config.metrics import PRIMARY
from reality_check.report.analysis import Analysis
from reality_check.report.sections.blocks import Bullets, Heading
from reality_check.report.sections.verdict import (
    NOISE_TEXTS,
    correction_sentence,
    headline,
    pair_sentence,
    verdict_section,
)
from reality_check.report.summary import Evidence, Summary
from reality_check.report.tables import overview_table
from reality_check.results import ExperimentResults, MethodResults, ResultRow, TrialRecord
from reality_check.statistics import Comparison, Difference

MAP = "mean_average_precision_at_r"


def experiment(values: dict[str, list[float]], **changes: Any) -> Summary:
    rows = tuple(
        ResultRow("e", method, "ensemble", run, MAP, value)
        for method, found in values.items()
        for run, value in enumerate(found)
    )
    results = ExperimentResults("e", "mlrc", "mlrc", True, methods=(), rows=rows)
    return Summary(dataclasses.replace(results, **changes))


def test_a_clear_pair() -> None:
    difference = Difference(0.012, 0.008, 0.004, (10, 10))
    assert pair_sentence(Comparison("A", "B", difference, 0.004, 1), experiment({})) == (
        "A is above B by 1.20 points MAP@R (95 % interval 0.40 to 2.00, n = 10 and 10)."
    )


def test_a_pair_that_is_not_distinguishable() -> None:
    difference = Difference(0.001, 0.008, 0.8, (10, 9))
    assert pair_sentence(Comparison("A", "B", difference, 0.8, 1), experiment({})) == (
        "A is not distinguishable from B: a difference of "
        "0.10 points MAP@R (95 % interval −0.70 to 0.90, "
        "n = 10 and 9)."
    )


def test_a_pair_that_only_the_correction_makes_doubtful() -> None:
    difference = Difference(0.005, 0.004, 0.02, (10, 10))
    assert pair_sentence(Comparison("A", "B", difference, 0.12, 6), experiment({})) == (
        "A is not distinguishable from B after correction for 6 pairs: a difference of "
        "0.50 points MAP@R "
        "(95 % interval 0.10 to 0.90, n = 10 and 10, Holm p = 0.12; alone p = 0.02)."
    )


def test_a_pair_with_a_single_run() -> None:
    pair = Comparison("A", "B", Difference(0.1, None, None, (1, 5)), None, 0)
    sentence = pair_sentence(pair, experiment({}))
    assert sentence == (
        "A is not distinguishable from B: a difference of 10.00 points MAP@R, "
        "but no test with fewer than three runs (n = 1 and 5)."
    )


def category_sentences(summary: Summary, category: str) -> list[str]:
    """What stands below the heading of a category."""
    blocks = list(verdict_section(Analysis(summary)).blocks)
    bullets = blocks[blocks.index(Heading(category)) + 1]
    assert isinstance(bullets, Bullets)
    return ["".join(line) for line in bullets.lines]


def test_the_first_sentence_is_on_the_best_two_and_the_last_on_who_is_missing(build: Any) -> None:
    summary = Summary(build({"warped": 5, "<b>x</b>": 5, "my_loss_50%": 5}))
    sentences = category_sentences(summary, "ensemble")
    assert sentences[0].startswith("warped is not distinguishable from my_loss_50%")
    assert sentences[1].startswith("warped is above <b>x</b> by ")
    assert sentences[-1] == "late & slow has no results in this category yet."
    assert len(sentences) == 4
    assert correction_sentence(summary, "ensemble").startswith("9 pairs are tested in all")


def test_two_methods_need_no_correction() -> None:
    summary = experiment({"a": [0.3, 0.31, 0.3], "b": [0.2, 0.21, 0.2]})
    assert correction_sentence(summary, "ensemble") == ""
    assert "Holm" not in category_sentences(summary, "ensemble")[0]


def test_the_headline_of_a_clear_winner() -> None:
    values = {"a": [0.3, 0.31, 0.3], "b": [0.2, 0.21, 0.2], "c": [0.1, 0.11, 0.1]}
    assert headline(experiment(values)) == "a is above both other methods on MAP@R (ensemble)."
    assert headline(experiment({k: values[k] for k in "ab"})) == "a is above b on MAP@R (ensemble)."


def test_the_headline_of_no_winner() -> None:
    values = {"a": [0.3, 0.2, 0.25], "b": [0.2, 0.3, 0.24]}
    assert headline(experiment(values)) == (
        "a leads on MAP@R, but is not distinguishable from b (ensemble)."
    )


def test_the_headline_is_cautious(results: ExperimentResults) -> None:
    text = headline(Summary(results))
    assert text.startswith("warped leads on MAP@R, but is not distinguishable from")
    assert text.endswith("Read it with the serious deviation below: reproductions.")


def test_the_headline_without_results() -> None:
    assert headline(experiment({})) == "No results yet: no reproduction has been scored."
    assert headline(experiment({"a": [0.3]})) == "only a has results (ensemble)."


def test_the_note_on_noise_names_what_is_left_out() -> None:
    assert "training noise only" in NOISE_TEXTS[Evidence.VALUES]
    assert "nothing here says that one loss is better" in NOISE_TEXTS[Evidence.SETTINGS]
    for evidence in (Evidence.SEARCHES, Evidence.SUBSETS):
        assert "luck of the search and of the training" in NOISE_TEXTS[evidence]
        assert "split" in NOISE_TEXTS[evidence]


def test_diverged_reproductions_are_named(results: ExperimentResults) -> None:
    method = results.methods[0]
    lost = dataclasses.replace(method.reproductions[0], diverged="loss is NaN")
    changed = dataclasses.replace(method, reproductions=(lost, *method.reproductions[1:]))
    rows = tuple(
        dataclasses.replace(row, value=0.0)
        if (row.method, row.reproduction) == ("warped", 0) and row.category != "complete"
        else row
        for row in results.rows
    )
    methods = (changed, *results.methods[1:])
    summary = Summary(dataclasses.replace(results, methods=methods, rows=rows))
    sound = [row.value for row in summary.rows["aggregate", PRIMARY, "warped"][1:]]
    assert len(sound) == 4
    sentence = (
        "warped: 1 of 5 retrainings diverged, counted as 0, which intervals are not made for; the "
        f"mean of the others is {100 * sum(sound) / 4:.2f} %."
    )
    assert sentence in category_sentences(summary, "aggregate")
    assert not any("diverged" in line for line in category_sentences(summary, "complete"))
    weak = "The interval rests on little and may not hold for warped (1 of 5 retrainings diverged, "
    assert f"{weak}counted as 0)." in headline(summary)


def test_a_single_retraining_that_diverged_is_named_without_an_interval(
    results: ExperimentResults,
) -> None:
    method = results.methods[0]
    lost = dataclasses.replace(method.reproductions[0], diverged="loss is NaN")
    changed = dataclasses.replace(method, reproductions=(lost,))
    rows = tuple(
        dataclasses.replace(row, value=0.0) if row.method == "warped" else row
        for row in results.rows
        if row.method != "warped" or row.reproduction == 0
    )
    methods = (changed, *results.methods[1:])
    summary = Summary(dataclasses.replace(results, methods=methods, rows=rows))
    sentences = category_sentences(summary, "aggregate")
    named = "warped: 1 of 1 retrainings diverged, counted as 0, which intervals are not made for."
    assert named in sentences
    assert "rests on little" not in headline(summary)


def searched(scores: dict[str, list[float]], retrained: int, budget: int = 2) -> Summary:
    """One random search of each method, with test scores equal to validation scores."""
    methods = []
    for name, values in scores.items():
        trials = tuple(TrialRecord(k, "complete", value=v) for k, v in enumerate(values))
        methods.append(MethodResults(name, "L", trials, searched=("x",)))
    rows = tuple(
        ResultRow("e", name, "ensemble", k, PRIMARY, value, 0, k)
        for name, values in scores.items()
        for k, value in sorted(enumerate(values), key=lambda each: -each[1])[:retrained]
    )
    config = {"protocol": {"search": {"trials": 8, "budget": budget}}}
    results = ExperimentResults("e", "p", "mlrc", True, tuple(methods), rows, config=config)
    return Summary(results)


EVEN = [0.20, 0.21, 0.22, 0.23, 0.24, 0.25, 0.26, 0.27]
RARE = [*EVEN[:-1], 0.4]


def test_the_headline_names_intervals_that_rest_on_little() -> None:
    reason = "1 of 8 trials far above the others, so that it is hardly known how often a "
    reason += "search finds one"
    texts = (
        headline(searched({"a": EVEN, "b": RARE}, 8)),
        headline(searched({"b": RARE, "c": RARE}, 8)),
    )
    assert f". The interval rests on little and may not hold for b ({reason})." in texts[0]
    both = f"b ({reason}) and c ({reason})"
    assert f". The interval rests on little and may not hold for {both}." in texts[1]
    assert "may not hold" not in headline(searched({"a": EVEN}, 8))


def test_without_enough_retrainings_there_is_no_interval() -> None:
    summary = searched({"a": EVEN, "b": EVEN}, 3)
    assert summary.estimates("ensemble")["a"].half_width is None
    reason = "only 3 of 8 trials retrained so far, while others win too many searches"
    assert f"There is no interval and no test for a ({reason}) and b" in headline(summary)


def test_sizes_of_subsets_are_effective_numbers_of_trials() -> None:
    summary = searched({"a": EVEN, "b": RARE}, 8)
    assert "n = 5.6 and 5.6 effective trials" in category_sentences(summary, "ensemble")[0]
    table = overview_table(summary)
    assert table is not None
    assert {row.n for row in table.rows} == {"5.6"}
