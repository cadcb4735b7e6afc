"""Augmentation moves landmarks where the geometry says; Normalize is recomputed with loops."""

from __future__ import annotations

import math

import numpy as np
import pytest
import simulated_cuda
import torch
from support.waits import no_waits
from torch import Tensor

from pml_extensions.functional import allow_tf32
from reality_check.data.augmentation.augment import Augmentation
from reality_check.data.augmentation.normalize import Normalize
from reality_check.data.augmentation.preprocessing import Preprocessing
from reality_check.data.images import PixelBatch
from reality_check.utils.errors import UsageError

LEVELS = Preprocessing(mean=(0.0,), std=(1 / 255,))  # the result has the grey levels of the input


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def noise(count: int, height: int, width: int, channels: int) -> Tensor:
    shape = (count, height, width, channels)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator(9))


def plain(**options: object) -> Augmentation:
    return Augmentation(preprocessing=LEVELS, **options)  # type: ignore[arg-type]


def dots(count: int, height: int, width: int, dx: float, dy: float) -> Tensor:
    """Soft dots at (dx, dy) pixels from the centre."""
    y = torch.arange(height) - (height - 1) / 2
    x = torch.arange(width) - (width - 1) / 2
    square = (x[None, :] - dx) ** 2 + (y[:, None] - dy) ** 2
    image = (255 * torch.exp(-square / 8)).round().to(torch.uint8)
    return image[None, :, :, None].repeat(count, 1, 1, 1)


def landmarks(images: Tensor) -> np.ndarray:
    """Centroids (B, 2) as x, y in pixels from the centre."""
    weight = images[:, 0].double()
    weight = weight / weight.sum(dim=(1, 2), keepdim=True)
    y = torch.arange(images.shape[2]) - (images.shape[2] - 1) / 2
    x = torch.arange(images.shape[3]) - (images.shape[3] - 1) / 2
    return torch.stack([(weight * x).sum((1, 2)), (weight * y[:, None]).sum((1, 2))], 1).numpy()


@pytest.mark.parametrize("size", [None, 3, 4])
def test_normalize_equals_plain_loops(size: int | None) -> None:
    batch = noise(2, 6, 7, 3)
    mean, std = (0.1, 0.2, 0.3), (0.5, 0.6, 0.7)
    result = Normalize(Preprocessing(mean, std), crop_size=size)(batch)
    height, width = (6, 7) if size is None else (size, size)
    top, left = {None: (0, 0), 3: (2, 2), 4: (1, 2)}[size]  # 1.5 rounds to even, as torchvision's
    assert result.shape == (2, 3, height, width)
    assert result.dtype == torch.float32
    for b, c, y, x in np.ndindex(2, 3, height, width):
        value = int(batch[b, top + y, left + x, c]) / 255
        assert float(result[b, c, y, x]) == pytest.approx((value - mean[c]) / std[c], abs=1e-6)


def test_without_options_nothing_is_drawn() -> None:
    batch, source = noise(3, 5, 5, 1), generator()
    before = source.get_state()
    augmentation = Augmentation(preprocessing=Preprocessing((0.2,), (0.3,)))
    assert augmentation.is_off
    expected = Normalize(Preprocessing((0.2,), (0.3,)))(batch)
    torch.testing.assert_close(augmentation(batch, source), expected)
    assert torch.equal(before, source.get_state())


@pytest.mark.parametrize(
    "options",
    [
        {"rotation": 1e-9},
        {"resized_crop_scale": (1.0, 1.0), "resized_crop_ratio": (1.0, 1.0)},
        {"horizontal_flip": 1e-12},
    ],
)
def test_options_that_change_nothing_give_the_image_back(options: dict[str, object]) -> None:
    batch = noise(4, 9, 9, 3)
    expected = Normalize(LEVELS)(batch)
    result = plain(**options)(batch, generator())
    torch.testing.assert_close(result, expected, atol=0.01, rtol=0)


