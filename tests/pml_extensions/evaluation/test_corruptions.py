"""The nine corruptions: their statistics, cases by hand and by plain loops, and their seeds."""

from __future__ import annotations

import colorsys
import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from pml_extensions.evaluation import corruptions
from pml_extensions.evaluation._image_operations import disc_kernel, jigsaw_sources, rearrange
from pml_extensions.evaluation.corruptions import CORRUPTIONS, corrupt

Images = NDArray[np.uint8]

#: Parameters that leave every image as it is; a blur has none.
NOTHING: dict[str, dict[str, Any]] = {
    "gaussian_noise": {"scale": 0},
    "uniform_noise": {"value": 0},
    "salt_and_pepper": {"p": 0},
    "dropout": {"p": 0},
    "cutout": {"size": 0},
    "affine_shear": {"x": 0, "y": 0},
    "jigsaw": {"max_steps": 0},
    "hue_saturation": {"hue": 0, "saturation": 0},
}


def photographs(n: int = 5, height: int = 40, width: int = 33, channels: int = 3) -> Images:
    shape = (n, height, width, channels)
    return np.random.default_rng(0).integers(0, 256, shape).astype(np.uint8)


def grey(n: int, side: int, channels: int = 3, value: int = 128) -> Images:
    return np.full((n, side, side, channels), value, np.uint8)


def test_names_are_those_of_the_paper_in_its_order() -> None:
    assert list(CORRUPTIONS) == [
        "gaussian_noise",
        "uniform_noise",
        "salt_and_pepper",
        "dropout",
        "cutout",
        "affine_shear",
        "jigsaw",
        "hue_saturation",
        "defocus_blur",
    ]
    assert all(getattr(corruptions, name) is CORRUPTIONS[name] for name in CORRUPTIONS)


class TestEveryCorruption:
    @pytest.fixture(params=CORRUPTIONS)
    def name(self, request: pytest.FixtureRequest) -> str:
        return str(request.param)

    def test_the_seed_decides(self, name: str) -> None:
        images = photographs()
        before = images.copy()
        once = corrupt(images, name, seed=3)
        assert once.dtype == np.uint8
        assert once.shape == images.shape
        np.testing.assert_array_equal(once, corrupt(images, name, seed=3))
        np.testing.assert_array_equal(images, before)
        assert (once != images).any()
        assert (once != corrupt(images, name, seed=4)).any()

    def test_batches_do_not_matter(self, name: str) -> None:
        images = photographs()
        parts = [corrupt(images[i : i + 2], name, seed=1, first_index=i) for i in (0, 2, 4)]
        np.testing.assert_array_equal(np.concatenate(parts), corrupt(images, name, seed=1))

    def test_equal_images_are_corrupted_differently(self, name: str) -> None:
        images = np.repeat(photographs(1), 6, axis=0)
        assert (corrupt(images, name, seed=1) != corrupt(images, name, seed=1)[0]).any()

    def test_torch_tensors_memory_maps_and_views(self, name: str, tmp_path: Any) -> None:
        images = photographs()
        expected = corrupt(images, name, seed=1)
        result = corrupt(torch.from_numpy(images), name, seed=1)
        assert isinstance(result, torch.Tensor)
        np.testing.assert_array_equal(result.numpy(), expected)
        np.save(tmp_path / "images.npy", images)
        mapped = np.load(tmp_path / "images.npy", mmap_mode="r")
        np.testing.assert_array_equal(corrupt(mapped, name, seed=1), expected)
        view = np.ascontiguousarray(images[:, ::-1])[:, ::-1]
        np.testing.assert_array_equal(corrupt(view, name, seed=1), expected)

    def test_no_images(self, name: str) -> None:
        assert corrupt(photographs()[:0], name, seed=0).shape == (0, 40, 33, 3)

    @pytest.mark.parametrize("size", [(1, 1), (1, 7), (2, 3)])
    def test_small_images(self, name: str, size: tuple[int, int]) -> None:
        images = photographs(20, *size)
        assert corrupt(images, name, seed=0).shape == images.shape

    def test_grey_images(self, name: str) -> None:
        images = photographs(channels=1)
        if name == "hue_saturation":
            with pytest.raises(ValueError, match="grey images have no hue"):
                corrupt(images, name, seed=0)
        else:
            three = np.repeat(images, 3, axis=-1)
            expected = corrupt(three, name, seed=0)[..., :1]
            np.testing.assert_array_equal(corrupt(images, name, seed=0), expected)

    @pytest.mark.parametrize("seed", [-1, 1.5, True, "a", (1, 2)])
    def test_seeds_are_whole_numbers(self, name: str, seed: Any) -> None:
        with pytest.raises(ValueError, match="seed must be"):
            corrupt(photographs(), name, seed=seed)

    @pytest.mark.parametrize(
        ("images", "message"),
        [
            (photographs().astype(np.float32), "uint8 of shape .N, H, W, C., but got float32"),
            (torch.zeros(2, 3, 3, 3), "but got float32"),
            (photographs()[0], r"shape \(40, 33, 3\)"),
            (np.zeros((2, 0, 3, 3), np.uint8), r"shape \(2, 0, 3, 3\)"),
            ([[1]], "a numpy array or a torch tensor, but got a list"),
        ],
    )
    def test_wrong_images(self, name: str, images: Any, message: str) -> None:
        with pytest.raises(ValueError, match=message):
            corrupt(images, name, seed=0)


