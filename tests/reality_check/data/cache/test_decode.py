from __future__ import annotations

import importlib
import io

import numpy as np
import pytest
from PIL import Image, UnidentifiedImageError

from reality_check.data.cache._decode import (
    decode_image,
    image_endings,
    resized_size,
)


def encode(array: np.ndarray | Image.Image, kind: str = "PNG", **options: object) -> bytes:
    image = array if isinstance(array, Image.Image) else Image.fromarray(array)
    buffer = io.BytesIO()
    image.save(buffer, kind, **options)  # type: ignore[arg-type]
    return buffer.getvalue()


def photo(height: int, width: int, seed: int = 0) -> np.ndarray:
    """Smooth colours with some noise, as JPEG likes them."""
    y, x = np.arange(height)[:, None, None], np.arange(width)[None, :, None]
    waves = np.sin(x / 9 + [0, 1, 2]) + np.cos(y / 7 + [2, 0, 1])
    noise = np.random.default_rng(seed).normal(0, 6, (height, width, 3))
    return np.clip(127 + 50 * waves + noise, 0, 255).astype(np.uint8)


def triangle_resize(line: np.ndarray, size: int) -> np.ndarray:
    """One dimension, antialiased bilinear, by its definition: a triangle as wide as the scale."""
    scale = len(line) / size
    support = max(scale, 1.0)
    out = []
    for target in range(size):
        centre = (target + 0.5) * scale
        first = max(int(centre - support + 0.5), 0)
        last = min(int(centre + support + 0.5), len(line))
        weights = [
            max(1 - abs((pixel + 0.5 - centre) / support), 0.0) for pixel in range(first, last)
        ]
        total = sum(weights)
        pairs = zip(weights, line[first:last].astype(float), strict=True)
        out.append(sum(weight * value for weight, value in pairs) / total)
    return np.array(out)


@pytest.mark.parametrize(("height", "width", "size"), [(20, 31, 8), (31, 20, 8), (9, 9, 13)])
def test_resizing_is_an_antialiased_triangle_filter(height: int, width: int, size: int) -> None:
    pixels = photo(height, width)
    short, long = sorted((height, width))
    target = (size, int(size * long / short))
    rows, columns = target if height <= width else target[::-1]
    half = np.apply_along_axis(triangle_resize, 1, pixels, columns)
    expected = np.apply_along_axis(triangle_resize, 0, half, rows)
    found = decode_image(encode(pixels), size, 3)
    assert found.shape == (rows, columns, 3)
    np.testing.assert_allclose(found, expected, atol=1.01)  # Pillow rounds after each direction


@pytest.mark.parametrize(
    ("width", "height", "size", "short_side"),
    [
        (500, 375, 256, (341, 256)),  # 341.33 is rounded down
        (375, 500, 256, (256, 341)),
        (1000, 999, 256, (256, 256)),
        (64, 64, 64, (64, 64)),
        (3, 2, 7, (10, 7)),
    ],
)
def test_sizes(width: int, height: int, size: int, short_side: tuple[int, int]) -> None:
    assert resized_size(width, height, size, "short_side") == short_side
    assert resized_size(width, height, size, "square") == (size, size)
    assert resized_size(width, height, size, "none") == (width, height)


def test_square_is_the_centre_of_short_side() -> None:
    for shape in ((20, 33), (37, 16), (21, 22)):
        data = encode(photo(*shape))
        whole, square = decode_image(data, 8, 3), decode_image(data, 8, 3, "square")
        top, left = round((whole.shape[0] - 8) / 2), round((whole.shape[1] - 8) / 2)
        np.testing.assert_array_equal(square, whole[top : top + 8, left : left + 8])


def test_none_keeps_every_pixel() -> None:
    pixels = photo(5, 9)
    np.testing.assert_array_equal(decode_image(encode(pixels), 77, 3, "none"), pixels)


MODES = [
    (lambda: encode(Image.new("L", (6, 6), 100)), [100] * 3),
    (lambda: encode(Image.new("L", (6, 6), 100), "JPEG"), [100] * 3),
    (lambda: encode(Image.new("RGB", (6, 6), (10, 20, 30))), [10, 20, 30]),
    (lambda: encode(Image.new("1", (6, 6), 1)), [255] * 3),
    (lambda: encode(Image.new("RGBA", (6, 6), (9, 9, 9, 0))), [255] * 3),
    (lambda: encode(Image.new("RGBA", (6, 6), (90, 0, 0, 51))), [222, 204, 204]),
    (lambda: encode(Image.new("LA", (6, 6), (80, 255))), [80] * 3),
    (lambda: encode(np.full((6, 6), 257 * 123, np.uint16)), [123] * 3),
    (lambda: encode(np.full((6, 6), 257 * 45, np.uint16), "TIFF"), [45] * 3),
    # No ink is white; half cyan and a quarter black: 255 (1 - .5) (1 - .25), and so on.
    (lambda: encode(Image.new("CMYK", (6, 6), (0, 0, 0, 0)), "JPEG"), [255] * 3),
    (
        lambda: encode(Image.new("CMYK", (8, 8), (128, 0, 0, 64)), "JPEG", quality=100),
        [95, 191, 191],
    ),
]


