"""The methods that ship with the package."""

from __future__ import annotations

import pytest
import torch
from support.experiments import shipped
from torch import Tensor

from reality_check.config import Model, Range, named_protocol
from reality_check.config.named import named_method
from reality_check.training.fold import FoldTask
from reality_check.training.methods import (
    FilledMethod,
    FilledSecondPhase,
    build_loss,
    enter_second_phase,
    fill_method,
    middle_params,
    search_space,
)
from reality_check.training.module import TrainingModule
from reality_check.utils.config_files import shipped_files

FILES = sorted(shipped_files("methods"))
MODEL = Model(name="tiny", trunk="conv4", arguments={"width": 8}, pooling="flatten")

#: Losses that the Reality Check did not have.
FURTHER = [
    "stop_gradient_softmax",
    "warped_softmax",
    "heated_up_softmax",
    "heated_up_softmax_bn",
    "grad_ml",
    "proxy_nca_plus_plus",
    "hist",
    "proxy_anchor",
    "ccl",
    "pfml",
]
#: Losses that compare images with each other, not with proxies or weights of classes.
OF_IMAGES = {
    "contrastive",
    "triplet_margin",
    "nt_xent",
    "margin",
    "margin_per_class",
    "fast_ap",
    "snr_contrastive",
    "multi_similarity",
    "multi_similarity_miner",
    "grad_ml",
    "hist",
    "pfml",
}

LR = ("log", 1e-6, 1)
#: Final bounds of the published search on CUB: (scale, low, high) by parameter.
CUB: dict[str, dict[str, tuple[str, float, float]]] = {
    "contrastive": {"pos_margin": ("lin", -0.2, 2), "neg_margin": ("lin", -0.2, 2)},
    "triplet_margin": {"margin": ("lin", -0.2, 2)},
    "nt_xent": {"temperature": ("log", 1e-4, 1e2)},
    "proxy_nca": {"lr": LR, "softmax_scale": ("lin", 0.01, 100)},
    "margin": {"lr": LR, "margin": ("lin", -0.2, 2), "beta": ("lin", -0.2, 2)},
    "margin_per_class": {"lr": LR, "margin": ("lin", -0.2, 2), "beta": ("lin", -0.2, 2)},
    "normalized_softmax": {"lr": LR, "temperature": ("log", 1e-2, 1e2)},
    "cosface": {"lr": LR, "margin": ("lin", 0, 1), "scale": ("lin", 0.01, 200)},
    "arcface": {"lr": LR, "margin": ("lin", 0, 90), "scale": ("lin", 0.01, 200)},
    "fast_ap": {"num_bins": ("int", 2, 32)},
    "snr_contrastive": {
        "pos_margin": ("lin", 0, 2),
        "neg_margin": ("lin", 0, 2),
        "embedding_reg_weight": ("lin", 0, 1),
    },
    "multi_similarity": {
        "alpha": ("lin", 0.001, 100),
        "beta": ("lin", 0.01, 100),
        "base": ("lin", 0, 1),
    },
    "multi_similarity_miner": {
        "alpha": ("lin", 0.01, 100),
        "beta": ("lin", 0.01, 100),
        "base": ("lin", 0, 1),
        "epsilon": ("lin", 0, 1),
    },
    "soft_triple": {
        "lr": LR,
        "la": ("lin", 0.01, 100),
        "gamma": ("lin", 1e-4, 100),
        "weight_reg_weight": ("lin", 0, 1),
        "margin": ("lin", 0, 1),
    },
}
PUBLISHED = list(CUB)
#: What was searched elsewhere in other bounds; None: not searched there.
ELSEWHERE: dict[str, dict[str, dict[str, tuple[str, float, float] | None]]] = {
    "cars196": {
        "nt_xent": {"temperature": ("log", 1e-5, 1e2)},
        "multi_similarity": {"alpha": ("lin", 0.01, 100)},
        "soft_triple": {"gamma": ("lin", 0.01, 100)},
    },
    "sop": {
        "nt_xent": {"temperature": ("log", 1e-5, 1e2)},
        "arcface": {"scale": ("lin", 0.01, 300)},
        "multi_similarity": {"alpha": ("lin", 0.01, 100)},
        "multi_similarity_miner": {"beta": ("lin", 0.01, 200)},
        "soft_triple": {
            "la": ("lin", 0.01, 200),
            "gamma": ("lin", 0.01, 100),
            "weight_reg_weight": None,
        },
    },
    "batch256": {
        "nt_xent": {"temperature": ("log", 1e-2, 1e2)},
        "cosface": {"scale": ("lin", 0.01, 100)},
        "arcface": {"scale": ("lin", 0.01, 100)},
        "fast_ap": {"num_bins": ("int", 2, 250)},
        "multi_similarity": {"alpha": ("lin", 0.01, 100)},
        "multi_similarity_miner": {"alpha": ("lin", 1e-5, 100)},
        "soft_triple": {"gamma": ("lin", 1e-5, 100)},
    },
}


