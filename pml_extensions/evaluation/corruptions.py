"""Image corruptions, to measure the robustness of retrieval.

These are the nine corruptions of "Realigned Softmax Warping for Deep Metric Learning", Table IV,
implemented from the documented behaviour of imgaug 0.4.0, with its default parameters. Images are
uint8 numpy arrays or torch tensors of shape (N, H, W, C); results have the same type, shape and
device. All computation is done on the CPU with numpy's random numbers, so it is reproducible on
every machine.

Every image has its own random generator, seeded with the seed and the image's index. So the same
seed gives the same images, however they are split into batches, if ``first_index`` is the index of
the first image of a batch in the data set. Strengths are drawn for each image, and all channels of
a pixel get the same random number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from pml_extensions._shared.checks import one_of
from pml_extensions.evaluation import _image_operations as operations
from pml_extensions.evaluation._image_batches import (
    Images,
    Range,
    check_images,
    each_image,
    number_range,
    whole_number,
    whole_number_range,
)
from pml_extensions.evaluation._image_operations import Image, to_uint8

#: Radius of the disc and sigma of the Gaussian for each severity of ``defocus_blur``.
DEFOCUS = {1: (3, 0.1), 2: (4, 0.5), 3: (6, 0.5), 4: (8, 0.5), 5: (10, 0.5)}


def gaussian_noise(
    images: Images, seed: int, scale: Range = (0, 15), first_index: int = 0
) -> Images:
    """Add a random number from a normal distribution with mean 0 to each pixel.

    Args:
        images: uint8, shape (N, H, W, C).
        seed: Whole number of at least 0.
        scale: Standard deviation.
        first_index: Index of ``images[0]`` in the data set.

    Returns:
        Like ``images``, with sums rounded and clipped to 0..255.

    Raises:
        ValueError: An argument is out of range.
    """
    scales = number_range("scale", scale, 0)

    def add(image: Image, random: Generator) -> Image:
        sigma = np.float32(random.uniform(*scales))
        noise = sigma * random.standard_normal((*image.shape[:2], 1), dtype=np.float32)
        return to_uint8(image + noise)

    return each_image(images, seed, first_index, add)


def uniform_noise(
    images: Images, seed: int, value: Range = (-20, 20), first_index: int = 0
) -> Images:
    """Add a random number from a uniform distribution to each pixel.

    The paper says "Uniform", but imgaug has no such class; this is imgaug's ``AddElementwise``.

    Args:
        images: uint8, shape (N, H, W, C).
        seed: Whole number of at least 0.
        value: Bounds of the number, which is drawn for each pixel; a single number is added to all
            pixels.
        first_index: Index of ``images[0]`` in the data set.

    Returns:
        Like ``images``, with sums rounded and clipped to 0..255.

    Raises:
        ValueError: An argument is out of range.
    """
    low, high = number_range("value", value, -255, 255)

    def add(image: Image, random: Generator) -> Image:
        fraction = random.random((*image.shape[:2], 1), dtype=np.float32)
        return to_uint8(image + (np.float32(low) + np.float32(high - low) * fraction))

    return each_image(images, seed, first_index, add)


def salt_and_pepper(
    images: Images, seed: int, p: Range = (0, 0.03), first_index: int = 0
) -> Images:
    """Replace random pixels by grey values, most of them near black or near white.

    Args:
        images: uint8, shape (N, H, W, C).
        seed: Whole number of at least 0.
        p: Probability that a pixel is replaced by 255 times a number drawn from Beta(0.5, 0.5).
        first_index: Index of ``images[0]`` in the data set.

    Returns:
        Like ``images``, with new values rounded.

    Raises:
        ValueError: An argument is out of range.
    """
    probabilities = number_range("p", p, 0, 1)

    def replace(image: Image, random: Generator) -> Image:
        chosen = _random_mask(image, random, probabilities)
        greys = to_uint8(255 * random.beta(0.5, 0.5, size=(int(chosen.sum()), 1)))
        image[chosen] = greys
        return image

    return each_image(images, seed, first_index, replace)


def dropout(images: Images, seed: int, p: Range = (0, 0.05), first_index: int = 0) -> Images:
    """Set random pixels to black.

    Args:
        images: uint8, shape (N, H, W, C).
        seed: Whole number of at least 0.
        p: Probability that a pixel is set to black.
        first_index: Index of ``images[0]`` in the data set.

    Returns:
        Like ``images``.

    Raises:
        ValueError: An argument is out of range.
    """
    probabilities = number_range("p", p, 0, 1)

    def drop(image: Image, random: Generator) -> Image:
        image[_random_mask(image, random, probabilities)] = 0
        return image

    return each_image(images, seed, first_index, drop)


def cutout(
    images: Images, seed: int, size: Range = 0.2, fill: int = 128, first_index: int = 0
) -> Images:
    """Cover a square at a random position with grey.

    Args:
        images: uint8, shape (N, H, W, C).
        seed: Whole number of at least 0.
        size: Side of the square as a fraction of the image's height; the square is cropped at the
            borders of the image.
        fill: Value of all channels in the square.
        first_index: Index of ``images[0]`` in the data set.

    Returns:
        Like ``images``. Both edges of the square are rounded down, so its side in pixels is rounded
        down or up.

    Raises:
        ValueError: An argument is out of range.
    """
    sizes = number_range("size", size, 0, 1)
    value = whole_number("fill", fill, 0, 255)

    def cover(image: Image, random: Generator) -> Image:
        height, width = image.shape[:2]
        half = random.uniform(*sizes) * height / 2
        image[_pixels_around(random, height, half), _pixels_around(random, width, half)] = value
        return image

    return each_image(images, seed, first_index, cover)


def affine_shear(
    images: Images,
    seed: int,
    x: Range = (-10, 10),
    y: Range = (-10, 10),
    first_index: int = 0,
) -> Images:
    """Shear along both axes about the centre; pixels from outside of the image are black.

    Args:
        images: uint8, shape (N, H, W, C).
        seed: Whole number of at least 0.
        x: Angle in degrees by which vertical lines lean.
        y: Angle in degrees by which horizontal lines lean; this shear comes first.
        first_index: Index of ``images[0]`` in the data set.

    Returns:
        Like ``images``, interpolated bilinearly and rounded.

    Raises:
        ValueError: An argument is out of range.
    """
    x_range, y_range = number_range("x", x, -89, 89), number_range("y", y, -89, 89)

    def lean(image: Image, random: Generator) -> Image:
        return operations.shear(image, random.uniform(*x_range), random.uniform(*y_range))

    return each_image(images, seed, first_index, lean)


def jigsaw(
    images: Images,
    seed: int,
    rows: Range = (3, 10),
    columns: Range = (3, 10),
    max_steps: int = 1,
    first_index: int = 0,
) -> Images:
    """Cut the image into cells and swap neighbouring cells at random.

    Args:
        images: uint8, shape (N, H, W, C).
        seed: Whole number of at least 0.
        rows: Number of rows of cells.
        columns: Number of columns of cells.
        max_steps: Maximum number of swaps at each position; the number is drawn from
            0..``max_steps``.
        first_index: Index of ``images[0]`` in the data set.

    Returns:
        Like ``images``. If the cells do not divide the image evenly, it is padded with black, and
        the result is cropped.

    Raises:
        ValueError: An argument is out of range.
    """
    row_range = whole_number_range("rows", rows, 1)
    column_range = whole_number_range("columns", columns, 1)
    steps = whole_number("max_steps", max_steps, 0)

    def swap(image: Image, random: Generator) -> Image:
        shape = _draw_integer(random, row_range), _draw_integer(random, column_range)
        return operations.rearrange(image, operations.jigsaw_sources(*shape, steps, random))

    return each_image(images, seed, first_index, swap)


def hue_saturation(
    images: Images,
    seed: int,
    hue: Range = (-40, 40),
    saturation: Range = (-40, 40),
    first_index: int = 0,
) -> Images:
    """Add one number to the hue and one to the saturation of all pixels.

    Args:
        images: uint8, RGB, shape (N, H, W, 3).
        seed: Whole number of at least 0.
        hue: Whole numbers, where 255 is a full circle; rounded towards zero to steps of 2 degrees.
            Grey pixels have hue 0 (red), so more saturation colours them.
        saturation: Whole numbers, where 255 is the difference of grey and a pure colour; the sum is
            clipped.
        first_index: Index of ``images[0]`` in the data set.

    Returns:
        Like ``images``, with values rounded.

    Raises:
        ValueError: An argument is out of range, or the images do not have three channels.
    """
    hues = whole_number_range("hue", hue, -255, 255)
    saturations = whole_number_range("saturation", saturation, -255, 255)
    check_images("images", images)
    if images.shape[-1] != 3:
        raise ValueError(
            f"hue_saturation needs RGB images of shape (N, H, W, 3), but got "
            f"{tuple(images.shape)}; grey images have no hue to change."
        )

    def add(image: Image, random: Generator) -> Image:
        degrees = 2 * int(_draw_integer(random, hues) * 180 / 255)
        added = _draw_integer(random, saturations)
        return operations.shift_hue_and_saturation(image, degrees, added)

    return each_image(images, seed, first_index, add)


def defocus_blur(
    images: Images, seed: int, severity: Range = (1, 5), first_index: int = 0
) -> Images:
    """Blur like a lens that is out of focus: every point becomes a disc.

    Args:
        images: uint8, shape (N, H, W, C).
        seed: Whole number of at least 0.
        severity: 1 to 5, for a disc of radius 3, 4, 6, 8 or 10 pixels, whose edge is smoothed by a
            Gaussian (see ``DEFOCUS``).
        first_index: Index of ``images[0]`` in the data set.

    Returns:
        Like ``images``, with values rounded. Images are padded by reflection.

    Raises:
        ValueError: An argument is out of range.
    """
    severities = whole_number_range("severity", severity, min(DEFOCUS), max(DEFOCUS))

    def blur(image: Image, random: Generator) -> Image:
        kernel = operations.disc_kernel(*DEFOCUS[_draw_integer(random, severities)])
        return operations.convolve(image, kernel)

    return each_image(images, seed, first_index, blur)


#: The rows of Table IV, in its order.
CORRUPTIONS: dict[str, Callable[..., Any]] = {
    "gaussian_noise": gaussian_noise,
    "uniform_noise": uniform_noise,
    "salt_and_pepper": salt_and_pepper,
    "dropout": dropout,
    "cutout": cutout,
    "affine_shear": affine_shear,
    "jigsaw": jigsaw,
    "hue_saturation": hue_saturation,
    "defocus_blur": defocus_blur,
}


def corrupt(images: Images, name: str, seed: int, **parameters: Any) -> Images:
    """Return a corrupted copy of images.

    Args:
        images: uint8, shape (N, H, W, C), a numpy array or a torch tensor.
        name: One of ``CORRUPTIONS``.
        seed: Whole number of at least 0.
        parameters: Parameters of the corruption that differ from its defaults, and
            ``first_index``.

    Returns:
        Like ``images``.

    Raises:
        ValueError: There is no such corruption, or an argument is out of range.
    """
    return CORRUPTIONS[one_of("name", name, tuple(CORRUPTIONS))](images, seed, **parameters)


def _random_mask(
    image: Image, random: Generator, probabilities: tuple[float, float]
) -> NDArray[np.bool_]:
    """Return a random mask of pixels, with a probability drawn from the range ``probabilities``."""
    probability = random.uniform(*probabilities)
    return random.random(image.shape[:2], dtype=np.float32) < probability


def _pixels_around(random: Generator, size: int, half: float) -> slice:
    """Return the pixels within ``half`` of a random point in 0..``size``, cropped at 0."""
    # Indexing crops the other end.
    centre = random.uniform(0, size)
    return slice(max(int(np.floor(centre - half)), 0), int(np.floor(centre + half)))


def _draw_integer(random: Generator, bounds: tuple[int, int]) -> int:
    return int(random.integers(*bounds, endpoint=True))