@pytest.mark.parametrize("name", NOTHING)
def test_no_strength_changes_nothing(name: str) -> None:
    images = photographs()
    np.testing.assert_array_equal(corrupt(images, name, 0, **NOTHING[name]), images)


def test_unknown_corruptions() -> None:
    with pytest.raises(ValueError, match="'defocus_blur', but got name='fog'"):
        corrupt(photographs(), "fog", seed=0)


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("gaussian_noise", {"scale": -1}),
        ("gaussian_noise", {"scale": (3, 2)}),
        ("gaussian_noise", {"scale": math.inf}),
        ("gaussian_noise", {"scale": math.nan}),
        ("gaussian_noise", {"scale": "3"}),
        ("uniform_noise", {"value": (-300, 0)}),
        ("salt_and_pepper", {"p": 1.1}),
        ("dropout", {"p": (0, 0.1, 0.2)}),
        ("cutout", {"size": 2}),
        ("cutout", {"fill": (0, 255)}),
        ("cutout", {"fill": 300}),
        ("affine_shear", {"x": 90}),
        ("jigsaw", {"rows": 0}),
        ("jigsaw", {"columns": 2.5}),
        ("jigsaw", {"max_steps": -1}),
        ("hue_saturation", {"hue": 0.5}),
        ("hue_saturation", {"saturation": 256}),
        ("hue_saturation", {"hue": 256}),
        ("hue_saturation", {"hue": -256}),
        ("defocus_blur", {"severity": (0, 5)}),
        ("defocus_blur", {"first_index": -1}),
    ],
)
def test_parameters_out_of_range(name: str, parameters: dict[str, Any]) -> None:
    argument = next(iter(parameters))
    with pytest.raises(ValueError, match=f"{argument} must be .*but got {argument}="):
        corrupt(photographs(), name, 0, **parameters)


class TestGaussianNoise:
    def test_fixed_scale(self) -> None:
        noise = corrupt(grey(8, 100), "gaussian_noise", 0, scale=10).astype(float) - 128
        assert abs(noise.mean()) < 0.1
        # Rounding adds the variance 1/12.
        assert noise.std() == pytest.approx(math.sqrt(100 + 1 / 12), rel=0.01)
        assert (noise == noise[..., :1]).all()
        within = [(np.abs(noise) <= k * 10).mean() for k in (1, 2, 3)]
        assert within == pytest.approx([0.7063, 0.9596, 0.9977], abs=0.005)

    def test_scale_is_drawn_for_each_image(self) -> None:
        noise = corrupt(grey(400, 40), "gaussian_noise", 0).astype(float) - 128
        scales = np.sort(np.sqrt(np.maximum(noise.var(axis=(1, 2, 3)) - 1 / 12, 0)))
        expected = 15 * (np.arange(400) + 0.5) / 400
        assert np.abs(scales - expected).max() < 1.2

    def test_sums_are_clipped(self) -> None:
        for value in (0, 255):
            changed = corrupt(grey(2, 50, value=value), "gaussian_noise", 0, scale=10)
            assert (changed == value).mean() == pytest.approx(0.52, abs=0.03)


