"""Any experiment, dumped in each way that there is, is read as the same."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from optuna.distributions import (
    CategoricalDistribution,
    distribution_to_json,
    json_to_distribution,
)

from reality_check.config import Experiment, compose
from reality_check.config.values import Choices, find_searched
from reality_check.config.yaml_text import dump_yaml, parse_yaml
from reality_check.registry.pack import not_default
from reality_check.utils.text import strict_json

BASE = compose(
    {
        "name": "any",
        "dataset": {"name": "mine", "reader": "function", "function": "mine.read"},
        "model": "conv4",
        "protocol": "quick_one_search",
        "methods": ["contrastive"],
    }
).plain()

ODD = ("1e5", "010", "yes", "12:30:00", "2020-01-01", "~", ".inf", "a\x85b", "\ufeff", "<<", " #")
scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(st.characters(exclude_categories=["Cs"]))
    | st.sampled_from(ODD)
)
keys = st.text(st.characters(exclude_categories=["Cs"])).map("_{}".format)
plain = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=3),
    max_leaves=4,
)
ranges = st.tuples(
    *2 * [st.floats(allow_nan=False, allow_infinity=False)],
).filter(lambda ends: ends[0] < ends[1])
searched = st.lists(scalars, min_size=2, max_size=4, unique=True).map(
    lambda entries: {"choices": entries}
) | ranges.map(lambda ends: dict(zip(("low", "high"), ends, strict=True)))


@st.composite
def experiments(draw: st.DrawFn) -> Experiment:
    def some(values: st.SearchStrategy[Any] = plain) -> dict[str, Any]:
        return draw(st.dictionaries(keys, values, max_size=2))

    method = {
        "name": "m",
        "loss": "my.Loss",
        "arguments": some(plain | searched),
        "miner": {"class": "mine.Miner", **some()},
        "phase2": {"arguments": some()},
        "warm_start": {"values": {"x": 0.0, **some(scalars)}},
        "model": {"arguments": some()},
        "note": draw(st.text(st.characters(exclude_categories=["Cs"]))),
    }
    data = parse_yaml(dump_yaml(BASE)) | {"methods": [method]}
    data["dataset"]["arguments"] = some()
    data["model"]["arguments"] = some()
    data["protocol"]["training"]["optimizers"]["trunk"]["arguments"] = some()
    data["protocol"]["search"]["sampler_arguments"] = some()
    return compose(data)


WAYS: dict[str, Callable[[Experiment], Any]] = {
    "plain": lambda experiment: experiment.plain(),
    "without defaults": not_default,
    "YAML": lambda experiment: parse_yaml(dump_yaml(experiment.plain())),
    "a pack's JSON": lambda experiment: json.loads(
        strict_json(experiment.plain(), ensure_ascii=False).encode(), parse_constant=pytest.fail
    ),
    "a study's attribute": lambda experiment: json.loads(json.dumps(experiment.plain())),
}


@settings(max_examples=25, deadline=None)
@given(experiments())
def test_every_value_survives_every_way(experiment: Experiment) -> None:
    """``repr`` sets apart 1, 1.0 and True, and the two zeros."""
    for way, dump in WAYS.items():
        again = compose(dump(experiment))
        assert repr(again) == repr(experiment), way
        assert again == experiment, way
    for _, value in find_searched(experiment.methods[0].arguments, ""):
        if isinstance(value, Choices):
            one = json_to_distribution(distribution_to_json(CategoricalDistribution(value.choices)))
            found = [one.to_external_repr(one.to_internal_repr(v)) for v in value.choices]
            assert repr(found) == repr(value.choices)