@pytest.mark.parametrize(("make", "expected"), MODES)
def test_modes(make: object, expected: list[int]) -> None:
    data = make()  # type: ignore[operator]
    np.testing.assert_allclose(decode_image(data, 4, 3)[1, 1], expected, atol=1.5)
    red, green, blue = expected
    grey = decode_image(data, 4, 1)
    assert grey.shape == (4, 4, 1)
    assert grey[1, 1, 0] == pytest.approx(0.299 * red + 0.587 * green + 0.114 * blue, abs=1.5)


def test_palettes() -> None:
    palette = Image.new("P", (6, 6), 1)
    palette.putpalette([0, 0, 0, 40, 50, 60])
    assert decode_image(encode(palette), 4, 3)[1, 1].tolist() == [40, 50, 60]
    clear = encode(palette, "GIF", transparency=1)
    assert decode_image(clear, 4, 3)[1, 1].tolist() == [255] * 3


def test_a_large_jpeg_is_decoded_whole_before_it_is_resized() -> None:
    """Not in JPEG's own faster way, whose pixels differ from those of the papers' transforms."""
    data = encode(photo(400, 640), "JPEG", quality=90)
    image = Image.open(io.BytesIO(data)).convert("RGB")
    expected = image.resize((51, 32), Image.Resampling.BILINEAR)
    np.testing.assert_array_equal(decode_image(data, 32, 3), np.asarray(expected))
    reduced = Image.open(io.BytesIO(data))
    reduced.draft("RGB", (51, 32))
    other = np.asarray(reduced.resize((51, 32), Image.Resampling.BILINEAR)).astype(int)
    assert np.abs(other - np.asarray(expected)).max() > 1  # so the test can fail


def test_camera_orientation_is_ignored() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # turned by 90 degrees
    data = encode(photo(8, 16), "JPEG", exif=exif)
    assert decode_image(data, 4, 3).shape == (4, 8, 3)


def test_what_pillow_decodes_by_itself_is_read_as_an_image() -> None:
    endings = image_endings()
    assert endings >= {".jpg", ".jfif", ".png", ".webp", ".jp2", ".tga", ".tiff", ".gif", ".mpo"}
    assert not endings & {".eps", ".ps", ".pdf", ".wmf", ".mpg", ".h5", ".txt", ""}
    page = encode(photo(4, 4), "EPS")
    with pytest.raises(UnidentifiedImageError):  # Ghostscript is not started, whatever its name
        decode_image(page, 4, 3)


@pytest.mark.parametrize("kind", ["GIF", "TIFF", "PNG", "WEBP"])
def test_of_several_frames_the_first_is_read(kind: str) -> None:
    first, *others = (Image.new("RGB", (6, 6), (60 * n, 99, 9)) for n in range(3))
    data = encode(first, kind, save_all=True, append_images=others)
    with pytest.warns(UserWarning, match="the first is read"):
        assert decode_image(data, 4, 3)[0, 0, 0] < 9


@pytest.mark.parametrize(
    ("array", "text"),
    [
        (np.full((4, 4), -1.5, np.float32), "floats, from -1.5 to -1.5"),
        (np.full((4, 4), 1 << 20, np.int32), "32 bits"),
        (np.full((4, 4), 200, np.int32), "32 bits, from 200 to 200"),
    ],
)
def test_pixels_without_a_known_range_are_refused(array: np.ndarray, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        decode_image(encode(array, "TIFF"), 4, 3)


def test_images_too_long_for_the_memory_are_refused() -> None:
    assert decode_image(encode(photo(1, 100)), 4, 3).shape == (4, 400, 3)
    for shape in ((1, 101), (202, 2)):
        for resize in ("short_side", "square"):
            with pytest.raises(ValueError, match="too long"):
                decode_image(encode(photo(*shape)), 4, 3, resize)  # type: ignore[arg-type]
        assert decode_image(encode(photo(*shape)), 4, 3, "none").shape == (*shape, 3)


@pytest.mark.parametrize("shape", [(375, 500), (500, 333), (64, 64), (300, 257)])
def test_equals_torchvision(shape: tuple[int, int]) -> None:
    try:
        transforms = importlib.import_module("torchvision.transforms")
    except (ImportError, RuntimeError) as error:
        pytest.skip(f"needs torchvision (the extra 'vision'): {error}")
    data = encode(photo(*shape), "JPEG")
    image = Image.open(io.BytesIO(data)).convert("RGB")
    resized = transforms.Resize(64)(image)
    np.testing.assert_array_equal(decode_image(data, 64, 3), np.asarray(resized))
    square = transforms.CenterCrop(64)(resized)
    np.testing.assert_array_equal(decode_image(data, 64, 3, "square"), np.asarray(square))
