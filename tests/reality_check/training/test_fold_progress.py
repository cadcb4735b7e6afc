from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reality_check.config.method import ValueSchedule
from reality_check.config.metrics import PRIMARY
from reality_check.config.model import Model
from reality_check.config.training import Training
from reality_check.training.fold import FoldTask
from reality_check.training.fold_progress import FoldProgress
from reality_check.training.methods import FilledMethod, FilledSecondPhase
from reality_check.training.schedules import value_factor

PART = {"name": "Adam", "lr": 0.1}
LINES = st.sampled_from(["linear", "cosine"])
SECOND = FilledSecondPhase({}, {}, lr_factor=0.5, loss_lr_factor=0.25)


def progress_of(
    second: FilledSecondPhase | None = None,
    fixed_epochs: tuple[int, int] | None = None,
    schedule: dict[str, Any] | None = None,
    **training: Any,
) -> FoldProgress:
    schedules = {"alpha": ValueSchedule.model_validate(schedule)} if schedule else {}
    settings = FilledMethod("m", "loss", {}, None, 2, {}, 0.0, True, second, schedules)
    plain = {"optimizers": {"trunk": PART, "embedder": PART, "loss": PART}, **training}
    how = Training.model_validate({"max_epochs": 6, "evaluate_every": 2, "patience": None} | plain)
    return FoldProgress(
        FoldTask(settings, Model(name="tiny", trunk="conv4"), how, 4, 1, 2, fixed_epochs)
    )


def train(progress: FoldProgress, values: list[float]) -> list[int]:
    """Train to the end of the phase with these evaluations; return the evaluated epochs."""
    evaluated = []
    while not progress.phase_is_over():
        progress.count_epoch(seconds=1.0)
        if progress.evaluation_is_due():
            evaluated.append(progress.position.epoch)
            progress.add({PRIMARY: values[len(evaluated) - 1]}, loss=0.5)
    return evaluated


def test_the_best_epoch_is_the_first_of_equals() -> None:
    progress = progress_of()
    assert train(progress, [0.2, 0.3, 0.3]) == [2, 4, 6]
    result = progress.result()
    assert (result.value, result.epoch, result.epochs_spent, result.seconds) == (0.3, 4, 6, 6.0)
    assert [row["epoch"] for row in result.curve] == [2, 4, 6]
    assert progress.report() == {"epoch": 6, "max_epochs": 6, "best": 0.3}


def test_the_last_epoch_of_a_phase_is_evaluated_off_the_interval() -> None:
    progress = progress_of(SECOND, max_epochs=5, second_phase_epochs=2)
    assert train(progress, [0.1, 0.2]) == [2, 3]
    progress.begin_second_phase()
    assert train(progress, [0.3]) == [5]
    assert progress.result().follow_up_epochs == 2


def test_the_untrained_network_counts_for_the_patience_only() -> None:
    progress = progress_of(patience=1)
    progress.add_untrained(-1, {PRIMARY: 0.9})
    progress.add_untrained(0, {PRIMARY: 0.8})
    assert progress.best is None
    assert train(progress, [0.1]) == [2]
    assert progress.result().value == 0.1


def test_each_phase_has_a_best_of_its_own() -> None:
    progress = progress_of(SECOND, max_epochs=8)
    train(progress, [0.4, 0.9, 0.8])
    progress.end_phase()
    progress.begin_second_phase()
    assert progress.best is None
    assert train(progress, [0.5]) == [8]
    result = progress.result()
    assert (result.value, result.epoch, result.follow_up_epochs) == (0.5, 8, 2)
    assert result.cut_short == ()


@pytest.mark.parametrize(
    ("values", "options", "cut"),
    [
        ([0.1, 0.2, 0.3], {}, [1]),
        ([0.1, 0.3, 0.2], {}, []),
        ([0.3, 0.2, 0.1], {"patience": 1}, []),
        ([0.1, 0.2], {"max_epochs": 4}, [1]),
    ],
)
def test_a_phase_that_its_limit_ends_at_its_best_epoch_is_cut_short(
    values: list[float], options: dict[str, Any], cut: list[int]
) -> None:
    progress = progress_of(**options)
    train(progress, values)
    progress.end_phase()
    assert progress.cut_short == cut
    again = progress_of(**options)
    again.load_state_dict(progress.state_dict())
    assert again.result().cut_short == tuple(cut)


def test_a_first_phase_of_fixed_length_is_not_cut_short() -> None:
    progress = progress_of(SECOND, max_epochs=4, second_phase_epochs=2)
    train(progress, [0.1])
    progress.end_phase()
    assert progress.cut_short == []
    progress.begin_second_phase()
    train(progress, [0.2])
    progress.end_phase()
    assert progress.cut_short == [2]


