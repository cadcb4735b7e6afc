from __future__ import annotations

import inspect
import math
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any

import pytest
import torch
from support.experiments import EXPERIMENTS, shipped

from reality_check.config import compose
from reality_check.config.classes import build
from reality_check.config.method import Method
from reality_check.config.metrics import Stage
from reality_check.config.schema import Experiment
from reality_check.config.values import Choices, Range
from reality_check.data import ImageSet
from reality_check.training.preflight import changes, check_data, check_loss, check_model
from reality_check.utils.config_files import paper_files
from reality_check.utils.errors import UsageError

RAW: dict[str, Any] = {
    "name": "x",
    "dataset": "glyphs",
    "model": "conv4",
    "protocol": "quick_one_search",
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


class Pooled(torch.nn.Module):
    """A trunk of a user's own without parameters."""

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.mean((2, 3))


def refused_for(words: str | None) -> AbstractContextManager[Any]:
    """What expects an error of these words; None is no error."""
    return nullcontext() if words is None else pytest.raises(UsageError, match=words)


def test_no_rate_of_a_trunk_without_parameters_is_searched(
    make_images: Callable[..., ImageSet], monkeypatch: pytest.MonkeyPatch
) -> None:
    module = ModuleType("my_trunks")
    module.Pooled = Pooled  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my_trunks", module)
    experiment = compose({**RAW, "model": {"name": "pooled", "trunk": "my_trunks.Pooled"}})
    with pytest.raises(UsageError, match=r"Pooled has no parameters; write .*trunk\.lr: 0"):
        check_model(experiment, make_images(16))
    check_model(
        compose(experiment.plain(), ["protocol.training.optimizers.trunk.lr=0"]), make_images(16)
    )


@pytest.mark.parametrize(
    ("loss", "model", "words"),
    [
        ({}, {}, "write model: {neck: heated_up_softmax}"),
        ({}, {"head": "heated_up_softmax"}, "write model: {neck: heated_up_softmax}"),
        ({}, {"head": "sgsl_official"}, "write model: {neck: heated_up_softmax}"),  # has a scale
        ({}, {"neck": "heated_up_softmax"}, None),
        ({}, {"neck": "batch_norm"}, None),
        ({}, {"head": "heated_up_softmax_bn"}, None),
        ({"bn_shift": True}, {"neck": "heated_up_softmax"}, "head: heated_up_softmax_bn_official"),
        ({"normalization": "l2"}, {}, None),
    ],
)
def test_what_a_loss_batch_normalises_must_be_what_is_retrieved_with(
    make_images: Callable[..., ImageSet],
    loss: dict[str, Any],
    model: dict[str, Any],
    words: str | None,
) -> None:
    arguments = {"normalization": "bn", **loss}
    method = {"name": "hbn", "base": "quick/heated_up_softmax", "arguments": arguments}
    experiment = compose({**RAW, "methods": [{**method, "model": model}]})
    with refused_for(words and rf"method 'hbn': .*{words}"):
        check_model(experiment, make_images(16))


@pytest.mark.parametrize(
    ("method", "words"),
    [
        ({"base": "quick/heated_up_softmax"}, None),
        ({"base": "contrastive"}, "needs a loss with set_proxies_to_class_means"),
    ],
)
def test_only_a_loss_that_can_starts_its_proxies_at_class_means(
    make_images: Callable[..., ImageSet], method: dict[str, Any], words: str | None
) -> None:
    wanted = {"proxies": "class_means"}
    experiment = compose({**RAW, "methods": [{**method, "name": "m", "before_training": wanted}]})
    with refused_for(words and rf"method 'm': before_training.proxies: .*{words}"):
        check_model(experiment, make_images(16))


@pytest.mark.parametrize(
    ("change", "fits"),
    [
        ({}, False),
        ({"model": {"neck": "batch_norm"}}, True),
        ({"training": {"freeze_batchnorm": False}}, True),
    ],
)
def test_a_pass_for_statistics_needs_a_batchnorm_that_takes_them(
    make_images: Callable[..., ImageSet], change: dict[str, Any], fits: bool
) -> None:
    method = {"name": "m", "base": "contrastive", "before_training": {"batch_statistics": True}}
    frozen = ["protocol.training.freeze_batchnorm=true"]
    experiment = compose({**RAW, "methods": [{**method, **change}]}, frozen)
    with refused_for(None if fits else "batch_statistics: there is no BatchNorm"):
        check_model(experiment, make_images(16))


def test_a_schedule_is_of_a_value_that_the_loss_has() -> None:
    for name, words in (("alhpa", "no numeric value 'alhpa'"), ("alpha", None)):
        schedules = {name: {"kind": "linear", "factor": 0.25}}
        method = {"name": "m", "base": "quick/heated_up_softmax", "schedules": schedules}
        experiment = compose({**RAW, "methods": [{**method, "phase2": None}]})
        if words is None:
            assert check_loss(experiment, experiment.methods[0]).problem is None
            continue
        with pytest.raises(UsageError, match=words):
            check_loss(experiment, experiment.methods[0])


def test_a_batch_must_fit_the_classes_of_a_fold(make_images: Callable[..., ImageSet]) -> None:
    # 24 classes: 12 trainval, 3 validate in each fold, 9 train; a batch of 32 has 8 classes of 4.
    check_data(compose(RAW), make_images(24, 2))
    # 20 classes leave 8 to train on, 18 leave 7.
    check_data(compose(RAW), make_images(20, 2))
    with pytest.raises(UsageError, match=r"'contrastive'.*8 classes.*there are 7"):
        check_data(compose(RAW), make_images(18, 2))


#: Keys of a method that its loss does not depend on.
_BESIDE = ("name", "learning_rates", "loss_weight_decay", "control_of", "control_draws", "note")


def test_no_loss_of_a_shipped_experiment_is_turned_away() -> None:
    """Each at its smallest batch: what needs many pairs finds the fewest there."""
    tried: dict[str, tuple[float, Experiment, Method]] = {}
    for experiment in map(shipped, (*EXPERIMENTS, *paper_files())):
        protocol = experiment.protocol
        for method in experiment.methods:
            training, own = experiment.training_of(method), method.plain()
            kept = {key: own[key] for key in own if key not in _BESIDE}
            wide = protocol.split.folds if Stage.FINAL in protocol.stages else 1
            what = f"{kept} {training.embedding_size} {wide}"
            new = min(training.batch_sizes), experiment, method
            tried[what] = min(tried.get(what, new), new, key=lambda each: each[0])
    for _, experiment, method in tried.values():
        assert check_loss(experiment, method).problem is None, (experiment.name, method.name)


@pytest.mark.parametrize(
    ("images", "change"),
    [(2, "protocol.training.batch_size=2"), (32, "methods.0.samples_per_class=32")],
    ids=["random", "balanced"],
)
def test_proxies_learn_from_batches_of_one_class_and_triplets_do_not(
    images: int, change: str
) -> None:
    def check(loss: str) -> str | None:
        method = {"base": loss, "samples_per_class": None}
        experiment = compose(RAW | {"methods": [method]}, [change])
        return check_loss(experiment, experiment.methods[0]).problem

    assert check("normalized_softmax") is None
    assert f"is 0 on a random batch with samples_per_class={images}" in str(check("triplet_margin"))


class Odd(torch.nn.Module):
    """A loss of a user's own that does in its forward pass, or where it is built, as told."""

    def __init__(self, n: int = 2, dim: int = 8, do: str = "nothing", **kwargs: Any) -> None:
        super().__init__()
        self.proxies, self.do = torch.nn.Parameter(torch.randn(n, dim)), do
        if do == "refuse":
            raise ValueError("no such thing")

    def forward(self, x: torch.Tensor, labels: torch.Tensor) -> Any:
        value = torch.nn.functional.cross_entropy(x @ self.proxies.t(), labels)
        if self.do == "exit":
            sys.exit("enough")
        elif self.do == "recurse":
            return self(x, labels)
        elif self.do == "odd":
            raise OddError
        return {
            "complex": value * 1j,
            "nan": value * math.nan,
            "dict": {"loss": value},
            "whole": value.long(),
        }.get(self.do, value)


class OddError(BaseException):
    def __str__(self) -> str:
        raise RuntimeError("not to be read")


SIZES = {"n": "$num_classes", "dim": "$embedding_size"}


def check_odd(monkeypatch: pytest.MonkeyPatch, **arguments: Any) -> None:
    module = ModuleType("my_losses")
    module.Odd = Odd  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "my_losses", module)
    method = {"name": "mine", "loss": "my_losses.Odd", "arguments": SIZES | arguments}
    experiment = compose(RAW | {"methods": [method]})
    assert check_loss(experiment, experiment.methods[0], 12).parameters["proxies"][0] == 12


