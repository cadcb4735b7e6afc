"""Whether a method learned anything: against raw pixels and untrained networks."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from reality_check.cli.run_summary import print_summary
from reality_check.report.sections.untrained import untrained_sentence, untrained_sentences
from reality_check.report.sections.verdict import headline
from reality_check.report.summary import Summary
from reality_check.report.untrained import Untrained, untrained
from reality_check.report.writing import write_report
from reality_check.results import ExperimentResults, ResultRow

MAP = "mean_average_precision_at_r"
BASELINES = {"raw pixels": [0.065], "untrained embedder": [0.030, 0.031, 0.029]}
VALUES = {
    "good": [0.08, 0.081, 0.079],
    "idle": [0.031, 0.032, 0.027],
    "between": [0.05, 0.051, 0.049],
}


def experiment(
    values: dict[str, list[float]],
    baselines: dict[str, list[float]] = BASELINES,
    category: str = "aggregate",
    **config: Any,
) -> Summary:
    def rows(found: dict[str, list[float]], category: str) -> tuple[ResultRow, ...]:
        return tuple(
            ResultRow("e", name, category, run, MAP, value)
            for name, runs in found.items()
            for run, value in enumerate(runs)
        )

    results = ExperimentResults("e", "mlrc", "mlrc", True, methods=(), rows=rows(values, category))
    return Summary(
        dataclasses.replace(results, baselines=rows(baselines, "aggregate"), config=config)
    )


def test_who_is_above_which_baseline() -> None:
    pixels, embedder = untrained(experiment(VALUES))
    assert pixels == Untrained("raw pixels", 0.065, 1, ("idle", "between"))
    assert (embedder.name, embedder.n, embedder.unbeaten) == ("untrained embedder", 3, ("idle",))
    assert embedder.mean == pytest.approx(0.03)


def test_an_interval_that_reaches_the_baseline_shows_nothing() -> None:
    # Means of 0.067 and 0.031, above the baselines; the intervals are not.
    pixels, embedder = untrained(experiment({"a": [0.06, 0.066, 0.075], "b": [0.02, 0.03, 0.043]}))
    assert pixels.unbeaten == ("a", "b")
    assert embedder.unbeaten == ("b",)


@pytest.mark.parametrize(("value", "unbeaten"), [(0.066, ()), (0.065, ("a",)), (0.0, ("a",))])
def test_a_single_run_is_above_where_it_is(value: float, unbeaten: tuple[str, ...]) -> None:
    assert untrained(experiment({"a": [value]}))[0].unbeaten == unbeaten


def test_networks_of_their_own_have_other_baselines() -> None:
    own = {"trunk": "resnet18"}
    methods = [{"name": "idle", "model": own}, {"name": "good", "model": None}]
    assert untrained(experiment(VALUES, methods=methods))[1].unbeaten == ()
    every = experiment(VALUES, methods=[{"name": name, "model": own} for name in VALUES])
    assert untrained(every) == []
    partly = [{"name": "idle", "model": {"adapter": {"rank": 2}}}, {"name": "good"}]
    assert untrained(experiment(VALUES, methods=partly))[1].unbeaten == ("idle",)


def test_only_the_aggregate_has_networks_that_are_alike_trained_and_untrained() -> None:
    other = experiment(VALUES, category="complete")
    assert untrained(other) == []
    assert untrained_sentences(other) == []
    assert untrained_sentence(other) == ""


def test_the_sentences() -> None:
    assert untrained_sentences(experiment(VALUES))[:2] == [
        "raw pixels, 6.50 % MAP@R (n = 1): idle and between are not better.",
        "untrained embedder, 3.00 % MAP@R (n = 3): idle is not better.",
    ]
    assert untrained_sentences(experiment({"good": VALUES["good"]}))[0].endswith(
        "raw pixels, 6.50 % MAP@R (n = 1): all methods are better."
    )
    assert untrained_sentences(experiment(VALUES, {})) == []


def test_the_verdict_names_those_below_the_best_baseline() -> None:
    note = (
        "Not better than raw input or the untrained network (best: raw pixels, 6.50 % MAP@R in "
        "the aggregate): idle and between."
    )
    assert headline(experiment(VALUES)) == (
        f"good is above both other methods on MAP@R (aggregate). {note}"
    )
    assert headline(experiment({"good": VALUES["good"]})) == "only good has results (aggregate)."
    assert headline(experiment(VALUES, {})).endswith("on MAP@R (aggregate).")


def test_many_methods_are_not_named_when_it_is_all_of_them() -> None:
    six = {f"idle_{number}": VALUES["idle"] for number in range(6)}
    assert untrained_sentence(experiment(six)).endswith("in the aggregate): all 6 methods.")
    assert untrained_sentences(experiment(six))[0].endswith("all 6 methods are not better.")
    named = untrained_sentence(experiment({**six, "good": VALUES["good"]}))
    assert named.endswith(": idle_0, idle_1, idle_2, idle_3, idle_4 and idle_5.")


@pytest.mark.usefixtures("undrawn")
def test_both_pages_say_it(results: ExperimentResults, tmp_path: Any) -> None:
    above = [dataclasses.replace(row, value=0.99) for row in results.baselines]
    write_report(dataclasses.replace(results, baselines=tuple(above)), tmp_path)
    for page in ("report.html", "report.md"):
        text = (tmp_path / page).read_text(encoding="utf-8")
        assert text.count("Not better than raw input or the untrained network") == 1
        assert "99.00 % MAP@R (n = 1): " in text
        assert "are not better." in text


def test_so_does_the_end_of_a_run(capsys: pytest.CaptureFixture[str]) -> None:
    for values, named in ((VALUES, 1), ({"good": VALUES["good"]}, 0)):
        print_summary(experiment(values).results)
        printed = capsys.readouterr().out
        assert printed.count("network (best: raw pixels, 6.50 % MAP@R in the aggregate)") == named