def test_flip() -> None:
    batch = noise(400, 5, 6, 1)
    expected = Normalize(LEVELS)(batch)
    flipped = plain(horizontal_flip=1.0)(batch, generator())
    torch.testing.assert_close(flipped, expected.flip(3), atol=0.01, rtol=0)
    mixed = plain(horizontal_flip=0.25)(batch, generator())
    is_flipped = ((mixed - expected.flip(3)).abs().amax((1, 2, 3)) < 0.01).float()
    is_same = ((mixed - expected).abs().amax((1, 2, 3)) < 0.01).float()
    assert bool((is_flipped + is_same == 1).all())
    assert 0.16 < float(is_flipped.mean()) < 0.34


@pytest.mark.parametrize(("height", "width"), [(41, 41), (41, 61)])
def test_rotation_keeps_the_distance_and_stays_in_range(height: int, width: int) -> None:
    batch = dots(300, height, width, 10, 0)
    found = landmarks(plain(rotation=30)(batch, generator()))
    np.testing.assert_allclose(np.hypot(*found.T), 10, atol=0.1)
    angles = np.degrees(np.arctan2(found[:, 1], found[:, 0]))
    assert -30.3 < angles.min() < -25
    assert 25 < angles.max() < 30.3
    assert abs(angles.mean()) < 4


def test_scale_moves_landmarks_away_from_the_centre() -> None:
    batch = dots(300, 81, 61, 8, -8)
    found = landmarks(plain(scale=(0.5, 2.0))(batch, generator()))
    np.testing.assert_allclose(found[:, 0], -found[:, 1], atol=0.05)
    factors = found[:, 0] / 8
    assert 0.49 < factors.min() < 0.6
    assert 1.7 < factors.max() < 2.02
    assert np.mean(factors < 1) == pytest.approx(0.5, abs=0.1)  # log-uniform


def test_translation_is_a_fraction_of_each_side() -> None:
    found = landmarks(plain(translation=0.2)(dots(300, 40, 80, 0, 0), generator()))
    assert 14 < found[:, 0].max() < 16.1
    assert 7 < found[:, 1].max() < 8.1
    assert np.abs(found.mean(axis=0)).max() < 1.2


def test_shear_slants_along_both_axes() -> None:
    right = landmarks(plain(shear=20)(dots(300, 61, 61, 12, 0), generator()))
    assert np.abs(right[:, 1]).max() <= 12 * math.tan(math.radians(20)) + 0.1
    assert np.abs(right[:, 1]).max() > 3.5
    below = landmarks(plain(shear=20)(dots(300, 61, 61, 0, 12), generator()))
    assert np.abs(below[:, 0]).max() > 3.5
    np.testing.assert_allclose(below[:, 1], 12, atol=0.1)


def test_crops_have_the_asked_area_and_ratio() -> None:
    """Ramps along x and y show which window each image was cut from."""
    ramp = torch.arange(128, dtype=torch.uint8)
    batch = torch.stack([ramp[None, :].repeat(128, 1), ramp[:, None].repeat(1, 128)], 2)
    batch = torch.cat([batch, batch[:, :, :1]], 2)[None].repeat(300, 1, 1, 1)
    crop = plain(resized_crop_scale=(0.2, 0.5), resized_crop_ratio=(0.5, 2.0), crop_size=32)
    result = crop(batch, generator()).double()
    assert result.shape == (300, 3, 32, 32)
    width = (result[:, 0, 16, 26] - result[:, 0, 16, 5]).numpy() * 32 / 21
    height = (result[:, 1, 26, 16] - result[:, 1, 5, 16]).numpy() * 32 / 21
    area, ratio = width * height / 128**2, width / height
    assert 0.19 < area.min() < 0.23
    assert 0.45 < area.max() < 0.51
    assert 0.49 < ratio.min() < 0.6
    assert 1.7 < ratio.max() < 2.05
    assert float(result[:, 0].min()) >= 0
    assert float(result[:, 0].max()) > 120


def test_a_moved_crop_shows_what_lies_beside_its_window() -> None:
    """On a ramp neighbours differ by the same step everywhere, but where the image ends."""
    ramp = torch.arange(100, dtype=torch.uint8)[None, None, :, None].repeat(60, 100, 1, 1)
    crop = plain(resized_crop_scale=(0.2, 0.5), translation=0.4, crop_size=20)
    rows = crop(ramp, generator())[:, 0, 10]
    steps = rows.diff(dim=1)
    inside = (rows[:, 1:] < 93) & (rows[:, :-1] > 6)
    assert inside.any(dim=1).sum() > 50
    for row, kept in zip(steps, inside, strict=True):
        assert not kept.any() or row[kept].max() - row[kept].min() < 0.2