@pytest.mark.parametrize(
    ("arguments", "words", "place"),
    [
        ({"do": "refuse"}, r"could not be built with .*do='refuse'.*ValueError: no such", "raise"),
        ({"do": "exit"}, r"Odd failed on .*sys\.exit\('enough'\)", "sys.exit"),
        ({"do": "recurse"}, "RecursionError", ""),
        ({"do": "odd"}, "OddError: <OddError>", "raise OddError"),
        ({"do": "complex"}, "complex", ""),
        ({"do": "dict"}, "one number as a tensor, got dict", ""),
        ({"do": "whole"}, "without a gradient", ""),
        ({"n": 11}, r"of 12 classes: IndexError: Target 11", "cross_entropy"),
        ({"dim": 64}, r"size 256.*RuntimeError", "cross_entropy"),  # of the final network
        ({"n": "$classes"}, r"knows no \$classes, only \$num_classes, \$embedding_size", ""),
        ({"do": {"choices": ["nothing", "exit"]}}, r"with arguments\.do='exit'", "sys.exit"),
        ({"do": {"choices": ["no", "x", "nan"]}}, r"nan.* \(with arguments\.do='nan'", ""),
        ({"n": {"low": 10, "high": 14, "int": True}}, r"with arguments\.n=10", "cross_entropy"),
    ],
)
def test_whatever_a_loss_does_is_one_sentence_with_the_line_that_does_it(
    monkeypatch: pytest.MonkeyPatch, arguments: dict[str, Any], words: str, place: str
) -> None:
    check_odd(monkeypatch)
    with pytest.raises(UsageError, match=rf"^method 'mine': .*{words}") as caught:
        check_odd(monkeypatch, **arguments)
    said = str(caught.value)
    assert "\n" not in said
    if place:
        number = int(said.partition("test_preflight.py:")[2].partition(")")[0])
        assert place in inspect.getsource(sys.modules[__name__]).splitlines()[number - 1]