def middle_settings(file: str, protocol: str = "mlrc") -> FilledMethod:
    method, rules = named_method(file), named_protocol(protocol)
    params = middle_params(method, rules)
    if file.startswith("margin"):
        # At margin = beta every pair violates its bound, and the pulls on beta cancel exactly.
        params["arguments.margin"] = 0.1
    return fill_method(method, rules, params)


def module_of(settings: FilledMethod, num_classes: int = 32) -> TrainingModule:
    training = named_protocol("mlrc").training
    task = FoldTask(settings, MODEL, training, 64, network_seed=1, loss_seed=2)
    return TrainingModule(task, num_classes, (16, 16, 1), torch.device("cpu"))


def batch(samples_per_class: int, size: int = 32) -> tuple[Tensor, Tensor]:
    images = torch.randn(size, 1, 16, 16, generator=torch.Generator().manual_seed(3))
    return images, torch.arange(size // samples_per_class).repeat_interleave(samples_per_class)


@pytest.mark.parametrize("file", FILES)
def test_every_method_trains_a_network_in_all_its_phases(file: str) -> None:
    settings = middle_settings(file)
    module = module_of(settings)
    module.train()
    images, labels = batch(settings.samples_per_class)
    parts = {"network": module.network, "loss": module.loss}
    for second in (None, settings.second_phase):
        module.enter_second_phase(second)
        before = {
            f"{part}.{name}": parameter.detach().clone()
            for part, owner in parts.items()
            for name, parameter in owner.named_parameters()
        }
        assert torch.isfinite(module.step(images, labels))
        for part, owner in parts.items():
            for name, parameter in owner.named_parameters():
                assert torch.isfinite(parameter).all(), f"{part}.{name}"
                assert not torch.equal(parameter, before[f"{part}.{name}"]), f"{part}.{name}"


def searched(file: str) -> dict[str, tuple[str, float, float]]:
    """What is searched in the first phase, by the last part of its name."""
    found = {}
    for path, value in search_space(named_method(file), named_protocol("mlrc")).items():
        assert isinstance(value, Range)
        scale = "int" if value.integer else "log" if value.log else "lin"
        key = "lr" if path == "learning_rates.loss" else path.rpartition(".")[2]
        found[key] = (scale, value.low, value.high)
    return found


@pytest.mark.parametrize("name", PUBLISHED)
def test_on_cub_the_search_has_the_published_bounds(name: str) -> None:
    assert searched(name) == CUB[name]


@pytest.mark.parametrize(
    ("folder", "name"), [(folder, name) for folder in ELSEWHERE for name in PUBLISHED]
)
def test_elsewhere_the_search_has_the_bounds_that_were_published_for_it(
    folder: str, name: str
) -> None:
    file = f"{folder}/{name}" if f"{folder}/{name}" in FILES else name
    expected = CUB[name] | ELSEWHERE[folder].get(name, {})  # type: ignore[operator]
    assert searched(file) == {key: bounds for key, bounds in expected.items() if bounds}


def test_losses_of_classes_take_one_image_a_class_and_the_others_four() -> None:
    for name in (*PUBLISHED, *FURTHER):
        assert named_method(name).samples_per_class == (4 if name in OF_IMAGES else 1), name


@pytest.mark.parametrize("file", FILES)
def test_batches_fit_the_classes_they_were_published_for(file: str) -> None:
    """A batch of 256 takes four of each of 64 classes: a fold of CUB has 75 to train on."""
    folder = file.rpartition("/")[0]
    size = 256 if folder == "batch256" else 32
    assert size // named_method(file).samples_per_class <= 75


def test_the_boundaries_of_the_margin_losses_do_not_decay() -> None:
    for name in (*PUBLISHED, *FURTHER):
        expected = 0 if name.startswith("margin") else 1e-4
        assert middle_settings(name).loss_weight_decay == expected, name


def test_one_margin_loss_has_one_boundary_and_the_other_one_a_class() -> None:
    assert build_loss(middle_settings("margin"), 7, 5).beta.shape == (1,)
    assert build_loss(middle_settings("margin_per_class"), 7, 5).beta.shape == (7,)


def test_soft_triple_has_its_regulariser_except_on_sop() -> None:
    for file, centers, regularised in [
        ("soft_triple", 10, True),
        ("sop/soft_triple", 2, False),
        ("appendix_d/soft_triple", 10, True),
    ]:
        loss = build_loss(middle_settings(file), 3, 5)
        assert loss.fc.shape == (5, 3 * centers)
        assert (loss.weight_regularizer is not None) == regularised


@pytest.mark.parametrize("file", [file for file in FILES if file.startswith("appendix_d")])
def test_each_value_of_a_second_phase_changes_the_loss(file: str) -> None:
    settings = middle_settings(file)
    second = settings.second_phase
    assert second is not None
    torch.manual_seed(0)
    embeddings, labels = torch.randn(32, 8), torch.arange(8).repeat_interleave(4)
    for name in second.factors:
        torch.manual_seed(1)
        loss = build_loss(settings, 8, 8)
        before = loss(embeddings, labels)
        enter_second_phase(loss, FilledSecondPhase({}, {name: 0.75}, 1, 1))
        after = loss(embeddings, labels)
        assert torch.isfinite(after)
        assert not torch.equal(after, before), name


@pytest.mark.parametrize("file", [file for file in FILES if file.startswith("appendix_d")])
def test_appendix_d_searches_a_lower_learning_rate_for_all_and_one_for_the_classes(
    file: str,
) -> None:
    space = search_space(named_method(file), named_protocol("appendix_d"))
    assert space["phase2.lr_factor"] == Range(low=0.01, high=1, log=True)
    has_own = "learning_rates.loss" in space
    assert ("phase2.loss_lr_factor" in space) == has_own


#: The full ranges of the warped softmax start above the distances of a network from scratch.
NARROWER = [f for f in FILES if f.startswith("quick/") and f != "quick/warped_softmax"]


@pytest.mark.parametrize("file", NARROWER)
def test_quick_methods_search_within_the_full_ranges(file: str) -> None:
    name = file.removeprefix("quick/")
    quick = search_space(named_method(file), named_protocol("quick"))
    full = search_space(named_method(name), named_protocol("mlrc"))
    for path, value in quick.items():
        if path in ("learning_rates.trunk", "learning_rates.loss"):
            continue
        assert isinstance(value, Range)
        whole = full[path]
        assert isinstance(whole, Range)
        assert whole.low <= value.low < value.high <= whole.high, path


@pytest.mark.parametrize("data", ["cub200", "cars196", "sop"])
def test_the_ranges_of_the_warped_softmax_hold_the_authors_values(data: str) -> None:
    experiment = shipped(f"papers/004_warped_softmax/table1_{data}")
    theirs = next(m for m in experiment.methods if m.name.startswith("warped_softmax"))
    protocol = named_protocol("mlrc")
    space = search_space(named_method("warped_softmax"), protocol)
    settings = fill_method(theirs, protocol, {})
    first, second = settings.arguments, settings.second_phase
    assert second is not None
    values = {f"arguments.{name}": value for name, value in first.items()}
    values |= {f"phase2.arguments.{name}": second.arguments[name] for name in ("k1", "k2", "scale")}
    values["phase2.factors.alpha"] = second.arguments["alpha"] / first["alpha"]
    values["phase2.lr_factor"] = second.lr_factor
    values["phase2.loss_lr_factor"] = second.loss_lr_factor
    assert values.keys() == space.keys() - {"learning_rates.loss"}
    for name, value in values.items():
        own = space[name]
        assert isinstance(own, Range)
        assert own.low <= value <= own.high, name