def test_white_paper_stays_white() -> None:
    batch = torch.full((50, 12, 12, 1), 255, dtype=torch.uint8)
    options: dict[str, object] = {"rotation": 45, "translation": 0.5, "scale": (0.3, 1.0)}
    torch.testing.assert_close(
        plain(**options)(batch, generator()), torch.full((50, 1, 12, 12), 255.0)
    )


def test_crop_size_without_a_crop_is_the_centre() -> None:
    batch = noise(2, 10, 10, 1)
    result = plain(horizontal_flip=1.0, crop_size=6)(batch, generator())
    expected = Normalize(LEVELS, crop_size=6)(batch).flip(3)
    torch.testing.assert_close(result, expected, atol=0.01, rtol=0)
    assert plain(crop_size=6).evaluation_transform()(batch).shape == (2, 1, 6, 6)


EVERYTHING: dict[str, object] = {
    "rotation": 20,
    "scale": (0.8, 1.2),
    "shear": 10,
    "translation": 0.1,
    "horizontal_flip": 0.5,
    "resized_crop_scale": (0.3, 1.0),
    "brightness": 0.2,
    "contrast": 0.2,
    "saturation": 0.2,
    "hue": 0.1,
    "grayscale": 0.3,
}


def test_same_generator_state_same_result() -> None:
    batch = noise(8, 16, 16, 3)
    augmentation = plain(**EVERYTHING)
    first, second = augmentation(batch, generator(3)), augmentation(batch, generator(3))
    assert torch.equal(first, second)
    assert not torch.equal(first, augmentation(batch, generator(4)))
    assert first.shape == (8, 3, 16, 16)
    assert first.dtype == torch.float32
    assert first.is_contiguous()


def test_state_of_the_generator_depends_on_the_number_of_images_only() -> None:
    states = []
    for options in ({"rotation": 5}, {"grayscale": 0.1}, EVERYTHING):
        for shape in ((8, 16, 16, 3), (8, 9, 30, 1)):
            source = generator(1)
            plain(**options)(noise(*shape), source)
            states.append(source.get_state())
    assert all(torch.equal(state, states[0]) for state in states)


def test_rows_of_a_batch_with_their_numbers_give_the_rows_of_the_result() -> None:
    """So several processes can share a batch and see what one would have seen."""
    batch, augmentation = noise(8, 16, 16, 3), plain(**EVERYTHING)
    numbers = augmentation.draw(8, generator(2))
    part = augmentation.apply(batch[3:6], numbers[3:6])
    torch.testing.assert_close(part, augmentation(batch, generator(2))[3:6], atol=1e-3, rtol=0)


@pytest.mark.parametrize(
    "options",
    [
        EVERYTHING,
        {"scale": (0.5, 1.5), "translation": 0.3, "crop_size": 20},
        {"resized_crop_scale": (0.2, 1.0), "crop_size": 12},
        {"random_crop": True, "crop_size": 8, "horizontal_flip": 0.5},
        {"crop_size": 16},
    ],
)
def test_what_lies_beyond_an_image_in_its_slot_is_never_read(options: dict[str, object]) -> None:
    sizes = torch.tensor([[9, 30], [16, 16], [31, 8]])
    augmentation = plain(**{"crop_size": 16, **options})
    results = []
    for beyond in (0, 255):
        pixels = torch.full((3, 31, 30, 3), beyond, dtype=torch.uint8)
        for canvas, (height, width) in zip(pixels, sizes.tolist(), strict=True):
            canvas[:height, :width] = noise(1, height, width, 3)[0]
        results.append(augmentation(PixelBatch(pixels, sizes), generator()))
    torch.testing.assert_close(*results)


