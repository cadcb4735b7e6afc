from __future__ import annotations

import pytest

from reality_check.training.early_stopping import EarlyStopping

#: protocol.md, section 2.
GOLDEN = {0: 0.30, 2: 0.35, 4: 0.36, 6: 0.355, 8: 0.354, 10: 0.353, 12: 0.35, 14: 0.34}


def test_the_golden_trace_stops_at_14_and_keeps_epoch_4() -> None:
    stopping = EarlyStopping(patience=9)
    stops = {}
    for epoch, value in GOLDEN.items():
        stopping.update(epoch, value)
        stops[epoch] = stopping.should_stop
    assert stops == {epoch: epoch == 14 for epoch in GOLDEN}
    assert (stopping.best_epoch, stopping.best_value) == (4, 0.36)


@pytest.mark.parametrize(
    ("interval", "patience", "misses"),
    [(2, 9, 5), (5, 14, 3), (20, 39, 2), (1, 0, 1)],
)
def test_the_published_patiences_allow_so_many_misses(
    interval: int, patience: int, misses: int
) -> None:
    """Protocol section 2: CUB 5, Cars 3, SOP 2 consecutive evaluations without improvement."""
    stopping = EarlyStopping(patience)
    stopping.update(interval, 0.5)
    seen = 0
    while not stopping.should_stop:
        seen += 1
        stopping.update(interval * (1 + seen), 0.4)
    assert seen == misses


def test_a_tie_keeps_the_earlier_epoch() -> None:
    stopping = EarlyStopping(patience=3)
    assert stopping.update(2, 0.5)
    assert not stopping.update(4, 0.5)
    assert stopping.best_epoch == 2
    stopping.update(6, 0.5)
    assert stopping.should_stop


def test_a_first_value_of_zero_is_the_best_so_far() -> None:
    stopping = EarlyStopping(patience=1)
    assert stopping.update(0, 0.0)
    assert not stopping.update(2, 0.0)
    assert stopping.should_stop


def test_without_patience_or_evaluations_nothing_stops() -> None:
    assert not EarlyStopping(patience=0).should_stop
    endless = EarlyStopping(patience=None)
    for epoch in range(1000):
        endless.update(epoch, -float(epoch))
    assert not endless.should_stop
    assert endless.best_epoch == 0


def test_the_state_continues_where_it_was() -> None:
    stopping = EarlyStopping(patience=9)
    for epoch in (0, 2, 4, 6, 8, 10, 12):
        stopping.update(epoch, GOLDEN[epoch])
    again = EarlyStopping(**vars(stopping))
    assert not again.should_stop
    again.update(14, GOLDEN[14])
    assert again.should_stop
