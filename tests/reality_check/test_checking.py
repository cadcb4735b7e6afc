from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from reality_check.checking import check_data, check_model
from reality_check.config import compose
from reality_check.data import ImageSet
from reality_check.errors import UsageError

RAW: dict[str, Any] = {
    "name": "x",
    "dataset": "glyphs",
    "model": "conv4",
    "protocol": "quick",
    "methods": ["contrastive"],
}


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("model.trunk=conv5", "'conv5'"),
        ("model.arguments.widht=3", "mean 'width'"),
        ("protocol.training.optimizers.trunk.arguments.momentm=0.9", "momentm"),
        ("protocol.training.augmentation.scale=[1.2, 0.9]", "scale"),
        ("protocol.training.augmentation.resized_crop_scale=[0, 1]", "resized_crop_scale"),
    ],
)
def test_what_a_training_would_trip_over_is_told_before_it_begins(
    make_images: Callable[..., ImageSet], override: str, words: str
) -> None:
    check_model(compose(RAW), make_images(16))
    with pytest.raises(UsageError, match=words):
        check_model(compose(RAW, [override]), make_images(16))


def test_a_batch_must_fit_the_classes_of_a_fold(make_images: Callable[..., ImageSet]) -> None:
    # 24 classes: 12 trainval, 3 validate in each fold, 9 train; a batch of 32 has 8 classes of 4.
    check_data(compose(RAW), make_images(24, 2))
    # 20 classes leave 8 to train on, 18 leave 7.
    check_data(compose(RAW), make_images(20, 2))
    with pytest.raises(UsageError, match=r"'contrastive'.*8 classes.*there are 7"):
        check_data(compose(RAW), make_images(18, 2))
