from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from reality_check.data import ImageSet, imagefolder, read_image_folder
from reality_check.errors import UsageError


def tree(root: Path, classes: tuple[str, ...] = ("bird", "ant"), count: int = 3) -> Path:
    """PNG images of one grey level each: 10 * class + number."""
    for rank, name in enumerate(sorted(classes)):
        (root / name).mkdir(parents=True)
        for number in range(count):
            level = 10 * rank + number
            Image.new("L", (9 + number, 8), level).save(root / name / f"{number}.png")
    return root


def test_classes_are_sorted_and_images_follow_their_paths(tmp_path: Path) -> None:
    data = read_image_folder(tree(tmp_path / "pets"), 4, 1)
    assert data.class_names == ("ant", "bird")
    assert data.name == "pets"
    assert data.labels.tolist() == [0, 0, 0, 1, 1, 1]
    assert data.images.shape == (6, 4, 4, 1)
    assert data.images[:, 2, 2, 0].tolist() == [0, 1, 2, 10, 11, 12]


def test_other_files_are_ignored_and_sub_folders_read(tmp_path: Path) -> None:
    root = tree(tmp_path)
    (root / "readme.txt").write_text("x")
    (root / ".hidden").mkdir()
    (root / "ant" / "Thumbs.db").write_bytes(b"x")
    (root / "ant" / "._0.png").write_bytes(b"x")
    (root / "ant" / "deeper").mkdir()
    Image.new("L", (8, 8), 77).save(root / "ant" / "deeper" / "UPPER.BMP")
    data = read_image_folder(root, 4, 1)
    assert data.class_names == ("ant", "bird")
    assert data.images[:, 0, 0, 0].tolist() == [0, 1, 2, 77, 10, 11, 12]


def test_short_side_is_resized_and_the_centre_cut_out(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    wide = np.zeros((10, 30, 3), np.uint8)
    wide[:, 10:20] = 200  # the centre third is what remains
    Image.fromarray(wide).save(tmp_path / "a" / "wide.png")
    Image.fromarray(wide.transpose(1, 0, 2)).save(tmp_path / "a" / "tall.png")
    data = read_image_folder(tmp_path, 5, 3)
    assert data.images.shape == (2, 5, 5, 3)
    assert (data.images[:, 1:4, 1:4] == 200).all()  # the edge is mixed with what lies beside it


def save_modes(folder: Path) -> dict[str, list[int]]:
    """Images of one colour in many modes, with the RGB that each must become."""
    folder.mkdir()
    size = (6, 6)
    Image.new("L", size, 100).save(folder / "grey.png")
    Image.new("RGB", size, (10, 20, 30)).save(folder / "rgb.png")
    Image.new("CMYK", size, (0, 0, 0, 0)).save(folder / "cmyk.jpg")
    palette = Image.new("P", size, 1)
    palette.putpalette([0, 0, 0, 40, 50, 60])
    palette.save(folder / "palette.png")
    Image.new("1", size, 1).save(folder / "bits.png")
    Image.new("RGBA", size, (9, 9, 9, 0)).save(folder / "clear.png")
    Image.new("LA", size, (80, 255)).save(folder / "opaque.png")
    palette.save(folder / "clear_palette.gif", transparency=1)
    Image.fromarray(np.full(size, 257 * 123, np.uint16)).save(folder / "deep.png")
    Image.fromarray(np.full(size, 257 * 45, np.uint16)).save(folder / "deep.tif")
    return {
        "bits.png": [255] * 3,
        "clear.png": [255] * 3,
        "clear_palette.gif": [255] * 3,
        "cmyk.jpg": [255] * 3,
        "deep.png": [123] * 3,
        "deep.tif": [45] * 3,
        "grey.png": [100] * 3,
        "opaque.png": [80] * 3,
        "palette.png": [40, 50, 60],
        "rgb.png": [10, 20, 30],
    }


def test_every_mode_is_converted(tmp_path: Path) -> None:
    expected = save_modes(tmp_path / "a")
    colour = read_image_folder(tmp_path, 4, 3)
    found = dict(zip(expected, colour.images[:, 1, 1].tolist(), strict=True))
    assert found == expected
    grey = read_image_folder(tmp_path, 4, 1)
    assert grey.image_shape == (4, 4, 1)
    expected_grey = [round(0.299 * r + 0.587 * g + 0.114 * b) for r, g, b in expected.values()]
    np.testing.assert_allclose(grey.images[:, 1, 1, 0], expected_grey, atol=1)


def broken_tree(root: Path) -> Path:
    tree(root)
    whole = (root / "ant" / "1.png").read_bytes()
    (root / "ant" / "1.png").write_bytes(whole[:40])
    return root


def test_a_broken_image_is_named(tmp_path: Path, cache: Path) -> None:
    with pytest.raises(UsageError, match=r"1\.png.*cannot be decoded.*on_broken: skip"):
        read_image_folder(broken_tree(tmp_path / "x"), 4, 1)
    assert list(cache.iterdir()) == []


def test_a_broken_image_is_skipped_on_demand(tmp_path: Path) -> None:
    root = broken_tree(tmp_path / "x")
    with pytest.warns(UserWarning, match=r"1\.png"):
        data = read_image_folder(root, 4, 1, on_broken="skip")
    assert data.images[:, 0, 0, 0].tolist() == [0, 2, 10, 11, 12]
    assert data.labels.tolist() == [0, 0, 1, 1, 1]
    for number in (0, 2):
        (root / "ant" / f"{number}.png").write_bytes(b"")
    with (
        pytest.warns(UserWarning, match="Skipped"),
        pytest.raises(UsageError, match="No image of the class 'ant'"),
    ):
        read_image_folder(root, 4, 1, on_broken="skip")


def test_float_and_32_bit_images_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    Image.fromarray(np.ones((4, 4), np.float32)).save(tmp_path / "a" / "x.tif")
    with pytest.raises(UsageError, match=r"x\.tif.*floats"):
        read_image_folder(tmp_path, 4, 1)
    Image.fromarray(np.full((4, 4), 1 << 20, np.int32)).save(tmp_path / "a" / "x.tif")
    with pytest.raises(UsageError, match=r"x\.tif.*32 bits"):
        read_image_folder(tmp_path, 4, 1)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"size": 0}, "size=0"),
        ({"channels": 4}, "channels=4"),
        ({"on_broken": "ignore"}, "'error' or 'skip'"),
    ],
)
def test_refuses_options(tmp_path: Path, options: dict[str, object], text: str) -> None:
    arguments: dict[str, object] = {"path": tree(tmp_path), "size": 4, **options}
    with pytest.raises(UsageError, match=text):
        read_image_folder(**arguments)  # type: ignore[arg-type]


