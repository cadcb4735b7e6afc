"""The trials of a method: where each lies on the axes, and what the table says of it."""

from __future__ import annotations

from reality_check.report.sections.blocks import Trials
from reality_check.report.sections.methods import trials_fold
from reality_check.results import MethodResults, TrialRecord


def trial(index: int, value: float | None, search: int = 0) -> TrialRecord:
    """One that diverged with a value of 0, and that still runs without a value."""
    params = {"rate": 10.0 ** (index - 3), "mode": "ab"[index % 2], "k": 7}
    return TrialRecord(
        "m", "search", index, "running" if value is None else "complete", value, params,
        diverged="NaN" if value == 0.0 else None, seconds=60.0, search=search,
    )  # fmt: skip


def shown(*trials: TrialRecord) -> Trials:
    names = ("rate", "mode", "k")
    method = MethodResults("m", "L", search=trials, searched=names, logarithmic=("rate",))
    (block,) = trials_fold(method).blocks
    assert isinstance(block, Trials)
    return block


def test_each_trial_has_its_place_on_every_axis() -> None:
    block = shown(*(trial(index, 0.125 * (index + 1)) for index in range(5)))
    rate, mode, k, value = block.axes
    assert rate.places == (0.0, 0.25, 0.5, 0.75, 1.0), "on its scale, which is logarithmic"
    assert (rate.low, rate.high) == ("0.001", "10")
    assert mode.places == (0.0, 1.0, 0.0, 1.0, 0.0)
    assert (mode.low, mode.high) == ("a", "b")
    assert k.places == (0.5,) * 5, "in the middle of a range that has no width"
    assert value.places == (0.0, 0.25, 0.5, 0.75, 1.0)
    assert (value.low, value.high) == ("12.5", "62.5")
    assert block.best == 4


def test_the_table_says_what_became_of_each() -> None:
    block = shown(trial(2, 0.2), trial(1, 0.0), trial(3, None))
    header = ("Trial", "validation MAP@R (%)", "rate", "mode", "k", "Time", "State")
    assert block.table.header == header
    assert block.table.rows == (
        ("1", "0.00", "0.01", "b", "7", "1 min", "diverged"),
        ("2", "20.00", "0.1", "a", "7", "1 min", "complete"),
        ("3", "—", "1", "b", "7", "1 min", "running"),
    )
    assert block.axes[-1].places == (0.0, 1.0, None), "one that runs has no line"
    assert block.best == 1


def test_trials_of_several_searches_are_told_apart() -> None:
    block = shown(trial(1, 0.1, search=1), trial(1, 0.2), trial(2, 0.3))
    assert block.table.header[:2] == ("Search", "Trial")
    assert [row[:2] for row in block.table.rows] == [("0", "1"), ("0", "2"), ("1", "1")]
