from __future__ import annotations

import hashlib
import unicodedata
from pathlib import Path

import matplotlib
import numpy as np
import pytest
import torch
from PIL import features
from pydantic import ValidationError

from reality_check.config.datasets import GlyphsData
from reality_check.data import ImageSet, class_splits, make_glyphs
from reality_check.data.readers import glyphs
from reality_check.data.readers._glyph_characters import CHARACTERS
from reality_check.data.readers._glyph_fonts import draw, faces_of
from reality_check.utils.errors import UsageError

# The versions the golden value belongs to; others draw other bytes, which is no error.
GOLDEN_VERSIONS = ("3.11.2", "2.14.3")
GOLDEN_PIXELS = "abe42c7b27f4577138a2edb0d8d356f2c66b1aafb0557c998601f739b5c109ba"


def characters_of(data: ImageSet) -> list[str]:
    return [chr(int(name.partition("_U+")[2], 16)) for name in data.class_names]


def script_of(character: str) -> str:
    category = unicodedata.category(character)
    return unicodedata.name(character).split()[0] if category[0] == "L" else category[0]


def precision_at_1(images: np.ndarray, labels: np.ndarray) -> float:
    pixels = torch.from_numpy(images).flatten(1) / 255
    distances = torch.cdist(pixels, pixels).fill_diagonal_(float("inf"))
    nearest = distances.argmin(dim=1).numpy()
    return float((labels[nearest] == labels).mean())


def test_the_default_set_can_rank_losses() -> None:
    """Enough classes, sorted names, all scripts in each half, and raw pixels do not solve it."""
    data = make_glyphs()
    assert data.images.array().shape == (5760, 32, 32, 1)
    assert np.bincount(data.labels).tolist() == [24] * 240
    assert list(data.class_names) == sorted(data.class_names)
    splits = class_splits(data.num_classes)
    scripts = {"LATIN", "GREEK", "CYRILLIC", "ARMENIAN", "GEORGIAN", "N", "P", "S"}
    for part in (splits.trainval, splits.test):
        assert {script_of(c) for c in characters_of(data.subset(part))} == scripts
    for fold in splits.folds:
        found = {script_of(c) for c in characters_of(data.subset(fold.validation))}
        assert len(found & scripts) >= 6
    test = data.subset(splits.test)
    assert 0.4 < precision_at_1(test.images.array(), test.labels) < 0.7


def test_images_are_dark_ink_on_light_paper_and_all_differ() -> None:
    data = make_glyphs(60, 24)
    images = data.images.array()
    flat = images.reshape(len(data), -1)
    assert len(np.unique(flat, axis=0)) == len(data)
    edge = np.concatenate([images[:, :2].reshape(len(data), -1)], axis=1).mean(axis=1)
    assert (edge > 100).mean() > 0.98
    ink = np.median(edge) - np.percentile(flat, 5, axis=1)
    assert (ink > 30).mean() > 0.98


def test_same_arguments_same_bytes_without_the_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = make_glyphs(5, 6, 20, seed=3).fingerprint()
    monkeypatch.setenv("REALITY_CHECK_CACHE", str(tmp_path))
    assert make_glyphs(5, 6, 20, seed=3).fingerprint() == first
    assert make_glyphs(5, 6, 20, seed=4).fingerprint() != first


def test_fewer_classes_are_a_prefix() -> None:
    few, many = make_glyphs(4, 5, 16), make_glyphs(9, 5, 16)
    assert many.class_names[:4] == few.class_names
    np.testing.assert_array_equal(many.images[:20].array(), few.images.array())


of_golden_versions = pytest.mark.skipif(
    (matplotlib.__version__, features.version("freetype2")) != GOLDEN_VERSIONS,
    reason="the golden value is for other versions of matplotlib and FreeType",
)


@of_golden_versions
def test_golden_pixels() -> None:
    pixels = make_glyphs(12, 5, 32, seed=0).images.array()
    assert hashlib.sha256(pixels.tobytes()).hexdigest() == GOLDEN_PIXELS


def test_characters_stand_in_enough_faces_and_are_no_accented_letters() -> None:
    assert len(CHARACTERS) >= 240
    assert len(set(CHARACTERS)) == len(CHARACTERS)
    for code in CHARACTERS:
        assert len(faces_of(code)) >= 12
        assert not unicodedata.decomposition(chr(code))


@pytest.mark.parametrize(
    "alike", ["AΑАᴀ", "oOоОοΟ0Օօ", "sSѕЅ", "xXхХχΧ", "cCсС", "zZΖ", "hһ", "∘◦°", "vVѵѴ", "wWԝ"]
)
def test_look_alikes_are_one_class(alike: str) -> None:
    assert sum(chr(code) in alike for code in CHARACTERS) <= 1


def test_missing_and_blank_characters_draw_nothing() -> None:
    assert draw(0x20, "DejaVuSans", 32) is None
    assert draw(0x10FFFD, "DejaVuSans", 32) is None
    assert draw(ord("A"), "DejaVuSans", 32) is not None
    assert "cmr10" in faces_of(ord("A"))
    assert "cmr10" not in faces_of(0x3A9)  # TeX's fonts keep other characters at these places


def test_damaged_cache_files_are_made_again(cache: Path) -> None:
    first = make_glyphs(3, 4, 16).fingerprint()
    (file,) = cache.glob("glyphs-*/pixels.bin")
    whole = file.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 0xFF
    for damage in (b"", whole[: len(whole) // 2], bytes(flipped)):
        file.write_bytes(damage)
        assert make_glyphs(3, 4, 16).fingerprint() == first
        assert file.read_bytes() == whole


def test_an_intact_cache_file_is_read(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = make_glyphs(3, 4, 16).fingerprint()
    monkeypatch.setattr(glyphs, "draw_class", lambda *arguments: pytest.fail("drawn again"))
    assert make_glyphs(3, 4, 16).fingerprint() == first
    assert len(list(cache.iterdir())) == 1


def test_a_cache_that_cannot_be_written_is_no_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("x")
    monkeypatch.setenv("REALITY_CHECK_CACHE", str(tmp_path / "file"))
    with pytest.warns(UserWarning, match="REALITY_CHECK_CACHE"):
        assert make_glyphs(2, 2, 16).num_classes == 2


def test_a_yaml_takes_as_many_classes_as_there_are_characters() -> None:
    schema = GlyphsData.model_json_schema()["properties"]
    assert schema["classes"]["maximum"] == len(CHARACTERS)
    with pytest.raises(ValidationError, match="classes"):
        GlyphsData(reader="glyphs", classes=len(CHARACTERS) + 1)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((100_000, 4, 32, 0), r"classes=100000.*2\.\."),
        ((1, 4, 32, 0), "write classes: 2"),
        ((4, 1, 32, 0), "write images_per_class: 2"),
        ((4, 4, 4, 0), "write size: 8"),
        ((4, 4, 32, -1), "write seed: 0"),
    ],
)
def test_refuses(arguments: tuple[int, int, int, int], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        make_glyphs(*arguments)
