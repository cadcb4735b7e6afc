from __future__ import annotations

import numpy as np
import pytest
import torch
from support.paths import TINY

from reality_check.config import load_experiment
from reality_check.data import ImageSet
from reality_check.training.prepared_experiment import PreparedExperiment, pick_device
from reality_check.utils.errors import UsageError


def test_what_the_report_says_of_the_data() -> None:
    labels = np.repeat(np.arange(12), [1, 2, 3, 1, 2, 2, 2, 1, 2, 4, 2, 2])
    images = ImageSet(
        np.zeros((len(labels), 8, 10, 1), np.uint8),
        labels,
        tuple(map(str, range(12))),
        "toy",
        skipped=("broken.png",),
    )
    experiment = load_experiment(TINY, ["protocol.split.folds=3", "device=cpu"])
    prepared = PreparedExperiment(experiment, images)
    assert prepared.describe_data() == {
        "name": experiment.dataset.name,
        "classes": 12,
        "images": 24,
        "noun": "image",
        "origin": "",
        "image_shape": [8, 10, 1],
        "input_shape": [8, 10, 1],
        "trainval_classes": 6,
        "test_classes": 6,
        "test_images": 13,
        "queries": None,
        "lone_images": 3,
        "skipped": ["broken.png"],
        "copies": "24 of 24 images have an identical copy in another class, 24 of them in training "
        "and in test classes: no loss gets both right.",
        "folds": [[4, 2]] * 3,
        "device": "cpu",
    }
    assert prepared.describe_data("cuda:1")["device"] == "cuda:1"


def test_the_report_says_how_many_test_images_are_queries() -> None:
    images = ImageSet(
        np.zeros((24, 8, 8, 1), np.uint8),
        np.repeat(np.arange(12), 2),
        tuple(map(str, range(12))),
        "toy",
        test_classes=tuple(range(7, 12)),
        queries=np.arange(24) % 2 == 0,
    )
    changes = ["protocol.split.folds=3", "protocol.split.test_classes=official", "device=cpu"]
    facts = PreparedExperiment(load_experiment(TINY, changes), images).describe_data()
    assert (facts["queries"], facts["test_images"], facts["lone_images"]) == (5, 10, 0)


def test_a_device_that_is_not_there_is_a_usage_error() -> None:
    assert pick_device("cpu") == torch.device("cpu")
    count = torch.cuda.device_count()
    with pytest.raises(UsageError, match=f"'cuda:{count}'.*{count} CUDA devices"):
        pick_device(f"cuda:{count}")


def test_each_process_of_a_network_has_a_gpu_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for name, value in (("WORLD_SIZE", "4"), ("LOCAL_WORLD_SIZE", "4"), ("LOCAL_RANK", "1")):
        monkeypatch.setenv(name, value)
    assert pick_device("cuda") == pick_device("auto") == torch.device("cuda", 1)
    assert pick_device("cpu") == torch.device("cpu")