class TestUniformNoise:
    def test_default(self) -> None:
        noise = corrupt(grey(4, 200), "uniform_noise", 0).astype(int) - 128
        assert (noise == noise[..., :1]).all()
        counts = np.bincount((noise[..., 0] + 20).ravel(), minlength=41) / noise[..., 0].size
        # Rounded from -20..20, the two ends have half the width of the others.
        expected = np.full(41, 1 / 40)
        expected[[0, -1]] /= 2
        np.testing.assert_allclose(counts, expected, atol=0.002)

    def test_a_single_number_is_added_everywhere(self) -> None:
        images = photographs()
        expected = np.clip(images.astype(int) - 30, 0, 255)
        np.testing.assert_array_equal(corrupt(images, "uniform_noise", 0, value=-30), expected)


def test_salt_and_pepper() -> None:
    images = grey(10, 100)
    changed = corrupt(images, "salt_and_pepper", 0, p=0.2)
    touched = (changed != 128).any(axis=-1)
    assert touched.mean() == pytest.approx(0.2, abs=0.005)
    assert (changed == changed[..., :1]).all()
    values = np.sort(changed[touched][:, 0] / 255)
    # The distribution function of Beta(1/2, 1/2) is 2 asin(sqrt(x)) / pi.
    expected = 2 * np.arcsin(np.sqrt(values)) / math.pi
    assert np.abs(expected - (np.arange(len(values)) + 0.5) / len(values)).max() < 0.04


def test_salt_and_pepper_by_default_touches_up_to_three_per_cent() -> None:
    shares = (corrupt(grey(400, 60), "salt_and_pepper", 1) != 128).any(axis=-1).mean(axis=(1, 2))
    assert np.abs(np.sort(shares) - 0.03 * (np.arange(400) + 0.5) / 400).max() < 0.006


def test_dropout() -> None:
    changed = corrupt(grey(10, 100), "dropout", 0, p=0.3)
    assert set(np.unique(changed)) == {0, 128}
    assert (changed == changed[..., :1]).all()
    assert (changed == 0).mean() == pytest.approx(0.3, abs=0.005)
    shares = (corrupt(grey(400, 60), "dropout", 1) == 0).mean(axis=(1, 2, 3))
    assert np.abs(np.sort(shares) - 0.05 * (np.arange(400) + 0.5) / 400).max() < 0.008
    assert (corrupt(grey(1, 20), "dropout", 0, p=1) == 0).all()


class TestCutout:
    def test_one_square(self) -> None:
        whole = 0
        for changed in corrupt(grey(200, 100, value=7), "cutout", 0):
            rows, columns = np.nonzero((changed == 128).all(axis=-1))
            assert (changed[rows.min() : rows.max() + 1, columns.min() : columns.max() + 1]).all()
            assert len(rows) == (np.ptp(rows) + 1) * (np.ptp(columns) + 1) <= 20 * 20
            assert ((changed == 128) | (changed == 7)).all()
            touches_border = {0, 99} & {rows.min(), rows.max(), columns.min(), columns.max()}
            assert len(rows) == 400 or touches_border
            whole += len(rows) == 400
        # The centre is at least a tenth away from all borders with probability .8^2.
        assert whole == pytest.approx(128, abs=25)

    def test_centres_are_anywhere(self) -> None:
        covered = (corrupt(grey(10_000, 10, 1, value=7), "cutout", 0) == 128).mean(axis=0)[..., 0]
        # With its centre c in 0..10 it covers the pixels from floor(c - 1) to floor(c + 1) - 1.
        along = np.array([*[2] * 9, 1]) / 10
        assert np.abs(covered - np.outer(along, along)).max() < 0.012

    def test_side_is_a_share_of_the_height(self) -> None:
        images = np.zeros((50, 30, 90, 3), np.uint8)
        areas = (corrupt(images, "cutout", 0, size=0.5) != 0).any(axis=-1).sum(axis=(1, 2))
        assert areas.max() == 15 * 15

    def test_fill_and_size(self) -> None:
        changed = corrupt(grey(50, 20, value=7), "cutout", 0, size=1, fill=200)
        assert set(np.unique(changed)) == {7, 200}
        areas = (changed == 200).all(axis=-1).sum(axis=(1, 2))
        assert areas.min() >= 100