def test_a_constructor_of_other_names_is_told_those_of_the_harness() -> None:
    def cls(n_classes: int) -> None: ...

    with pytest.raises(UsageError, match=r"n_classes: VALUE .* one of \$num_classes, \$size"):
        build(cls, {}, "loss", {"num_classes": 3, "size": 2})


def test_what_the_harness_knows_goes_into_any_argument() -> None:
    extra, nested = {"num_classes": 3, "size": 2}, {"class": "torch.nn.Softmax", "dim": "$size"}
    given = {"a": "$size", "layer": nested}
    built = build(dict, given | {"num_classes": "$num_classes"}, "loss", extra)
    assert (built["a"], built["layer"].dim, built["num_classes"]) == (2, 2, 3)
    assert build(dict, {"root": "$HOME"}, "data set", {}) == {"root": "$HOME"}


def test_ctrl_c_in_a_loss_stays_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Odd, "forward", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        check_odd(monkeypatch)


def test_every_end_and_choice_is_tried_and_few_pairs_of_choices() -> None:
    space = {
        "a": Range(low=1, high=3, int=True),
        "b": Choices(choices=["x", "y"]),
        "c": Choices(choices=[True, None]),
    }
    tried = changes(space)
    single = [{}, {"a": 1}, {"a": 3}, {"b": "x"}, {"b": "y"}, {"c": True}, {"c": None}]
    pairs = [{"b": b, "c": c} for b in ("x", "y") for c in (True, None)]
    assert tried == [*single, *pairs]
    assert isinstance(tried[1]["a"], int)
    many = {str(i): Choices(choices=list(range(9))) for i in range(2)}
    assert len(changes(many)) == 1 + 2 * 9


@pytest.mark.parametrize("choices", [["l2", "bn"], ["bn", "l2"]])
def test_a_neck_is_missed_at_any_choice(
    make_images: Callable[..., ImageSet], choices: list[str]
) -> None:
    method = {"name": "hbn", "base": "quick/heated_up_softmax"}
    method["arguments"] = {"normalization": {"choices": choices}}  # type: ignore[assignment]
    with pytest.raises(UsageError, match=r"'hbn': .*neck: heated_up_softmax"):
        check_model(compose({**RAW, "methods": [method]}), make_images(16))
    method["model"] = {"neck": "heated_up_softmax"}  # type: ignore[assignment]
    check_model(compose({**RAW, "methods": [method]}), make_images(16))
