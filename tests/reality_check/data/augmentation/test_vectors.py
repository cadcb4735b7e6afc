"""Noise and dropout of vectors."""

from __future__ import annotations

import math

import pytest
import torch
from support.waits import no_waits

from reality_check.data.augmentation.vectors import VectorAugmentation
from reality_check.utils.errors import UsageError


def test_without_options_nothing_is_drawn_or_changed() -> None:
    generator = torch.Generator().manual_seed(0)
    before = generator.get_state()
    plain = VectorAugmentation(4)
    batch = torch.randn(3, 4)
    assert plain.is_off
    assert torch.equal(plain.apply(batch, plain.draw(3, generator)), batch)
    assert torch.equal(generator.get_state(), before)
    assert torch.equal(VectorAugmentation(4, noise=1).evaluation_transform()(batch), batch)


def test_noise_is_a_fraction_of_each_vectors_root_mean_square() -> None:
    changed = VectorAugmentation(2000, noise=0.3)
    batch = torch.cat([torch.full((1, 2000), 5.0), torch.full((1, 2000), -0.01)])
    numbers = changed.draw(2, torch.Generator().manual_seed(1))
    difference = (changed.apply(batch, numbers) - batch).std(dim=1) / torch.tensor([5.0, 0.01])
    assert difference.tolist() == pytest.approx([0.3, 0.3], rel=0.1)


def test_dropout_keeps_the_mean() -> None:
    changed = VectorAugmentation(20 * 100, dropout=0.25)
    batch = torch.ones(2, 20, 100)
    seen = changed.apply(batch, changed.draw(2, torch.Generator().manual_seed(1)))
    assert seen.shape == batch.shape
    assert seen.unique().tolist() == pytest.approx([0, 4 / 3])
    assert float((seen == 0).float().mean()) == pytest.approx(0.25, abs=0.03)


def test_samples_have_numbers_of_their_own() -> None:
    """So that a batch does not depend on which process makes it, or beside which other samples."""
    changed = VectorAugmentation(8, noise=0.5, dropout=0.5)
    batch = torch.randn(6, 8)
    numbers = changed.draw(6, torch.Generator().manual_seed(1))
    whole = changed.apply(batch, numbers)
    assert torch.equal(changed.apply(batch[2:4], numbers[2:4]), whole[2:4])
    assert not torch.equal(whole[0], whole[1])


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"noise": -1}, "noise must be"),
        ({"noise": math.inf}, "finite"),
        ({"dropout": 1}, "dropout must be less than 1"),
    ],
)
def test_refuses(options: dict[str, float], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        VectorAugmentation(3, **options)


def test_corruptions_are_those_of_images() -> None:
    with pytest.raises(UsageError, match="'blur' is one of images, but the samples are none"):
        VectorAugmentation(3).evaluation_transform().corrupted(torch.ones(1, 3), "blur", 0)


@pytest.mark.gpu
def test_a_gpu_sees_the_same_numbers() -> None:
    changed = VectorAugmentation(8, noise=0.5, dropout=0.5)
    batch = torch.randn(6, 8)
    numbers, there = changed.draw(6, torch.Generator().manual_seed(1)), batch.cuda()
    with no_waits():
        found = changed.apply(there, numbers)
    normal, uniform = torch.from_numpy(numbers).split(8, dim=1)
    level = 0.5 * batch.square().mean(dim=1, keepdim=True).sqrt()
    expected = (batch + level * normal) * (uniform >= 0.5) * 2
    torch.testing.assert_close(found.cpu(), expected)
