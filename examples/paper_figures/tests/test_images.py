"""The images of the figures: real ones as published, made-up ones without any file."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch

from examples.paper_figures.images import Images, data_folder, many_classes, ten_classes
from reality_check import UsageError

needs_data = pytest.mark.skipif(
    "REALITY_CHECK_DATA" not in os.environ,
    reason="REALITY_CHECK_DATA is not set to a folder with mnist/ and omniglot/",
)


@needs_data
def test_mnist_is_split_as_published() -> None:
    train, test = ten_classes(quick=False, fashion=False)
    assert (train.name, len(train), len(test)) == ("MNIST", 60_000, 10_000)
    assert train.pixels.shape[1:] == (28, 28)
    assert sorted(train.labels.unique().tolist()) == list(range(10))
    # Published counts of the digit 1, and ink that is bright.
    assert int((train.labels == 1).sum()) == 6742
    assert int((test.labels == 1).sum()) == 1135
    assert float(train.pixels.float().mean()) < 60
    # Any first part is fair: the file's own order would do, one sorted by class would not.
    assert len(train.first(300).labels.unique()) == 10


@needs_data
def test_omniglot_trains_and_tests_on_different_characters() -> None:
    train, test = many_classes(quick=False)
    assert (train.num_classes, len(train)) == (964, 964 * 20)
    assert (test.num_classes, len(test)) == (659, 659 * 20)
    assert float(train.pixels.float().mean()) < 60  # ink is bright
    # Whole classes come first, so that a first part of the images is a first part of the classes.
    assert train.first(60).labels.unique().tolist() == [0, 1, 2]


def test_made_up_digits_need_no_data(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REALITY_CHECK_DATA", raising=False)
    train, test = ten_classes(quick=True, fashion=True)
    assert (len(train), len(test)) == (200, 100)
    for part in (train, test):
        assert "made up" in part.name
        assert part.labels.bincount().min() == part.labels.bincount().max()
    assert torch.equal(ten_classes(quick=True, fashion=True)[0].pixels, train.pixels)


def test_made_up_characters_test_on_other_classes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REALITY_CHECK_DATA", raising=False)
    train, test = many_classes(quick=True)
    assert train.num_classes == test.num_classes == 24
    kept = {bytes(image.numpy()) for image in train.pixels}
    assert not kept & {bytes(image.numpy()) for image in test.pixels}


def test_fashion_mnist_is_taken_where_it_is_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REALITY_CHECK_DATA", str(tmp_path))
    (tmp_path / "fashion_mnist").mkdir()
    images, labels = np.zeros((60_010, 2, 2, 1), np.uint8), np.arange(60_010) % 10
    np.savez(tmp_path / "fashion_mnist" / "fashion_mnist_28.npz", images=images, labels=labels)
    train, test = ten_classes(quick=False, fashion=True)
    assert (train.name, len(train), len(test)) == ("Fashion-MNIST", 60_000, 10)


def test_no_folder_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("REALITY_CHECK_DATA", raising=False)
    with pytest.raises(UsageError, match="REALITY_CHECK_DATA is not set"):
        data_folder()


def test_batches_are_what_networks_take() -> None:
    pixels = torch.from_numpy(np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3) * 15)
    images = Images("x", pixels, torch.tensor([0, 4]))
    batch = images.batch(torch.tensor([1]), torch.device("cpu"))
    assert batch.shape == (1, 1, 3, 3)
    assert float(batch[0, 0, 2, 2]) == 1.0
    assert images.num_classes == 5
