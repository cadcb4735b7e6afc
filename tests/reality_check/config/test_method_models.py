"""Methods that change the experiment's model for themselves."""

from __future__ import annotations

from typing import Any

import pytest
from support.refusals import refused

from reality_check.config import compose, load_experiment
from reality_check.config.named import named_model
from reality_check.config.yaml_text import dump_yaml, parse_yaml
from reality_check.report.deviations import find_deviations

RAW: dict[str, Any] = {
    "name": "mine",
    "dataset": "glyphs",
    "model": {"base": "conv4", "arguments": {"width": 4}},
    "protocol": "quick_one_search",
    "methods": [
        {"base": "contrastive"},
        {"base": "contrastive", "name": "necked", "model": {"neck": "batch_norm"}},
    ],
}


def test_a_method_changes_the_model_for_itself_alone() -> None:
    experiment = compose(RAW)
    plain, necked = map(experiment.model_of, experiment.methods)
    assert plain == experiment.model
    assert (plain.neck, necked.neck) == ("none", "batch_norm")
    assert necked.arguments == {"width": 4}
    assert compose(parse_yaml(dump_yaml(experiment.plain()))) == experiment


def test_the_command_line_reaches_it() -> None:
    override = "methods.contrastive.model.remove_last_bn_relu=paper"
    experiment = compose(RAW, [override])
    assert experiment.model_of(experiment.method("contrastive")).remove_last_bn_relu == "paper"
    assert load_experiment("quickstart").methods[0].model == {}


@pytest.mark.parametrize("own", ["resnet18", {"base": "resnet18"}])
def test_a_named_model_is_that_model_whatever_the_experiments_is(own: Any) -> None:
    method = {**RAW["methods"][1], "model": own}
    experiment = compose({**RAW, "model": "resnet50_sgsl", "methods": [method]})
    found = experiment.model_of(experiment.methods[0])
    assert found.model_copy(update={"name": "resnet18"}) == named_model("resnet18")
    assert compose(parse_yaml(dump_yaml(experiment.plain()))) == experiment
    small = {**method, "model": "conv4"}
    experiment = compose({**RAW, "model": "resnet18", "methods": [small]})
    found = experiment.model_of(experiment.methods[0])
    assert found.model_copy(update={"name": "conv4"}) == named_model("conv4")


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"neckk": "batch_norm"}, ["methods.necked.model", "'neckk'", "mean 'neck'", "pooling"]),
        ({"name": "other"}, ["'name'"]),
        (
            {"neck": "layer_norm"},
            ["method 'necked': model.neck", "'none', 'batch_norm' or 'heated_up_softmax'"],
        ),
        ({"embedder": {"bais": 1}}, ["method 'necked': model.embedder.bais"]),
        ({"head": "sgsl_paper", "pooling": "max"}, ["method 'necked'", "has its own pooling"]),
    ],
)
def test_wrong_changes_are_told_with_the_method(changes: dict[str, Any], parts: list[str]) -> None:
    methods = [RAW["methods"][0], {**RAW["methods"][1], "model": changes}]
    with refused(*parts):
        compose({**RAW, "methods": methods})


def test_other_networks_are_a_serious_deviation() -> None:
    (found,) = [d for d in find_deviations(compose(RAW), [], True) if d.topic == "models"]
    assert found.serious
    assert "necked has neck batch_norm" in found.text
    same = compose({**RAW, "methods": ["contrastive", "multi_similarity"]})
    assert "models" not in {d.topic for d in find_deviations(same, [], True)}
    own = {"neck": "batch_norm"}
    all_own = [{"base": name, "model": own} for name in ("contrastive", "multi_similarity")]
    same = compose({**RAW, "methods": all_own})
    assert "models" not in {d.topic for d in find_deviations(same, [], True)}
