"""Batches without regard to classes, and the split into two halves."""

from __future__ import annotations

import io

import numpy as np
import pytest
import torch

from reality_check.data import ClassBalancedSampler, ShuffledSampler, build_sampler, class_splits
from reality_check.utils.errors import UsageError

LABELS = np.repeat(np.arange(5), [1, 2, 3, 4, 1])


def test_a_pass_visits_every_image_once_and_no_batch_repeats_one() -> None:
    sampler = ShuffledSampler(LABELS, 4, seed=3)
    batches = [sampler.next_batch() for _ in range(11)]
    assert all(len(set(batch.tolist())) == 4 for batch in batches)
    drawn = np.concatenate(batches)
    assert drawn.dtype == np.int64
    assert sorted(drawn[:11].tolist()) == list(range(11))
    assert np.bincount(drawn).tolist() == [4] * 11
    other = ShuffledSampler(LABELS, 4, seed=4)
    assert drawn.tolist() != np.concatenate([other.next_batch() for _ in range(11)]).tolist()


def test_it_resumes_where_it_stood() -> None:
    sampler = ShuffledSampler(LABELS, 4, seed=3)
    for _ in range(4):
        sampler.next_batch()
    stream = io.BytesIO()
    torch.save(sampler.state_dict(), stream)
    stream.seek(0)
    resumed = ShuffledSampler(LABELS, 4, seed=0)
    resumed.load_state_dict(torch.load(stream, weights_only=True))
    for _ in range(6):
        assert resumed.next_batch().tolist() == sampler.next_batch().tolist()


@pytest.mark.parametrize("size", [0, 12])
def test_a_batch_of_more_images_than_there_are_is_a_usage_error(size: int) -> None:
    with pytest.raises(UsageError, match=f"batch_size={size}.*training images, 11"):
        ShuffledSampler(LABELS, size, seed=0)


@pytest.mark.parametrize("size", [1, 11])
def test_a_batch_is_one_image_at_least_and_all_of_them_at_most(size: int) -> None:
    sampler = ShuffledSampler(LABELS, size, seed=0)
    drawn = np.concatenate([sampler.next_batch() for _ in range(22 // size)])
    assert np.bincount(drawn).tolist() == [2] * 11


def test_the_state_of_other_images_is_a_usage_error() -> None:
    state = ShuffledSampler(LABELS, 4, seed=0).state_dict()
    with pytest.raises(UsageError, match="11 images"):
        ShuffledSampler(LABELS[:9], 4, seed=0).load_state_dict(state)


def test_samples_per_class_decide_which_sampler_it_is() -> None:
    assert isinstance(build_sampler(LABELS, 4, None, 0), ShuffledSampler)
    assert isinstance(build_sampler(LABELS, 4, 2, 0), ClassBalancedSampler)


@pytest.mark.parametrize(
    ("classes", "train", "validation"),
    [(200, range(50), range(50, 100)), (196, range(49), range(49, 98)), (10, [0, 1], [2, 3, 4])],
)
def test_the_rule_of_halves_trains_on_the_first_half(
    classes: int, train: range, validation: range
) -> None:
    splits = class_splits(classes, 1, "halves")
    (fold,) = splits.folds
    assert fold.train == tuple(train)
    assert fold.validation == tuple(validation)
    assert splits.test == tuple(range(classes // 2, classes))


def test_the_rule_of_halves_within_official_classes() -> None:
    splits = class_splits(10, 1, "halves", test_classes=[0, 2, 4, 6, 8])
    assert splits.folds[0].train == (1, 3)
    assert splits.folds[0].validation == (5, 7, 9)


@pytest.mark.parametrize(
    ("folds", "rule", "words"),
    [(2, "halves", "folds: 1"), (1, "mlrc", "at least 2"), (1, "kfold", "at least 2")],
)
def test_only_the_rule_of_halves_has_one_fold(folds: int, rule: str, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        class_splits(40, folds, rule)  # type: ignore[arg-type]


def test_a_half_needs_two_classes() -> None:
    with pytest.raises(UsageError, match=r"3 training and 4 test classes.*at least 4"):
        class_splits(7, 1, "halves")
