"""Windows against the rule of torchvision's RandomResizedCrop written as a loop."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

from reality_check.data.augmentation._windows import (
    CROP_NUMBERS,
    centre_crops,
    random_crops,
    resized_crops,
    scaled_sizes,
)


def one_window(
    height: int, width: int, area: tuple[float, float], ratio: tuple[float, float], u: list[float]
) -> list[int]:
    """Top, left, height, width: ten tries, else the largest central window of the nearest ratio."""
    for attempt in range(10):
        target = height * width * (area[0] + (area[1] - area[0]) * u[2 + attempt])
        low, high = math.log(ratio[0]), math.log(ratio[1])
        aspect = math.exp(low + (high - low) * u[12 + attempt])
        w, h = round(math.sqrt(target * aspect)), round(math.sqrt(target / aspect))
        if 0 < w <= width and 0 < h <= height:
            return [int(u[0] * (height - h + 1)), int(u[1] * (width - w + 1)), h, w]
    h, w = height, width
    if width / height < min(ratio):
        h = round(width / min(ratio))
    elif width / height > max(ratio):
        w = round(height * max(ratio))
    return [(height - h) // 2, (width - w) // 2, h, w]


@pytest.mark.parametrize(
    ("area", "ratio"),
    [
        ((0.16, 1.0), (3 / 4, 4 / 3)),
        ((0.9, 1.0), (0.4, 0.5)),
        ((0.001, 0.01), (1.0, 1.0)),
        ((1.0, 1.0), (2.0, 2.0)),
    ],
)
def test_windows_equal_the_loop(area: tuple[float, float], ratio: tuple[float, float]) -> None:
    draw = random.Random(3)
    sizes = [(draw.randint(2, 90), draw.randint(2, 90)) for _ in range(300)]
    numbers = [[draw.random() for _ in range(CROP_NUMBERS)] for _ in sizes]
    shape = np.asarray(sizes, dtype=np.float64)
    windows = resized_crops(shape, shape, area, ratio, np.asarray(numbers))
    expected = [one_window(*s, area, ratio, u) for s, u in zip(sizes, numbers, strict=True)]
    found = np.concatenate([windows.start, windows.extent], axis=1)
    np.testing.assert_array_equal(found, expected)
    assert windows.bounded


def test_some_windows_of_the_loop_need_a_second_try_and_some_the_last_resort() -> None:
    """Else the test above would say little."""
    draw = random.Random(3)
    numbers = [[draw.random() for _ in range(CROP_NUMBERS)] for _ in range(300)]
    found = [one_window(60, 60, (0.9, 1.0), (0.4, 0.5), u) for u in numbers]
    assert found == [[0, 15, 60, 30]] * 300
    kinds = {one_window(60, 50, (0.8, 1.0), (0.6, 1.0), u)[2] for u in numbers}
    assert len(kinds) > 3


def test_random_crops_lie_everywhere_inside() -> None:
    sizes = np.asarray([[7.0, 5.0]])
    numbers = np.random.default_rng(0).random((500, 2))
    windows = random_crops(centre_crops(sizes, sizes, (4, 4)), numbers)
    corners = {(int(y), int(x)) for y, x in windows.start}
    assert corners == {(y, x) for y in range(4) for x in range(2)}
    assert not windows.need_resampling((4, 4))


@pytest.mark.parametrize("size", [(20, 33), (33, 20), (256, 256), (7, 500), (30, 31)])
@pytest.mark.parametrize(("resize", "crop"), [(None, 24), (40, 24), (40, None), (None, None)])
def test_short_side(size: tuple[int, int], resize: int | None, crop: int | None) -> None:
    short, long = min(size), max(size)
    wanted = max(resize or short, crop or 0)
    new_long = int(wanted * long / short)
    expected = [wanted if side == short else new_long for side in size]
    assert scaled_sizes(np.asarray([size], dtype=np.float64), resize, crop)[0].tolist() == expected


def test_both_sides() -> None:
    sizes = np.asarray([[20.0, 33.0], [64.0, 48.0]])
    assert scaled_sizes(sizes, (48, 64), 40).tolist() == [[48, 64], [48, 64]]