def sheared_by_loops(image: Images, x_tangent: float, y_tangent: float) -> NDArray[np.float64]:
    """Send every pixel back to where it came from, and mix the four pixels around that point."""
    height, width, _ = image.shape
    result = np.zeros(image.shape)
    for row, column in itertools.product(range(height), range(width)):
        x, y = column - (width - 1) / 2, row - (height - 1) / 2
        x = x - x_tangent * y
        y = y - y_tangent * x
        column_from, row_from = x + (width - 1) / 2, y + (height - 1) / 2
        for r, c in itertools.product(range(height), range(width)):
            weight = max(0, 1 - abs(r - row_from)) * max(0, 1 - abs(c - column_from))
            result[row, column] += weight * image[r, c]
    return result


class TestAffineShear:
    @pytest.mark.parametrize(("x", "y"), [(10, 0), (0, -20), (15, 30), (-45, 5)])
    def test_against_plain_loops(self, x: float, y: float) -> None:
        images = photographs(1, 7, 10)
        changed = corrupt(images, "affine_shear", 0, x=x, y=y)
        tangents = (math.tan(math.radians(angle)) for angle in (x, y))
        expected = sheared_by_loops(images[0], *tangents)
        assert np.abs(changed[0] - expected).max() <= 0.5 + 1e-9

    def test_angles_of_both_axes_are_drawn_apart(self) -> None:
        # The column that was in the middle leans by x, the row in the middle by y.
        images = np.zeros((300, 61, 61, 1), np.uint8)
        images[:, :, 29:32] = 255
        lean_x = leaning(corrupt(images, "affine_shear", 0, y=0)[..., 0])
        lean_y = leaning(
            corrupt(images.swapaxes(1, 2), "affine_shear", 0, x=0)[..., 0].swapaxes(1, 2)
        )
        for lean in (lean_x, lean_y):
            assert np.abs(np.sort(lean) - 20 * ((np.arange(300) + 0.5) / 300 - 0.5)).max() < 2
        assert abs(np.corrcoef(lean_x, lean_y)[0, 1]) < 0.2


def leaning(images: NDArray[np.uint8]) -> NDArray[np.float64]:
    """Return the angle in degrees by which one bright column leans."""
    weights = images[:, 10:51].astype(float)
    centres = (weights * np.arange(61)).sum(axis=2) / weights.sum(axis=2)
    slopes = np.polyfit(np.arange(41), centres.T, 1)[0]
    return np.degrees(np.arctan(slopes))


