from __future__ import annotations

import math
from typing import Any

import pytest

from reality_check.config.values import (
    Choices,
    Range,
    dump_value,
    fill_in,
    find_searched,
    parse_tunable,
    parse_value,
)
from reality_check.config.yaml_text import Unquoted


def test_a_range_and_choices_are_found_at_any_depth() -> None:
    value = parse_value(
        {
            "margin": {"low": 0, "high": 1},
            "distance": {"class": "LpDistance", "p": {"low": 1, "high": 2, "int": True}},
            "weights": [1, {"choices": ["a", None]}],
            "plain": {"a": 3},
        }
    )
    assert dict(find_searched(value, "arguments")) == {
        "arguments.margin": Range(low=0, high=1),
        "arguments.distance.p": Range(low=1, high=2, int=True),
        "arguments.weights.1": Choices(choices=["a", None]),
    }
    params = {
        "arguments.margin": 0.5,
        "arguments.distance.p": 2,
        "arguments.weights.1": None,
    }
    assert fill_in(value, "arguments", params) == {
        "margin": 0.5,
        "distance": {"class": "LpDistance", "p": 2},
        "weights": [1, None],
        "plain": {"a": 3},
    }


@pytest.mark.parametrize(
    "plain",
    [
        {"low": 0.5, "high": 2.0},
        {"low": 1.0, "high": 100.0, "log": True},
        {"low": 2, "high": 32, "int": True},
        {"choices": [1, 2.5, None, "1", "true", math.inf]},
        {"class": "LpDistance", "p": {"low": 1.0, "high": 2.0}},
        [1, "a", {"low": 0.0, "high": 1.0}],
    ],
)
def test_dump_is_the_inverse_of_parse(plain: Any) -> None:
    dumped = dump_value(parse_value(plain))
    assert dumped == plain
    # == takes 1 and True and 1.0 for the same; a search does not.
    assert repr(dumped) == repr(plain)


def test_the_middle_is_geometric_on_a_log_scale_and_arithmetic_else() -> None:
    assert Range(low=0.01, high=100, log=True).middle() == pytest.approx(1.0)
    assert Range(low=-0.2, high=2).middle() == pytest.approx(0.9)
    middle = Range(low=2, high=33, int=True).middle()
    assert isinstance(middle, int)
    assert 2 <= middle <= 33
    assert Choices(choices=["b", "a"]).middle() == "b"


@pytest.mark.parametrize(
    ("value", "sentence"),
    [
        ({"low": 1, "high": 0}, "a range needs low < high, got low=1 and high=0"),
        ({"low": 1, "high": 1}, "a range needs low < high, got low=1 and high=1"),
        ({"low": 0, "high": math.inf}, "high must be a number that a float can hold, got inf"),
        ({"low": math.nan, "high": 1}, "low must be a number that a float can hold, got nan"),
        ({"low": 0, "high": 1, "log": True}, "a log range needs low > 0, got low=0"),
        ({"low": -1, "high": 1, "log": True}, "a log range needs low > 0, got low=-1"),
        ({"low": 0.5, "high": 2, "int": True}, "an int range needs whole numbers"),
        ({"low": 0}, "'high' is missing"),
        ({"high": 0}, "'low' is missing"),
        ({"low": 0, "high": 1, "lg": True}, "unknown key 'lg'"),
        ({"low": 0, "high": 1, "choices": [1, 2]}, "unknown key 'high'"),
        ({"low": "0", "high": 1}, "low must be a number that a float can hold, got '0'"),
        ({"low": True, "high": 2}, "low must be a number that a float can hold, got True"),
        ({"low": 1, "high": 2, "log": "maybe"}, "log must be true or false, got 'maybe'"),
        ({"low": 1, "high": 2, "int": 1}, "int must be true or false, got 1"),
        ({"choices": [1]}, "choices must be a list of at least two values, got [1]"),
        ({"choices": []}, "choices must be a list of at least two values, got []"),
        ({"choices": "ab"}, "choices must be a list of at least two values, got 'ab'"),
        ({"choices": [[1], [2]]}, "choices must be plain values, got [1]"),
        ({"choices": ["a", "b", "a"]}, "choices lists 'a' and 'a', which are equal"),
        ({"choices": [1, True, 1.0]}, "choices lists 1 and True, which are equal"),
        ({"choices": [0.0, 2, -0.0]}, "choices lists 0.0 and -0.0, which are equal"),
        ({"choices": [1, math.nan]}, "nan is not kept by a YAML"),
        ({"choices": [1, Unquoted("010")]}, "010 has several meanings"),
        (
            {"low": 1, "high": 2**53 + 1, "int": True},
            "high must be a number that a float can hold, got 900719",
        ),
        ({"values": [1, 2]}, "unknown key 'values' in a search range; write {low: 0, high: 1}"),
        ({"min": 1, "max": 2, "log": True}, "unknown key 'max' in a search range"),
        ({"Low": 1, "HIGH": 2}, "unknown key 'HIGH' in a search range"),
        ({"lo": 1, "hi": 2}, "unknown key 'hi' in a search range"),
        ({"value": 3}, "unknown key 'value' in a search range"),
        ({"choises": ["a", "b"]}, "unknown key 'choises' in a search range"),
    ],
)
def test_every_mistake_in_a_range_is_one_sentence(value: Any, sentence: str) -> None:
    with pytest.raises(ValueError, match=r"^margin: ") as caught:
        parse_value({"margin": value})
    message = str(caught.value)
    assert sentence in message
    assert "\n" not in message


@pytest.mark.parametrize("text", ["1e-4", "0.0001", 0.0001])
def test_numbers_may_be_written_as_text(text: Any) -> None:
    assert parse_tunable(text) == 1e-4


@pytest.mark.parametrize(
    "value",
    ["fast", True, [1], {"a": 1}, math.nan, math.inf, "nan", {"choices": ["a", "b"]}],
)
def test_what_is_no_number_is_refused_where_a_number_is_due(value: Any) -> None:
    with pytest.raises(ValueError, match="number") as caught:
        parse_tunable(value)
    assert "\n" not in str(caught.value)
