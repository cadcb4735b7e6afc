"""``load_dataset``: one door to all readers."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from PIL import Image

from reality_check.data import load_dataset, make_glyphs
from reality_check.utils.errors import UsageError


def test_glyphs() -> None:
    config = SimpleNamespace(reader="glyphs", classes=4, images_per_class=3, size=16, seed=1)
    data = load_dataset(config)
    assert data.fingerprint() == make_glyphs(4, 3, 16, 1).fingerprint()


def test_image_folder(tmp_path: Path) -> None:
    for name in ("0.png", "1.png"):
        (tmp_path / "x" / "a").mkdir(parents=True, exist_ok=True)
        Image.new("L", (8, 8), 9).save(tmp_path / "x" / "a" / name)
    config = SimpleNamespace(
        reader="image_folder",
        path=str(tmp_path / "x"),
        size=4,
        channels=3,
        on_broken="error",
        resize="none",
    )
    assert load_dataset(config).image_shape == (8, 8, 3)


def npz(folder: Path, labels: list[int]) -> Path:
    images = np.zeros((len(labels), 2, 2, 1), np.uint8)
    np.savez(folder / "x.npz", images=images, y=np.array(labels))
    return folder / "x.npz"


def test_npz_with_chosen_and_default_keys(tmp_path: Path) -> None:
    path = npz(tmp_path, [0, 0, 1, 1])
    config = SimpleNamespace(reader="tensors", name="x", path=path, where={"y": [1]}, y="y", x=None)
    data = load_dataset(config)
    assert (data.num_classes, data.class_names) == (1, ("1",))


def test_unknown_reader() -> None:
    with pytest.raises(UsageError, match=r"'glyph' does not exist.*Did you mean 'glyphs'"):
        load_dataset(SimpleNamespace(reader="glyph"))


@pytest.mark.data
def test_omniglot(real_data: Path) -> None:
    config = SimpleNamespace(
        reader="tensors",
        name="omniglot",
        path="${REALITY_CHECK_DATA}/omniglot/omniglot_28.npz",
        where={"split": 0},
    )
    data = load_dataset(config)
    assert data.num_classes == 964
    assert data.image_shape == (28, 28, 1)
    assert np.bincount(data.labels).tolist() == [20] * 964


@pytest.mark.data
def test_caltech(real_data: Path) -> None:
    path = real_data / "caltech101" / "caltech101_32.npz"
    data = load_dataset(SimpleNamespace(reader="tensors", name="x", path=path, where=None))
    assert (data.num_classes, len(data), data.image_shape) == (99, 5815, (32, 32, 3))
    counts = np.bincount(data.labels)
    assert (counts.min(), counts.max()) == (31, 80)