class TestJigsaw:
    def test_cells_are_permuted_whole(self) -> None:
        # Every pixel holds the number of its cell in one channel, its place in there in another.
        cell = np.repeat(np.repeat(np.arange(12).reshape(3, 4), 5, axis=0), 6, axis=1)
        place = np.tile(np.arange(30).reshape(5, 6), (3, 4))
        images = np.repeat(np.stack([cell, place], -1).astype(np.uint8)[None], 50, axis=0)
        for changed in corrupt(images, "jigsaw", 0, rows=3, columns=4):
            np.testing.assert_array_equal(changed[..., 1], place)
            cells = changed[..., 0].reshape(3, 5, 4, 6).swapaxes(1, 2).reshape(12, 30)
            assert (cells == cells[:, :1]).all()
            assert sorted(cells[:, 0]) == list(range(12))

    def test_cells_only_swap_with_a_neighbour(self) -> None:
        moved = []
        for seed in range(300):
            sources = jigsaw_sources(4, 5, 1, np.random.default_rng(seed))
            flat = sources.ravel()
            np.testing.assert_array_equal(flat[flat], np.arange(20))
            steps = np.abs(flat // 5 - np.arange(20) // 5) + np.abs(flat % 5 - np.arange(20) % 5)
            assert set(steps) <= {0, 1}
            moved.append(steps.mean())
        assert 0.2 < np.mean(moved) < 0.4

    def test_more_steps(self) -> None:
        moved = set()
        for seed in range(50):
            flat = jigsaw_sources(4, 4, 3, np.random.default_rng(seed)).ravel()
            assert sorted(flat) == list(range(16))
            moved |= set(np.abs(flat // 4 - np.arange(16) // 4))
        assert {2} <= moved <= {0, 1, 2, 3}

    def test_two_cells(self) -> None:
        # Both have a step with probability 1/4. The first looks at the second one time in four;
        # if it did not, the second does so.
        swapped = [
            jigsaw_sources(1, 2, 1, np.random.default_rng(seed)).tolist() == [[1, 0]]
            for seed in range(4000)
        ]
        assert np.mean(swapped) == pytest.approx(1 / 4 * (1 - (3 / 4) ** 2), abs=0.015)

    def test_a_black_border_where_cells_do_not_divide_the_image(self) -> None:
        image = np.arange(1, 6, dtype=np.uint8).reshape(5, 1, 1)
        # Cells 1 2 | 3 4 | 5 0 become 5 0 | 1 2 | 3 4, of which the last row is cut off.
        changed = rearrange(image, np.array([[2], [0], [1]]))
        assert changed.ravel().tolist() == [5, 0, 1, 2, 3]

    def test_rows_and_columns_are_drawn_for_each_image(self) -> None:
        # Pixels are numbered, so that cells can be told by where the count breaks.
        images = np.arange(60, dtype=np.uint8).reshape(1, 60, 1, 1).repeat(200, axis=0)
        heights = set()
        for changed in corrupt(images, "jigsaw", 0, rows=(3, 6), columns=1)[..., 0]:
            cuts = np.nonzero(np.diff(changed[:, 0].astype(int)) != 1)[0] + 1
            if len(cuts):
                heights.add(int(np.gcd.reduce(np.append(cuts, 60))))
        assert heights >= {20, 15, 12, 10}


class TestHueSaturation:
    @pytest.mark.parametrize(
        ("hue", "expected"),
        [
            (0, (255, 0, 0)),
            (85, (0, 255, 0)),
            (-85, (0, 0, 255)),
            (170, (0, 0, 255)),
            (255, (255, 0, 0)),
            # 20 * 180 / 255 = 14.1, so 28 degrees: 28 / 60 of the way to yellow or magenta.
            (20, (255, 119, 0)),
            (-20, (255, 0, 119)),
        ],
    )
    def test_hue_of_red(self, hue: int, expected: tuple[int, int, int]) -> None:
        red = np.array([[[[255, 0, 0]]]], np.uint8)
        changed = corrupt(red, "hue_saturation", 0, hue=hue, saturation=0)
        assert tuple(changed[0, 0, 0]) == expected

    @pytest.mark.parametrize(
        ("colour", "saturation", "expected"),
        [
            ((200, 100, 100), -255, (200, 200, 200)),
            ((200, 100, 100), 255, (200, 0, 0)),
            # Saturation 127.5 + 51 of 255 is .7; 200 * (1 - .7) = 60.
            ((200, 100, 100), 51, (200, 60, 60)),
            # Grey has hue 0: it becomes reddish.
            ((100, 100, 100), 51, (100, 80, 80)),
            ((0, 0, 0), 100, (0, 0, 0)),
            ((255, 255, 255), -40, (255, 255, 255)),
        ],
    )
    def test_saturation(
        self, colour: tuple[int, int, int], saturation: int, expected: tuple[int, int, int]
    ) -> None:
        image = np.array([[[colour]]], np.uint8)
        changed = corrupt(image, "hue_saturation", 0, hue=0, saturation=saturation)
        assert tuple(changed[0, 0, 0]) == expected

    @pytest.mark.parametrize(("hue", "saturation"), [(17, 40), (-40, -13), (34, 0), (0, 25)])
    def test_against_the_standard_library(self, hue: int, saturation: int) -> None:
        images = photographs(1, 20, 20)
        changed = corrupt(images, "hue_saturation", 0, hue=hue, saturation=saturation)
        shift = math.trunc(hue * 180 / 255) / 180
        for before, after in zip(images.reshape(-1, 3), changed.reshape(-1, 3), strict=True):
            h, s, v = colorsys.rgb_to_hsv(*(before / 255))
            s = min(max(s + saturation / 255, 0), 1)
            expected = 255 * np.array(colorsys.hsv_to_rgb((h + shift) % 1, s, v))
            assert np.abs(after - expected).max() <= 0.5 + 1e-3

    def test_every_colour_is_its_own_without_a_shift(self) -> None:
        levels = np.arange(0, 256, 5, dtype=np.uint8)
        colours = np.stack(np.meshgrid(levels, levels, levels), -1).reshape(1, -1, 52, 3)
        changed = corrupt(colours, "hue_saturation", 0, hue=0, saturation=0)
        np.testing.assert_array_equal(changed, colours)

    def test_both_are_drawn_for_each_image(self) -> None:
        red = np.broadcast_to(np.array([200, 100, 100], np.uint8), (3000, 1, 1, 3))
        changed = corrupt(red, "hue_saturation", 0).reshape(-1, 3) / 255
        hsv = np.array([colorsys.rgb_to_hsv(*colour) for colour in changed])
        degrees = 360 * ((hsv[:, 0] + 0.5) % 1 - 0.5)
        added = 255 * hsv[:, 1] - 127.5
        assert -57 < degrees.min() < -53
        assert 53 < degrees.max() < 57
        assert added.min() == pytest.approx(-40, abs=1)
        assert added.max() == pytest.approx(40, abs=1)
        assert abs(np.corrcoef(degrees, added)[0, 1]) < 0.1


class TestDefocusBlur:
    @pytest.mark.parametrize("severity", [1, 2, 3, 4, 5])
    def test_kernels(self, severity: int) -> None:
        radius, sigma = corruptions.DEFOCUS[severity]
        kernel = disc_kernel(radius, sigma).numpy()
        reach = 1 if radius <= 8 else 2
        middle = radius + reach
        assert kernel.shape == (2 * middle + 1, 2 * middle + 1)
        expected = np.zeros_like(kernel)
        for y, x in itertools.product(range(-radius, radius + 1), repeat=2):
            if x * x + y * y <= radius * radius:
                for dy, dx in itertools.product(range(-reach, reach + 1), repeat=2):
                    weight = math.exp(-(dx * dx + dy * dy) / (2 * sigma * sigma))
                    expected[middle + y + dy, middle + x + dx] += weight
        np.testing.assert_allclose(kernel, expected / expected.sum(), rtol=1e-12, atol=1e-12)
        assert kernel.sum() == pytest.approx(1, abs=1e-12)

    @pytest.mark.parametrize("size", [(9, 12), (3, 5)])
    def test_against_plain_loops(self, size: tuple[int, int]) -> None:
        height, width = size
        images = photographs(1, height, width)
        kernel = disc_kernel(3, 0.1).numpy()
        expected = np.zeros(images[0].shape)
        for y, x in itertools.product(range(height), range(width)):
            for dy, dx in itertools.product(range(9), repeat=2):
                source = mirrored(y + dy - 4, height), mirrored(x + dx - 4, width)
                expected[y, x] += kernel[dy, dx] * images[0][source]
        changed = corrupt(images, "defocus_blur", 0, severity=1)
        assert np.abs(changed[0] - expected).max() <= 0.5 + 1e-3

    def test_flat_images_stay(self) -> None:
        for value in (0, 1, 77, 254, 255):
            images = grey(10, 30, value=value)
            np.testing.assert_array_equal(corrupt(images, "defocus_blur", 0), images)

    def test_severity_is_drawn_for_each_image(self) -> None:
        point = np.zeros((200, 31, 31, 1), np.uint8)
        point[:, 11:20, 11:20] = 255
        widths = (corrupt(point, "defocus_blur", 0)[:, 15] > 0).sum(axis=(1, 2))
        values, counts = np.unique(widths, return_counts=True)
        assert len(values) == 5
        assert counts.min() > 20


def mirrored(index: int, size: int) -> int:
    """Walk back and forth over 0..size-1, not stopping at the ends."""
    index = abs(index) % (2 * (size - 1))
    return min(index, 2 * (size - 1) - index)
