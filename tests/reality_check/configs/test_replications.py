"""The experiments that check claims of the papers on a small scale."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch
from support.experiments import shipped

from reality_check.config.metrics import by_corruption
from reality_check.data import ImageSet, SampleSet, TensorSet, load_dataset
from reality_check.evaluation.categories import score_folds, score_networks
from reality_check.models.network import build_network
from reality_check.models.pipeline import build_pipeline, input_shape
from reality_check.training.fold import FoldTask
from reality_check.training.methods import fill_method, middle_params, search_space
from reality_check.training.preflight import check_data, check_model
from reality_check.training.trainer import Trainer
from reality_check.utils.config_files import shipped_files

FILES = {
    name: path
    for name, path in shipped_files("experiments").items()
    if name.startswith("replications/")
}
#: Those whose vectors a user makes first: reality-check embed.
ON_FEATURES = {name for name in FILES if name.endswith("_features")}
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def stand_ins() -> dict[str, SampleSet]:
    """Classes of noise in the shapes of the real samples, enough of them for every batch."""

    def make(name: str, classes: int, each: int, *shape: int) -> ImageSet:
        pixels = np.random.default_rng(0).integers(0, 256, (classes * each, *shape), np.uint8)
        labels = np.repeat(np.arange(classes), each)
        return ImageSet(pixels, labels, tuple(f"class {n}" for n in range(classes)), name)

    vectors = np.random.default_rng(0).normal(size=(512, 1280)).astype(np.float32)
    classes = np.repeat(np.arange(128), 4)
    names = tuple(f"class {n}" for n in range(128))
    return {
        "omniglot_lite0": TensorSet(vectors, classes, names, "omniglot_lite0"),
        "omniglot": make("omniglot", 72, 4, 28, 28, 1),
        "omniglot_background": make("omniglot_background", 72, 4, 28, 28, 1),
        "caltech101": make("caltech101", 40, 4, 64, 64, 3),
        "mnist_10k": make("mnist_10k", 10, 9, 28, 28, 1),
    }


@pytest.mark.parametrize("name", FILES)
def test_every_method_trains_two_iterations_and_is_scored(
    name: str, stand_ins: dict[str, SampleSet], tmp_path: Path
) -> None:
    experiment = shipped(name)
    protocol, images = experiment.protocol, stand_ins[experiment.dataset.name]
    short = protocol.training.model_copy(update={"iterations_per_epoch": 1})
    size, shape = short.embedding_size, input_shape(images, short.augmentation)
    check_model(experiment, images)
    networks = []
    for method in experiment.methods:
        settings = fill_method(method, protocol, middle_params(method, protocol))
        epochs = (2, 0) if settings.second_phase is None else (1, 1)
        model = experiment.model_of(method)
        task = FoldTask(settings, model, short, size, 0, 0, fixed_epochs=epochs)
        result = Trainer(task, images, None, tmp_path / method.name, CPU).run()
        assert result.epochs_spent == 2
        networks.append(build_network(model, shape, size, seed=0))
        state = torch.load(tmp_path / method.name / "model.pt", weights_only=True)
        networks[-1].load_state_dict(state)
    pipeline = build_pipeline(images, experiment.model, short.augmentation, CPU)
    scores, embeddings = score_networks(
        networks[:2],
        pipeline,
        CPU,
        lambda found, extra_metrics: score_folds(found, images.labels, True, extra_metrics),
        protocol.final_metrics,
    )
    assert embeddings[0].shape == (len(images), size)
    assert set(protocol.final_metrics) <= set(scores["ensemble"])


@pytest.mark.parametrize("name", FILES)
def test_the_budget_is_fair_and_every_method_is_in_a_claim(name: str) -> None:
    experiment = shipped(name)
    # Either reproductions of one search, or several searches, of which fewer say more.
    search = experiment.protocol.search
    assert experiment.protocol.reproductions >= 5 or search.repeats >= 3 or search.budget
    assert "not the protocol" in experiment.protocol.note
    claimed = {
        one.method for claim in experiment.claims for both in claim.comparisons() for one in both
    }
    of_curves = {"sigma_0p03", "images_2", "images_4", "images_16", "beta_0p5", "beta_2"}
    assert {method.name for method in experiment.methods} - claimed <= of_curves
    for method in experiment.methods:
        assert search_space(method, experiment.protocol), method.name


def test_fixed_values_of_curves_are_the_only_difference_of_their_methods() -> None:
    for name, keys in {
        "sgsl_curves_features": {"gamma", "beta"},
        "normsoftmax_temperature_features": {"temperature"},
        "gradml_curves_features": {"k", "w"},
    }.items():
        methods = shipped(f"replications/{name}").methods
        plain = [method.model_dump(mode="json", exclude={"name"}) for method in methods]
        for one in plain:
            of_loss = one["arguments"].get("loss", one["arguments"])
            assert keys <= set(of_loss)
            for key in keys:
                del of_loss[key]
        assert all(one == plain[0] for one in plain)
    samples = shipped("replications/normsoftmax_samples_features").methods
    exclude = {"name", "samples_per_class", "training"}
    assert len({str(method.model_dump(mode="json", exclude=exclude)) for method in samples}) == 1


def test_all_nine_corruptions_are_measured() -> None:
    experiment = shipped("replications/corruptions_caltech101")
    assert len(by_corruption(experiment.protocol.final_metrics)) == 9


@pytest.mark.data
@pytest.mark.parametrize("name", sorted(set(FILES) - ON_FEATURES))
def test_the_real_images_fit(name: str) -> None:
    experiment = shipped(name)
    images = load_dataset(experiment.dataset)
    check_data(experiment, images)
    check_model(experiment, images)
