"""What the YAML's keys of augmentation allow."""

from __future__ import annotations

import re

import pytest
import yaml
from support.paths import DOCS

from reality_check.config.training import Augment
from reality_check.data.augmentation.augment import Augmentation
from reality_check.data.augmentation.vectors import VectorAugmentation
from reality_check.utils.errors import UsageError


def test_everything_is_off_by_default() -> None:
    assert Augmentation(**Augment().of_images()).is_off
    assert VectorAugmentation(3, **Augment().of_vectors()).is_off


@pytest.mark.parametrize(
    ("keys", "transform"),
    [
        ({"resized_crop_scale": [0.16, 1.0], "horizontal_flip": 0.5, "crop_size": 227}, 227),
        ({"resize": [256, 256], "random_crop": True, "crop_size": 224}, 224),
        ({"resize": 288, "crop_size": 256, "interpolation": "bicubic", "hue": 0.5}, 256),
    ],
)
def test_what_the_papers_use_is_accepted_by_both(keys: dict, transform: int) -> None:
    augmentation = Augmentation(**Augment.model_validate(keys).of_images())
    assert augmentation.evaluation_transform().crop_size == transform


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ({"scale": [1.2, 0.8]}, r"must be \[low, high\] with 0 < low <= high, got \[1.2, 0.8\]"),
        ({"resized_crop_scale": [0.5, 1.5]}, "<= 1"),
        ({"resized_crop_ratio": [1.0, float("inf")]}, "a finite number"),
        ({"random_crop": True}, "needs crop_size"),
        (
            {"random_crop": True, "crop_size": 8, "resized_crop_scale": [0.5, 1.0]},
            "exclude each other",
        ),
        ({"interpolation": "bicubic", "shear": 3}, "does not go with rotation or shear"),
        ({"resize": 200, "crop_size": 224}, r"resize \(200\) must be at least crop_size \(224\)"),
        ({"resize": 200}, "resize needs crop_size"),
        ({"hue": 0.6}, "hue must be"),
        ({"crop_size": 0}, "crop_size"),
        ({"contrast": -0.1}, "contrast must be"),
        ({"interpolation": "bicubik"}, "mean 'bicubic'"),
        ({"blur": 3}, "unknown key 'blur'"),
    ],
)
def test_refuses(keys: dict, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        Augmentation(**keys)


def test_the_page_lists_valid_variants_and_every_key() -> None:
    page = (DOCS / "augmentation.md").read_text(encoding="utf-8")
    section = page.partition("## What the papers use")[2].partition("\n## ")[0]
    variants = re.findall(r"^\| [^`|]+ \| `(.*?)` ", section, re.M)
    assert len(variants) == 7  # two of the eight papers' variants are the same
    for variant in variants:
        keys = Augment.model_validate(yaml.safe_load("{" + variant + "}")).of_images()
        assert not Augmentation(**keys).is_off
    assert all(f"`{key}`" in page for key in Augment.model_fields)
