"""Bases and variants of experiments, and what one method has of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.refusals import refused

from reality_check.config import Experiment, compose, load_experiment
from reality_check.config.yaml_text import dump_yaml, parse_yaml
from reality_check.utils.errors import UsageError

BASE: dict[str, Any] = {
    "dataset": "glyphs",
    "model": "conv4",
    "protocol": "quick_one_search",
    "methods": ["quick/contrastive", "quick/normalized_softmax"],
}


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    monkeypatch.chdir(folder)


def write(folder: Path, name: str, data: dict[str, Any]) -> Path:
    file = folder / f"{name}.yaml"
    file.write_text(dump_yaml(data))
    return file


def load(folder: Path, upper: dict[str, Any], *overrides: str) -> Experiment:
    write(folder, "lower", BASE)
    return load_experiment(write(folder, "upper", {"base": "lower", **upper}), overrides)


# -- bases -------------------------------------------------------------------------------------


def test_an_experiment_changes_single_keys_of_its_base(tmp_path: Path) -> None:
    changes = {"model": {"arguments": {"width": 4}}, "protocol": {"reproductions": 2}, "seed": 3}
    found = load(tmp_path, changes)
    assert found.name == "upper"
    assert (found.model.trunk, found.model.pooling) == ("conv4", "flatten")
    assert found.model.arguments == {"width": 4}
    assert (found.protocol.name, found.protocol.reproductions) == ("quick_one_search", 2)
    assert [method.name for method in found.methods] == ["contrastive", "normalized_softmax"]


def test_a_model_with_a_base_of_its_own_replaces_that_of_the_base(tmp_path: Path) -> None:
    found = load(tmp_path, {"model": {"base": "conv4_pool", "arguments": {"width": 4}}})
    assert found.model.trunk == "conv4_pool"


def test_methods_are_replaced_as_a_list_and_changed_as_a_mapping(tmp_path: Path) -> None:
    assert len(load(tmp_path, {"methods": ["quick/hist"]}).methods) == 1
    found = load(
        tmp_path,
        {
            "methods": {
                "all": {"samples_per_class": 2},
                "contrastive": {"arguments": {"pos_margin": 0.1}},
            }
        },
    )
    assert [method.samples_per_class for method in found.methods] == [2, 2]
    assert found.methods[0].arguments["pos_margin"] == 0.1
    assert "neg_margin" in found.methods[0].arguments


def test_null_takes_a_change_back(tmp_path: Path) -> None:
    variants = {"v": {"methods": {"all": {"note": "v"}, "hist": {"note": "w"}}}}
    write(tmp_path, "middle", {"base": "lower", "variant": "v", "variants": variants})
    upper = {"base": "middle", "variants": {"v": {"methods": {"all": None, "hist": None}}}}
    assert [method.note for method in load(tmp_path, upper).methods] == ["", ""]


def test_an_optimiser_with_name_and_rate_is_a_whole_one(tmp_path: Path) -> None:
    def parts(**changes: Any) -> dict[str, Any]:
        return {"protocol": {"training": {"optimizers": {"trunk": changes}}}}

    first = parts(name="SGD", lr=0.1, arguments={"momentum": 0.9})
    write(tmp_path, "middle", {"base": "lower", **first})
    slower = load(tmp_path, {"base": "middle", **parts(lr=0.01)}).protocol.training.optimizers.trunk
    assert (slower.lr, slower.arguments) == (0.01, {"momentum": 0.9})
    other = load(tmp_path, {"base": "middle", **parts(name="Adam", lr=0.01)}).protocol.training
    assert other.optimizers.trunk.arguments == {}


def test_a_base_may_have_a_base_and_changes_add_up(tmp_path: Path) -> None:
    middle = {"base": "lower", "methods": {"contrastive": {"samples_per_class": 2, "note": "a"}}}
    write(tmp_path, "middle", middle)
    changes = {"base": "middle", "methods": {"contrastive": {"note": "b"}}}
    found = load(tmp_path, changes).methods[0]
    assert (found.samples_per_class, found.note) == (2, "b")


def test_a_base_can_be_an_experiment_that_ships(tmp_path: Path) -> None:
    file = write(tmp_path, "mine", {"base": "quickstart", "seed": 7})
    assert load_experiment(file).seed == 7
    assert load_experiment(file).dataset.name == "glyphs"


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"base": "upper"}, ["'upper' is its own base"]),
        ({"base": "lowr"}, ["'lowr'"]),
        ({"base": 3}, ["base must name an experiment, got 3"]),
        ({"methods": {"contrasive": {}}}, ["'contrasive'", "mean 'contrastive'?"]),
    ],
)
def test_wrong_bases_and_changes_are_told(
    tmp_path: Path, changes: dict[str, Any], words: list[str]
) -> None:
    with refused(*words):
        load(tmp_path, changes)


# -- variants ----------------------------------------------------------------------------------

VARIED = {
    "name": "varied",
    **BASE,
    "variant": "official",
    "variants": {
        "paper": {"model": {"arguments": {"width": 8}}, "methods": {"all": {"note": "paper"}}},
        "official": {},
    },
}


def test_the_variant_that_is_named_lies_on_top() -> None:
    official, paper = compose(VARIED), compose(VARIED, ["variant=paper"])
    assert (official.variant, official.model.arguments) == ("official", {"width": 32})
    assert (paper.variant, paper.model.arguments) == ("paper", {"width": 8})
    assert [method.note for method in paper.methods] == ["paper", "paper"]


def test_overrides_win_over_the_variant() -> None:
    found = compose(VARIED, ["variant=paper", "model.arguments.width=2"])
    assert found.model.arguments == {"width": 2}


def test_a_variant_that_does_not_exist_is_told() -> None:
    with pytest.raises(UsageError, match=r"one of paper, official.*mean 'paper'"):
        compose(VARIED, ["variant=papr"])
    with pytest.raises(UsageError, match="variants must map"):
        compose({**VARIED, "variants": ["paper"]})


def test_a_locked_experiment_keeps_the_name_of_its_variant() -> None:
    paper = compose(VARIED, ["variant=paper"])
    assert compose(parse_yaml(dump_yaml(paper.plain()))) == paper


# -- what a method has of its own --------------------------------------------------------------


def own(**changes: Any) -> Experiment:
    method = {"base": "quick/contrastive", **changes}
    return compose({"name": "own", **BASE, "methods": [method, "quick/hist"]})


def test_a_methods_model_changes_single_keys_or_starts_from_a_named_one() -> None:
    found = own(model={"arguments": {"width": 4}})
    assert found.model_of(found.methods[0]).arguments == {"width": 4}
    assert found.model_of(found.methods[0]).pooling == "flatten"
    assert found.model_of(found.methods[1]) == found.model
    for model in ("conv4_pool", {"base": "conv4_pool"}):
        named = own(model=model)
        assert named.model_of(named.methods[0]).trunk == "conv4_pool"
        assert named.model_of(named.methods[0]).arguments == {"width": 64}
    wider = own(model={"base": "conv4_pool", "arguments": {"width": 8}})
    assert wider.model_of(wider.methods[0]).arguments == {"width": 8}


def test_a_methods_training_changes_single_keys_and_whole_optimisers() -> None:
    trunk = {"name": "Adam", "lr": 0.01}
    found = own(training={"batch_size": 64, "optimizers": {"trunk": trunk, "loss": {"lr": 0.5}}})
    mine, common = found.training_of(found.methods[0]), found.protocol.training
    assert (mine.batch_size, mine.max_epochs) == (64, common.max_epochs)
    assert (mine.optimizers.trunk.name, mine.optimizers.trunk.arguments) == ("Adam", {})
    assert (mine.optimizers.loss.name, mine.optimizers.loss.lr) == (
        common.optimizers.loss.name,
        0.5,
    )
    assert mine.optimizers.embedder == common.optimizers.embedder
    assert found.training_of(found.methods[1]) == common


def test_it_survives_being_written_and_read() -> None:
    training = {
        "optimizers": {"trunk": {"name": "Adam", "lr": 0.01}},
        "schedule": {"kind": "cosine"},
    }
    for model in ({"arguments": {"width": 4}}, "conv4_pool"):
        found = own(model=model, training=training)
        assert compose(parse_yaml(dump_yaml(found.plain()))) == found


def test_its_own_batch_must_fit_its_own_samples() -> None:
    with pytest.raises(UsageError, match="samples_per_class=4 does not divide batch_size=30"):
        own(training={"batch_size": 30}, samples_per_class=4)


def test_overrides_reach_into_a_methods_own_settings() -> None:
    raw = {"name": "own", **BASE}
    found = compose(raw, ["methods.contrastive.training.batch_size=64"])
    assert found.training_of(found.methods[0]).batch_size == 64
    assert found.training_of(found.methods[1]).batch_size == found.protocol.training.batch_size


# -- no search ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["protocol.selects_on=test"], ["categories: [complete]"]),
        (
            ["protocol.selects_on=last", "protocol.categories=[complete]"],
            ["searches arguments.", "selects_on: last", "fixed value"],
        ),
        (["protocol.split.folds=1"], ["rule=mlrc with folds=1"]),
        (["protocol.split.rule=halves"], ["rule=halves with folds="]),
        (["protocol.selects_on=tests"], ["'validation', 'last' or 'test'"]),
    ],
)
def test_protocols_that_cannot_be_are_refused(overrides: list[str], words: list[str]) -> None:
    with refused(*words):
        compose({"name": "wrong", **BASE}, overrides)


def test_figures_of_methods_or_metrics_that_are_not_there_are_refused() -> None:
    def refused(results: dict[str, Any]) -> str:
        published = {"paper": "000_sgsl", "item": "Table 1", "results": results}
        with pytest.raises(UsageError) as caught:
            compose({"name": "wrong", **BASE, "published_results": published})
        return str(caught.value)

    assert "'other', which is not one of the methods" in refused(
        {"complete": {"other": {"r_precision": 1}}}
    )
    assert "no metric 'recal_at_1'" in refused({"complete": {"contrastive": {"recal_at_1": 1}}})
    assert "'whole' is not a category" in refused({"whole": {"contrastive": {"recall_at_1": 1}}})
    assert "[value, spread]" in refused({"complete": {"contrastive": {"recall_at_1": "72 %"}}})
