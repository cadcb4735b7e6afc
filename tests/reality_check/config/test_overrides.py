"""Values of ``key.path=value``: literal where they are text, YAML where they are not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.refusals import refused

from reality_check.config import compose
from reality_check.config.overrides import parse_override

VALID: dict[str, Any] = {
    "name": "mine",
    "dataset": {"name": "mine", "reader": "image_folder", "path": "."},
    "model": "conv4",
    "protocol": "quick_one_search",
    "methods": ["contrastive"],
}
TEXTS = ("dataset.path", "methods.contrastive.note", "protocol.note", "model.weights")
WORDS = ("../data/a #1", "%x", "@x", "~", "a: b", "- a", "123", "010", "true", "2020-01-01", "[a]")


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(TEXTS),
    st.sampled_from(WORDS) | st.text(st.characters(exclude_categories=["Cs"])),
)
def test_text_is_kept_literally(key: str, text: str) -> None:
    if not text.strip() or text.strip()[:1] in ("'", '"'):
        text = f"x{text}"
    assert parse_override(f"{key}={text}")[1] == text.strip()


def test_text_reaches_the_experiment() -> None:
    found = compose(VALID, ["dataset.path=../a #1", "name=123", "methods.contrastive.note=yes"])
    assert found.dataset.path == "../a #1"  # type: ignore[union-attr]
    assert (found.name, found.methods[0].note) == ("123", "yes")
    assert compose(VALID, ["storage=sqlite:///a.db", "storage=null"]).storage is None


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("dataset.path='~ x'", "~ x"),
        ("dataset.path=", None),
        ("dataset=2020", "2020"),
        ("dataset={base: glyphs, classes: 9}", {"base": "glyphs", "classes": 9}),
        ("seed=-.5e1", -5.0),
        ("seed=7", 7),
        ("methods.m.arguments.mode='010'", "010"),
        ("methods.m.arguments.mode=a: b #c", "a: b #c"),
        ("methods.m.arguments.p=[1, .inf]", [1, float("inf")]),
        ("methods.m.phase2=null", None),
    ],
)
def test_other_values_are_yaml(text: str, value: Any) -> None:
    found = parse_override(text)[1]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    ("override", "words"),
    [
        ("seed=true", ["seed must be a valid integer", "'True'"]),
        ("seed=12:30:00", ["seed must be a valid integer", "'12:30:00'"]),
        ("seed=0x10", ["seed must be a valid integer", "'0x10'"]),
        ("protocol.training.augmentation.scale=[true, 2]", ["augmentation.scale", "'True'"]),
        ("dataset.channels=true", ["dataset.channels must be one of 1", "'True'"]),
        ("methods.contrastive.learning_rates.trunk=on", ["learning_rates.trunk", "'on'"]),
        ("methods.contrastive.arguments.x=010", ["x: 010 has several meanings", "in quotes"]),
        ("methods.contrastive.arguments.x={a: no}", ["x: a: no has several meanings"]),
        ("methods.contrastive.arguments.x={1: 2}", ["x: the key 1 is no text"]),
        ("methods.contrastive.warm_start.values={x: no}", ["x: no has several meanings"]),
        ("model.arguments={width: .nan}", ["width: nan is not kept"]),
        ("methods.contrastive.loss_weight_decay=.inf", ["loss_weight_decay", "finite"]),
        ("methods=[{loss: L, name: 5}]", ["name must be a valid string, got 5; put it in quotes"]),
    ],
)
def test_what_has_several_meanings_or_none_is_one_sentence(override: str, words: list[str]) -> None:
    with refused(*words):
        compose(VALID, [override])


def test_words_of_yaml_1_1_are_read_as_their_key_means_them() -> None:
    overrides = [
        "seed=010",
        "protocol.search.trials=1_0",
        "protocol.training.tf32=off",
        "model.remove_last_bn_relu=no",
        "methods.contrastive.model={remove_last_bn_relu: no}",
        "protocol.split.test_classes=[010, no, 2020-01-01]",
    ]
    found = compose(VALID, overrides)
    assert (found.seed, found.protocol.search.trials) == (10, 10)
    assert found.protocol.training.tf32 is False
    assert found.model.remove_last_bn_relu == "no"
    assert found.methods[0].model == {"remove_last_bn_relu": "no"}
    assert found.protocol.split.test_classes == ["010", "no", "2020-01-01"]
    as_before = compose(VALID, ["methods.contrastive.model={remove_last_bn_relu: false}"])
    assert as_before.methods[0].model == found.methods[0].model
