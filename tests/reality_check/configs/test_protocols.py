"""The protocols that ship with the package."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from reality_check.config import Protocol, differing_keys, load_experiment, named_protocol
from reality_check.config.named import named_model
from reality_check.data.augmentation.vectors import VectorAugmentation
from reality_check.data.tensors import TensorShape
from reality_check.launch.cost import count_trainings
from reality_check.models.pipeline import build_augmentation
from reality_check.utils.config_files import shipped_files

PROTOCOLS = sorted(shipped_files("protocols"))
#: The same rules with the budget divided otherwise.
DIVIDED = {
    "_5x10": (10, 5, None),
    "_5x50": (50, 5, None),
    "_subsets": (118, 1, 10),
    "_subsets_third": (32, 1, 5),
    "_subsets_retrained": (50, 1, 10),
}
#: Networks of a fold that a loss trains in all, without those of "complete".
PRICES = {
    "mlrc": 240,
    "mlrc_subsets": 258,
    "mlrc_subsets_third": 88,
    "mlrc_subsets_retrained": 260,
    "mlrc_5x10": 240,
    "features": 88,
    "finetune": 88,
    "finetune_from_file": 88,
    "finetune_small": 32,
    "features_precise": 258,
    "features_retrained": 260,
    "features_quick": 53,
    "quick": 31,
    "quick_retrained": 48,
}
RACING = {"features", "features_precise", "features_quick", "quick"}
RACING |= {"finetune", "finetune_from_file", "finetune_small"}
RACING |= {
    base + ending for base in ("mlrc", "appendix_d") for ending in ("_subsets", "_subsets_third")
}
PUBLISHED = [name for name in PROTOCOLS if not name.endswith(tuple(DIVIDED))]
MLRC = [name for name in PUBLISHED if name.startswith("mlrc")]
APPENDIX_D = [name for name in PUBLISHED if name.startswith("appendix_d")]
#: Evaluation interval and patience in epochs, by data set.
INTERVALS = {"": (2, 9), "_cars196": (5, 14), "_sop": (20, 39), "_batch256": (2, 9)}


def rules(name: str) -> dict[str, Any]:
    plain = named_protocol(name).model_dump(mode="json")
    return {k: v for k, v in plain.items() if k not in ("name", "reference", "published")}


def test_all_data_sets_have_both_protocols() -> None:
    assert MLRC == ["mlrc", "mlrc_batch256", "mlrc_cars196", "mlrc_sop"]
    assert APPENDIX_D == ["appendix_d", "appendix_d_cars196", "appendix_d_sop"]


@pytest.mark.parametrize("base", ["mlrc", "appendix_d"])
@pytest.mark.parametrize("ending", DIVIDED)
def test_divided_budgets_change_the_search_only(base: str, ending: str) -> None:
    divided = named_protocol(base + ending)
    search = divided.search
    assert (search.trials, search.repeats, search.budget) == DIVIDED[ending]
    assert divided.reference == base
    keys = set(differing_keys(rules(base), rules(base + ending)))
    assert {key.partition(".")[0] for key in keys} == {"search", "reproductions"}


@pytest.mark.parametrize("name", PRICES)
def test_the_price_of_a_loss_is_what_docs_say(name: str) -> None:
    changes = [f"protocol={name}", "methods=[quick/contrastive]"]
    experiment = load_experiment("quickstart", [*changes, "protocol.categories=[aggregate]"])
    assert count_trainings(experiment) == PRICES[name]


def test_published_protocols_and_those_of_packs_never_race() -> None:
    racing = {name for name in PROTOCOLS if named_protocol(name).search.race}
    assert racing == RACING
    assert racing == {n for n in PROTOCOLS if named_protocol(n).search.retrain == "none"}


@pytest.mark.parametrize("name", MLRC)
def test_the_reality_check_has_the_published_numbers(name: str) -> None:
    protocol = named_protocol(name)
    training = protocol.training
    assert protocol.reference == protocol.name == name
    assert (protocol.split.rule, protocol.split.folds) == ("mlrc", 4)
    assert protocol.split.test_classes == "half"
    assert (protocol.search.trials, protocol.search.sampler) == (50, "gp")
    assert protocol.search.startup_trials == 5
    assert protocol.reproductions == 10
    assert protocol.categories == ["aggregate", "ensemble"]
    assert training.batch_size == (256 if name == "mlrc_batch256" else 32)
    assert (training.iterations_per_epoch, training.max_epochs) == (100, 1000)
    assert training.embedding_size == 128
    assert training.freeze_batchnorm
    assert training.gradient_clip is None
    assert training.phases == "method"
    assert (training.evaluate_every, training.patience) == INTERVALS[name.removeprefix("mlrc")]
    for part in (training.optimizers.trunk, training.optimizers.embedder, training.optimizers.loss):
        assert (part.name, part.lr, part.weight_decay) == ("RMSprop", 1e-6, 1e-4)
        assert part.arguments == {"momentum": 0.9}


@pytest.mark.parametrize("name", [*MLRC, *APPENDIX_D])
def test_images_are_cropped_as_published(name: str) -> None:
    protocol = named_protocol(name)
    augmentation = protocol.training.augmentation
    assert augmentation.crop_size == (224 if name in APPENDIX_D else 227)
    assert augmentation.resized_crop_scale == (0.16, 1.0)
    assert augmentation.resized_crop_ratio == (0.75, 1.33)
    assert augmentation.horizontal_flip == 0.5
    changed = {"crop_size", "resized_crop_scale", "resized_crop_ratio", "horizontal_flip"}
    default = type(augmentation)()
    assert augmentation.model_dump(exclude=changed) == default.model_dump(exclude=changed)
    assert protocol.published.images == {"size": 256, "resize": "short_side", "channels": 3}


@pytest.mark.parametrize("name", APPENDIX_D)
def test_appendix_d_is_the_reality_check_with_two_phases_another_head_and_complete(
    name: str,
) -> None:
    mlrc, appendix = (rules(start + name[10:]) for start in ("mlrc", "appendix_d"))
    assert set(differing_keys(mlrc, appendix)) == {
        "categories",
        "training.phases",
        "training.augmentation.crop_size",
    }
    protocol = named_protocol(name)
    assert protocol.training.phases == "two"
    assert protocol.categories == ["aggregate", "ensemble", "complete"]
    assert protocol.complete.round_epochs_up_to == 5


def published_model(protocol: Protocol) -> tuple[str, str, str | None, str | None]:
    assert protocol.published.model is not None
    model = named_model(protocol.published.model)
    return model.trunk, model.weights, model.pooling, model.normalization


@pytest.mark.parametrize("name", [*MLRC, *APPENDIX_D])
def test_each_has_its_trunk_and_data_set(name: str) -> None:
    protocol = named_protocol(name)
    suffix = name.removeprefix("mlrc").removeprefix("appendix_d")
    data = {"_cars196": "cars196", "_sop": "stanford_online_products"}.get(suffix, "cub200")
    assert protocol.published.dataset == [data]
    trunk = "resnet50" if name in ("appendix_d", "appendix_d_cars196") else "bn_inception"
    head = ("average_plus_max", "layer_norm") if name in APPENDIX_D else ("average", "none")
    assert published_model(protocol) == (trunk, "imagenet", *head)


def test_folders_of_methods_exist() -> None:
    folders = {file.rpartition("/")[0] for file in shipped_files("methods")}
    for name in PROTOCOLS:
        assert set(named_protocol(name).published.methods) <= folders


def test_the_quick_protocol_says_that_it_is_none() -> None:
    protocol = named_protocol("quick")
    assert protocol.reference == "mlrc"
    assert "not the protocol" in protocol.note


@pytest.mark.parametrize("name", ["finetune_from_file", "finetune_small"])
def test_the_augmentation_of_stored_outputs_changes_nothing(name: str) -> None:
    experiment = load_experiment("quickstart", [f"protocol={name}", "model=identity"])
    shape = TensorShape((4,), torch.float32)
    options = experiment.protocol.training.augmentation
    assert isinstance(build_augmentation(experiment.model, options, shape), VectorAugmentation)