def test_an_image_alone_and_in_a_larger_slot_are_treated_alike() -> None:
    options = {"crop_size": 10, "rotation": 25, "translation": 0.2, "horizontal_flip": 0.5}
    image, canvas = noise(4, 14, 18, 1), torch.zeros(4, 20, 25, 1, dtype=torch.uint8)
    canvas[:, :14, :18] = image
    inside = PixelBatch(canvas, torch.tensor([[14, 18]] * 4))
    for chosen in (options, {**options, "rotation": 0}, {"crop_size": 10}):
        alone = plain(**chosen)(image, generator())
        torch.testing.assert_close(plain(**chosen)(inside, generator()), alone, atol=2e-2, rtol=0)


def test_input_is_left_alone() -> None:
    batch = noise(4, 8, 8, 3)
    before = batch.clone()
    for options in (EVERYTHING, {"horizontal_flip": 1.0}, {}):
        plain(**options)(batch, generator())
        assert torch.equal(batch, before)


def test_autocast_changes_nothing() -> None:
    batch = noise(4, 16, 16, 3)
    for options in (EVERYTHING, {"resized_crop_scale": (0.3, 1.0), "contrast": 0.5}):
        expected = plain(**options)(batch, generator())
        with torch.autocast("cpu", dtype=torch.bfloat16):
            result = plain(**options)(batch, generator())
        assert result.dtype == torch.float32
        torch.testing.assert_close(result, expected, atol=1e-3, rtol=0)


@pytest.mark.gpu
@pytest.mark.parametrize(
    "options",
    [
        EVERYTHING,
        {"resized_crop_scale": (0.3, 1.0), "horizontal_flip": 0.5},
        {"random_crop": True, "crop_size": 10, "horizontal_flip": 0.5},
        {"resized_crop_scale": (0.3, 1.0), "interpolation": "bicubic", "hue": 0.5},
        {"resize": 10, "crop_size": 8, "resized_crop_scale": (0.9, 1.0)},
        {"translation": 0.2, "resize": 20, "crop_size": 14, "grayscale": 0.5},
    ],
)
def test_cuda_sees_the_same_numbers(options: dict[str, object]) -> None:
    batch, augmentation = noise(8, 16, 16, 3), plain(**options)
    there = batch.cuda()
    augmentation(there, generator())  # the constants of the preprocessing are uploaded once
    gpu = simulated_cuda.current()
    precise = torch.autocast("cuda", torch.bfloat16), allow_tf32(there.device, True)
    with no_waits(), precise[0], precise[1]:
        on_gpu = augmentation(there, generator())
    assert on_gpu.dtype == torch.float32
    assert gpu is None or not (gpu.doubles or gpu.tf32), "neither more nor fewer bits"
    torch.testing.assert_close(on_gpu.cpu(), augmentation(batch, generator()), atol=0.05, rtol=0)


@pytest.mark.gpu
@pytest.mark.parametrize("options", [EVERYTHING, {"resized_crop_scale": (0.3, 1.0), "hue": 0.5}])
def test_the_second_gpu_gets_what_it_needs(options: dict[str, object]) -> None:
    batch, augmentation = noise(8, 16, 16, 3), plain(**options)
    with simulated_cuda.simulated_cuda(gpus=2):
        found = augmentation(batch.to("cuda:1"), generator())
        assert found.device.index == 1
    torch.testing.assert_close(found.cpu(), augmentation(batch, generator()), atol=0.05, rtol=0)


@pytest.mark.parametrize(
    ("batch", "text"),
    [
        (torch.zeros(2, 4, 4, 3), "float32"),
        (torch.zeros(2, 4, 4, dtype=torch.uint8), r"\(2, 4, 4\)"),
        (torch.zeros(2, 9, 9, 2, dtype=torch.uint8), r"9, 2\), but .* 1 or 3 channels"),
        (
            PixelBatch(torch.zeros(2, 9, 9, 1, dtype=torch.uint8), torch.tensor([[4, 9], [9, 5]])),
            "from 4 x 5 to 9 x 9 .*set crop_size",
        ),
        (
            PixelBatch(torch.zeros(2, 9, 9, 1, dtype=torch.uint8), torch.tensor([9, 5])),
            r"shape \(2,\).*\(2, 2\)",
        ),
    ],
)
@pytest.mark.parametrize("rotation", [0, 10])
def test_refuses_batches(batch: Tensor | PixelBatch, text: str, rotation: float) -> None:
    with pytest.raises(UsageError, match=text):
        Augmentation(rotation=rotation)(batch, generator())