def test_going_back_to_the_best_weights_keeps_that_the_phase_was_cut_short() -> None:
    progress = progress_of(SECOND, max_epochs=8)
    progress.add({PRIMARY: 0.4}, loss=0.5)
    state = progress.state_dict()
    train(progress, [0.5, 0.6, 0.7])
    progress.end_phase()
    progress.return_to(state)
    assert progress.cut_short == [1]


def test_an_earlier_state_leaves_what_was_spent_since() -> None:
    progress = progress_of(SECOND, max_epochs=8)
    progress.count_epoch(1.0)
    progress.add({PRIMARY: 0.4}, loss=0.5)
    state = progress.state_dict()
    progress.count_epoch(1.0)
    progress.add({PRIMARY: 0.1}, loss=0.5)
    progress.return_to(state)
    position = progress.position
    assert (position.epoch, position.spent, position.seconds) == (1, 2, 2.0)
    assert [row[PRIMARY] for row in progress.history] == [0.4, 0.1]
    progress.begin_second_phase()
    assert progress.phase_limit() == 6


def test_epochs_before_the_last_change_of_the_loss_do_not_count() -> None:
    """Neither as the best nor for the patience, which the untrained network does not exhaust."""
    step = {"kind": "step", "at": [1, 3], "factor": 1000}
    progress = progress_of(schedule=step, max_epochs=9, evaluate_every=1, patience=1)
    progress.add_untrained(0, {PRIMARY: 0.9})
    assert train(progress, [0.8, 0.7, 0.6, 0.2, 0.3, 0.2, 0.1, 0.9]) == [1, 2, 3, 4, 5, 6, 7]
    assert (progress.result().value, progress.result().epoch) == (0.3, 5)


def test_a_second_phase_begins_with_weights_that_a_schedule_has_changed() -> None:
    step = {"kind": "step", "at": [2], "factor": 0.5}
    progress = progress_of(SECOND, schedule=step, max_epochs=8, evaluate_every=1, patience=2)
    train(progress, [0.9, 0.8, 0.2, 0.1, 0.3, 0.1])
    assert progress.result().epoch == 5


@given(
    schedule=st.one_of(
        st.fixed_dictionaries({"at": st.sets(st.integers(1, 11), min_size=1).map(sorted)}),
        st.fixed_dictionaries({"every": st.integers(1, 11)}),
        st.fixed_dictionaries({"epochs": st.integers(1, 11), "kind": LINES}),
        st.fixed_dictionaries({"kind": LINES}),
    ),
    patience=st.none() | st.integers(0, 5),
    evaluate_every=st.integers(1, 5),
    values=st.lists(st.sampled_from([0.1, 0.2, 0.3]), min_size=12, max_size=12),
)
def test_the_best_weights_were_trained_with_the_last_values(
    schedule: dict[str, Any], patience: int | None, evaluate_every: int, values: list[float]
) -> None:
    how: dict[str, Any] = {"patience": patience, "evaluate_every": evaluate_every, "max_epochs": 12}
    schedule = {"kind": "step", "factor": 0.5, **schedule}
    progress = progress_of(schedule=schedule, **how)
    train(progress, values)
    assert progress.best is not None
    if patience is None or "at" in schedule or "epochs" in schedule:
        trained, last = (
            value_factor(ValueSchedule(**schedule), epoch, 1, 12)
            for epoch in (progress.best.epoch - 1, 11)
        )
        assert trained == last


def test_a_saved_course_is_continued() -> None:
    progress = progress_of(SECOND, patience=3)
    progress.count_epoch(1.0)
    progress.add({PRIMARY: 0.4}, loss=0.5)
    again = progress_of(SECOND, patience=3)
    again.load_state_dict(progress.state_dict())
    assert again.state_dict() == progress.state_dict()
    assert again.best == progress.best


@pytest.mark.parametrize(("epochs", "has_second"), [((3, 2), True), ((3, 0), False)])
def test_fixed_epochs_decide_the_phases(epochs: tuple[int, int], has_second: bool) -> None:
    progress = progress_of(SECOND, fixed_epochs=epochs)
    assert progress.has_second_phase() == has_second
    assert progress.phase_limit() == epochs[0]
    progress.begin_second_phase()
    assert progress.phase_limit() == epochs[1]
    assert progress.report()["max_epochs"] == sum(epochs)
    assert progress.result().value == 0.0
