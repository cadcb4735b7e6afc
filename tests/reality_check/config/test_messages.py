"""Every kind of mistake in a configuration is one sentence that names the key."""

from __future__ import annotations

from typing import Any

import pytest

from reality_check.config import compose
from reality_check.config.messages import validate
from reality_check.config.training import Augment
from reality_check.utils.errors import UsageError

VALID: dict[str, Any] = {
    "name": "mine",
    "dataset": "glyphs",
    "model": "conv4",
    "protocol": "quick_one_search",
    "methods": ["contrastive"],
}


def method(**keys: Any) -> dict[str, Any]:
    return {"methods": [{"name": "m", "loss": "ContrastiveLoss", **keys}]}


def training(**keys: Any) -> dict[str, Any]:
    return {"protocol": {"base": "quick_one_search", "training": keys}}


def trunk(**keys: Any) -> dict[str, Any]:
    return training(optimizers={"trunk": keys})


#: What is changed, and what the sentence must hold: the key, and the nearest valid name.
MISTAKES: list[tuple[dict[str, Any], list[str]]] = [
    # unknown keys at each level
    ({"datset": 1}, ["'datset'", "Did you mean 'dataset'?"]),
    ({"dataset": {"base": "glyphs", "clases": 9}}, ["'dataset.clases'", "mean 'classes'?"]),
    (
        {"dataset": {"name": "a", "reader": "tensors", "path": "p", "wher": "s"}},
        ["'dataset.wher'", "mean 'where'?"],
    ),
    (
        {"dataset": {"base": "cub200", "chek_counts": False}},
        ["'dataset.chek_counts'", "mean 'check_counts'?"],
    ),
    ({"model": {"base": "conv4", "poling": "max"}}, ["'model.poling'", "mean 'pooling'?"]),
    (
        {"protocol": {"base": "quick_one_search", "serch": {}}},
        ["'protocol.serch'", "mean 'search'?"],
    ),
    (training(patiance=3), ["'protocol.training.patiance'", "mean 'patience'?"]),
    (
        trunk(weightdecay=1),
        ["'protocol.training.optimizers.trunk.weightdecay'", "mean 'weight_decay'?"],
    ),
    (
        training(augmentation={"rotaton": 3}),
        ["'protocol.training.augmentation.rotaton'", "mean 'rotation'?"],
    ),
    (method(argument={}), ["'methods.m.argument'", "mean 'arguments'?"]),
    (method(learning_rates={"los": 1}), ["'methods.m.learning_rates.los'", "mean 'loss'?"]),
    (method(phase2={"argument": {}}), ["'methods.m.phase2.argument'", "mean 'arguments'?"]),
    (method(arguments={"a": {"low": 0, "hihg": 1}}), ["methods.m.arguments", "a:", "'hihg'"]),
    # unknown names
    ({"dataset": "glyph"}, ["dataset", "'glyph'", "mean 'glyphs'?"]),
    ({"model": "conv5"}, ["model", "'conv5'", "mean 'conv4'?"]),
    ({"protocol": "mlrcc"}, ["protocol", "'mlrcc'", "mean 'mlrc'?"]),
    ({"methods": ["contrastve"]}, ["method", "'contrastve'", "mean 'contrastive'?"]),
    ({"methods": [{"base": "contrastve"}]}, ["method", "'contrastve'", "mean 'contrastive'?"]),
    ({"methods": ["no.yaml"]}, ["method", "no file 'no.yaml'"]),
    ({"dataset": {"name": "a", "reader": "glyfs"}}, ["dataset.reader", "mean 'glyphs'?"]),
    ({"model": {"base": "conv4", "pooling": "avg"}}, ["model.pooling", "mean 'average'?"]),
    (trunk(name="RMSProp"), ["optimizers.trunk.name", "mean 'RMSprop'?"]),
    (
        {"protocol": {"base": "quick_one_search", "categories": ["agregate"]}},
        ["protocol.categories", "mean 'aggregate'?"],
    ),
    (
        {"protocol": {"base": "quick_one_search", "reference": "mlrcc"}},
        ["protocol.reference", "mean 'mlrc'?"],
    ),
    # wrong types and ranges
    ({"dataset": ["glyphs"]}, ["dataset must be a name or a mapping"]),
    ({"dataset": {"base": 3}}, ["dataset.base must be a name"]),
    ({"dataset": {"base": "glyphs", "classes": 3}}, ["dataset.classes", "3"]),
    ({"dataset": {"base": "glyphs", "classes": "many"}}, ["dataset.classes", "'many'"]),
    ({"dataset": {"name": "a"}}, ["dataset needs the key 'reader'", "cub200"]),
    ({"dataset": {"name": "a", "reader": "tensors"}}, ["'dataset.path' is missing"]),
    (training(patience=-1), ["protocol.training.patience", "-1"]),
    (training(batch_size=3.5), ["protocol.training.batch_size", "3.5"]),
    (training(max_epochs=0), ["protocol.training.max_epochs", "0"]),
    (
        {"protocol": {"base": "quick_one_search", "selects_by": "recall"}},
        ["protocol.selects_by", "recall_at_K"],
    ),
    (trunk(lr=-1), ["protocol.training.optimizers.trunk.lr", "at least 0", "-1"]),
    (trunk(lr=float("nan")), ["protocol.training.optimizers.trunk.lr", "finite"]),
    (trunk(lr=None), ["protocol.training.optimizers.trunk.lr", "needed"]),
    (trunk(lr="fast"), ["protocol.training.optimizers.trunk.lr", "'fast'"]),
    (trunk(lr={"choices": [-1, 2]}), ["protocol.training.optimizers.trunk.lr", "-1"]),
    (method(learning_rates={"loss": {"low": -1, "high": 2}}), ["m.learning_rates.loss", "-1"]),
    (method(learning_rates={"loss": {"low": 1, "high": 0}}), ["m.learning_rates.loss", "low"]),
    (method(phase2={"lr_factor": -0.1}), ["methods.m.phase2.lr_factor", "at least 0"]),
    (method(phase2={"lr_factor": None}), ["methods.m.phase2", "lr_factor"]),
    (
        method(phase2={"arguments": {"a": 1}, "factors": {"a": 1}}),
        ["methods.m.phase2", "'a'", "both"],
    ),
    (method(miner={"epsilon": 1}), ["methods.m.miner", "'class'"]),
    (method(samples_per_class=5), ["'m'", "samples_per_class=5", "batch_size=32"]),
    (
        {"protocol": {"base": "quick_one_search", "split": {"folds": 1}}},
        ["protocol.split.folds", "1"],
    ),
    (
        {"protocol": {"base": "quick_one_search", "categories": ["complete", "complete"]}},
        ["protocol.categories", "once"],
    ),
    (
        {"protocol": {"base": "quick_one_search", "categories": []}},
        ["protocol.categories", "at least 1"],
    ),
    ({"seed": -1}, ["seed", "-1"]),
    ({"seed": "a"}, ["seed", "'a'"]),
    ({"seed": 1.5}, ["seed", "1.5"]),
    ({"device": "gpu"}, ["device", "cuda", "'gpu'"]),
    ({"name": "a b"}, ["name", "letters", "'a b'"]),
    ({"name": None}, ["'name' is missing"]),
    # methods
    ({"methods": []}, ["methods must be a list"]),
    ({"methods": None}, ["'methods' is missing"]),
    ({"methods": "contrastive"}, ["methods must be a list"]),
    ({"methods": [3]}, ["method must be a name or a mapping", "3"]),
    ({"methods": [{"name": "a"}]}, ["needs a loss"]),
    ({"methods": ["contrastive", "contrastive"]}, ["'contrastive'", "another name"]),
    (
        {"methods": ["contrastive", {"base": "contrastive", "name": "Contrastive"}]},
        ["'contrastive'", "another name"],
    ),
    ({"methods": [{"name": "a/b", "loss": "ContrastiveLoss"}]}, ["a/b", "letters"]),
    # ranges
    (
        method(arguments={"d": {"class": "LpDistance", "p": {"low": 3, "high": 1}}}),
        ["methods.m.arguments", "d: p:", "low < high"],
    ),
    (method(miner={"class": "M", "e": {"low": 3, "high": 1}}), ["methods.m.miner", "e:"]),
]


@pytest.mark.parametrize(("change", "parts"), MISTAKES)
def test_a_mistake_is_one_sentence_that_names_the_key(
    change: dict[str, Any], parts: list[str]
) -> None:
    with pytest.raises(UsageError) as caught:
        compose({**VALID, **change})
    message = str(caught.value)
    assert "\n" not in message
    assert "pydantic" not in message
    assert len(message) < 500
    for part in parts:
        assert part in message


def test_the_experiment_without_the_mistakes_is_valid() -> None:
    assert compose(VALID).name == "mine"


def test_all_mistakes_are_told_at_once_one_a_line() -> None:
    change = training(patience=-1, batch_sise=2)
    with pytest.raises(UsageError) as caught:
        compose({**VALID, **change, "seed": -1})
    lines = str(caught.value).splitlines()
    assert len(lines) == 3
    assert [
        sum(word in line for line in lines)
        for word in ("patience must", "batch_sise'", "seed must")
    ] == [1, 1, 1]


def test_keys_are_those_of_the_class_that_is_checked() -> None:
    with pytest.raises(UsageError, match=r"'rotaton'; valid keys here: .*Did you mean 'rotation'"):
        validate(Augment, {"rotaton": 3}, "augmentation")
