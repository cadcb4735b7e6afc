from __future__ import annotations

import io
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from reality_check.data import ClassBalancedSampler
from reality_check.utils.errors import UsageError


def labels_of(sizes: list[int], seed: int = 0) -> np.ndarray:
    labels = np.repeat(np.arange(len(sizes)), sizes)
    return np.random.default_rng(seed).permutation(labels)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 6), st.data())
def test_every_batch_is_balanced(sizes: list[int], each: int, data: st.DataObject) -> None:
    wanted = data.draw(st.integers(1, len(sizes)))
    labels = labels_of(sizes)
    sampler = ClassBalancedSampler(labels, wanted * each, each, seed=1)
    for _ in range(8):
        batch = sampler.next_batch()
        assert batch.dtype == np.int64
        assert batch.shape == (wanted * each,)
        groups = batch.reshape(wanted, each)
        classes = [set(labels[group].tolist()) for group in groups]
        assert all(len(labels_of_group) == 1 for labels_of_group in classes)
        assert len(set.union(*classes)) == wanted
        for group, (label,) in zip(groups, classes, strict=True):
            distinct = min(each, sizes[label])
            assert len(set(group[:distinct].tolist())) == distinct
            counts = Counter(group.tolist())
            assert max(counts.values()) - min(counts.values()) <= 1


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 11), st.data())
def test_each_pass_visits_every_class_once(classes: int, data: st.DataObject) -> None:
    per_batch = data.draw(st.integers(1, classes))
    labels = labels_of([3] * classes)
    sampler = ClassBalancedSampler(labels, per_batch, 1, seed=2)
    stream = np.concatenate([labels[sampler.next_batch()] for _ in range(4 * classes)])
    for start in range(0, len(stream) - classes + 1, classes):
        assert sorted(stream[start : start + classes]) == list(range(classes))


def test_each_image_comes_once_before_any_comes_again() -> None:
    labels = labels_of([7, 5])
    sampler = ClassBalancedSampler(labels, 6, 3, seed=3)
    stream = np.concatenate([sampler.next_batch() for _ in range(70)])
    for label, size in enumerate([7, 5]):
        mine = stream[labels[stream] == label]
        for start in range(0, len(mine) - size + 1, size):
            assert len(set(mine[start : start + size].tolist())) == size


def test_order_differs_between_passes_and_seeds() -> None:
    labels = labels_of([2] * 20)
    passes = {
        tuple(labels[ClassBalancedSampler(labels, 20, 1, seed).next_batch()]) for seed in range(5)
    }
    sampler = ClassBalancedSampler(labels, 20, 1, 0)
    passes |= {tuple(labels[sampler.next_batch()]) for _ in range(5)}
    assert len(passes) == 9  # the first pass of seed 0 is in both


def test_first_place_is_uniform_over_classes() -> None:
    labels = labels_of([2] * 5)
    sampler = ClassBalancedSampler(labels, 3, 1, seed=4)  # straddles passes all the time
    counts = np.bincount(labels[[sampler.next_batch()[0] for _ in range(5000)]], minlength=5)
    assert np.abs(counts - 1000).max() < 130  # four standard deviations


@pytest.mark.parametrize("after", [0, 1, 7, 23])
def test_resumes_bit_for_bit_from_a_weights_only_file(after: int) -> None:
    labels = labels_of([1, 2, 3, 9, 4, 5])
    first = ClassBalancedSampler(labels, 12, 3, seed=5)
    for _ in range(after):
        first.next_batch()
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    expected = [first.next_batch() for _ in range(30)]
    file.seek(0)
    second = ClassBalancedSampler(labels, 12, 3, seed=99)
    second.load_state_dict(torch.load(file, weights_only=True))
    np.testing.assert_array_equal([second.next_batch() for _ in range(30)], expected)


def test_loading_shares_no_memory_with_the_state() -> None:
    labels = labels_of([4, 4])
    sampler = ClassBalancedSampler(labels, 4, 2, seed=0)
    state = sampler.state_dict()
    first = [sampler.next_batch() for _ in range(5)]
    for _ in range(2):
        sampler.load_state_dict(state)
        np.testing.assert_array_equal([sampler.next_batch() for _ in range(5)], first)


def test_labels_need_not_be_ranks() -> None:
    labels = np.array([40, 7, 40, 7, 1000, 1000])
    batch = ClassBalancedSampler(labels, 6, 2, seed=0).next_batch()
    assert sorted(batch.tolist()) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("batch_size", "each", "text"),
    [
        (10, 4, "write protocol.training.batch_size: 8 or 12"),
        (3, 4, "write protocol.training.batch_size: 4"),
        (
            32,
            2,
            "needs 16 classes.*write protocol.training.batch_size: 10, or .*samples_per_class to 8",
        ),
        (7, 1, "batch_size: 5, or set the method's samples_per_class to 7"),
        (0, 1, "at least 1"),
        (4, 0, "at least 1"),
    ],
)
def test_refuses(batch_size: int, each: int, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        ClassBalancedSampler(labels_of([3] * 5), batch_size, each, seed=0)


def test_refuses_the_state_of_other_labels() -> None:
    state = ClassBalancedSampler(labels_of([3] * 5), 4, 1, seed=0).state_dict()
    with pytest.raises(UsageError, match="resume with the data set"):
        ClassBalancedSampler(labels_of([3] * 6), 4, 1, seed=0).load_state_dict(state)
