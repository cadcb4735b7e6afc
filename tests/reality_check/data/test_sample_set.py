from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from reality_check.data import ImageSet
from reality_check.utils.errors import UsageError


def make(**changes: object) -> ImageSet:
    images = np.arange(6 * 2 * 3 * 1, dtype=np.uint8).reshape(6, 2, 3, 1)
    fields: dict[str, object] = {
        "samples": images,
        "labels": np.array([2, 0, 1, 0, 2, 1]),
        "class_names": ("a", "b", "c"),
        "name": "toy",
    }
    return ImageSet(**(fields | changes))  # type: ignore[arg-type]


def test_properties() -> None:
    data = make()
    assert (len(data), data.num_classes, data.image_shape) == (6, 3, (2, 3, 1))


def test_subset_relabels_in_the_given_order_and_keeps_the_order_of_images() -> None:
    data = make()
    part = data.subset([2, 0])
    assert part.class_names == ("c", "a")
    assert part.labels.tolist() == [0, 1, 1, 0]
    np.testing.assert_array_equal(part.images.array(), data.images.array()[[0, 1, 3, 4]])
    assert np.shares_memory(part.images.pixels, data.images.pixels), "a view, not a copy"
    assert part.labels.dtype == np.int64


@pytest.mark.parametrize("classes", [[], [1, 1], [3], [-1]])
def test_subset_refuses(classes: list[int]) -> None:
    with pytest.raises(UsageError, match=r"among 0\.\.2, each once and at least one"):
        make().subset(classes)


def test_fingerprint_is_of_the_content() -> None:
    data = make()
    assert data.fingerprint() == make(name="other").fingerprint() == data.fingerprint()
    changed = data.images.array().copy()
    changed[5, 1, 2, 0] += 1
    different = [
        make(samples=changed),
        make(labels=np.array([0, 2, 1, 0, 2, 1])),
        make(class_names=("a", "b", "d")),
        make(samples=data.images.array().reshape(6, 3, 2, 1)),
        make(test_classes=(1, 2)),
        make(test_classes=(1,)),
        make(queries=np.arange(6) < 2),
    ]
    assert len({data.fingerprint(), *(other.fingerprint() for other in different)}) == 8


def test_fingerprint_of_a_strided_view() -> None:
    data = make()
    view = np.repeat(data.images.array(), 2, axis=0)[::2]
    assert make(samples=view).fingerprint() == data.fingerprint()


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"samples": np.zeros((6, 2, 3, 1), np.float32)}, "float32.*uint8"),
        ({"samples": np.zeros((6, 2, 3), np.uint8)}, r"\(6, 2, 3\)"),
        ({"samples": np.zeros((6, 2, 3, 4), np.uint8)}, "C = 1"),
        ({"samples": np.zeros((0, 2, 3, 1), np.uint8)}, "at least one image"),
        ({"labels": np.zeros(6, np.int32)}, "int32"),
        ({"labels": np.zeros(5, np.int64)}, r"\(6,\)"),
        ({"labels": np.array([1, 2, 3, 1, 2, 3])}, r"1\.\.3.*0\.\.2"),
        ({"labels": np.array([-1, 0, 1, 2, 0, 1])}, r"-1\.\.2"),
        ({"labels": np.array([0, 0, 1, 1, 0, 0])}, "'c'.*no image"),
        ({"class_names": ("a", "b", "a")}, "two classes named 'a'"),
    ],
)
def test_wrong_content_is_refused_in_one_sentence(changes: dict[str, object], text: str) -> None:
    with pytest.raises(UsageError, match=text) as caught:
        make(**changes)
    assert "\n" not in str(caught.value)


def test_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        make().name = "x"  # type: ignore[misc]