def test_refuses_folders_without_images(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no folder"):
        read_image_folder(tmp_path / "absent", 4)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="no sub-folders"):
        read_image_folder(tmp_path / "empty", 4)
    root = tree(tmp_path / "full")
    (root / "cat").mkdir()
    (root / "cat" / "notes.txt").write_text("x")
    with pytest.raises(UsageError, match="cat' holds no image"):
        read_image_folder(root, 4)


@pytest.fixture
def decodings(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    calls: list[str] = []
    real = imagefolder.decode_image

    def counted(path: Path, size: int, channels: int) -> np.ndarray:
        calls.append(path.name)
        return real(path, size, channels)

    monkeypatch.setattr(imagefolder, "decode_image", counted)
    return calls


def test_images_are_decoded_once_and_memory_mapped(tmp_path: Path, decodings: list[str]) -> None:
    root = tree(tmp_path / "x")
    first = read_image_folder(root, 4, 1)
    second = read_image_folder(root, 4, 1)
    assert len(decodings) == 6
    assert isinstance(second.images, np.memmap)
    assert first.fingerprint() == second.fingerprint()
    second.images[0] = 99  # a copy of this process only
    assert read_image_folder(root, 4, 1).fingerprint() == first.fingerprint()


def test_a_change_or_a_damaged_cache_decodes_again(
    tmp_path: Path, cache: Path, decodings: list[str]
) -> None:
    root = tree(tmp_path / "x")
    first = read_image_folder(root, 4, 1).fingerprint()
    (entry,) = cache.iterdir()
    for damage in (b"", b"{}"):
        (entry / "meta.json").write_bytes(damage)
        assert read_image_folder(root, 4, 1).fingerprint() == first
    (entry / "images.bin").write_bytes(b"short")
    assert read_image_folder(root, 4, 1).fingerprint() == first
    assert len(decodings) == 4 * 6
    Image.new("L", (30, 30), 200).save(root / "ant" / "0.png")
    assert read_image_folder(root, 4, 1).images[0, 0, 0, 0] == 200
    assert read_image_folder(root, 5, 1).image_shape == (5, 5, 1)


def test_two_at_once_agree(tmp_path: Path, cache: Path) -> None:
    root = tree(tmp_path / "x", count=40)
    found: list[ImageSet] = []
    threads = [
        threading.Thread(target=lambda: found.append(read_image_folder(root, 4, 1)))
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({data.fingerprint() for data in found}) == 1
    assert len(found) == 4
    assert len(list(cache.iterdir())) == 1
