"""Claims that an experiment's YAML makes before it runs."""

from __future__ import annotations

from typing import Any

import pytest
from support.refusals import refused

from reality_check.config import compose
from reality_check.config.claims import Claim, Measured
from reality_check.config.yaml_text import dump_yaml, parse_yaml
from reality_check.utils.errors import UsageError

CLAIM: dict[str, Any] = {
    "name": "one_over_two",
    "source": "000, Table 0",
    "text": "One beats two",
    "pairs": [["contrastive", "triplet_margin"]],
}


def experiment(*claims: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": "mine",
        "dataset": "glyphs",
        "model": "conv4",
        "protocol": {"base": "quick_one_search", "final_metrics": ["NMI", "separability"]},
        "methods": ["contrastive", "triplet_margin"],
        "claims": list(claims),
    }


def test_a_claim_is_about_every_pair_category_and_metric() -> None:
    claim = Claim.model_validate(
        CLAIM
        | {"pairs": [["a", "b"], ["a", "c"]], "categories": ["ensemble"], "metrics": ["NMI", "F1"]}
    )
    assert list(claim.comparisons()) == [
        (Measured("a", "ensemble", metric), Measured(other, "ensemble", metric))
        for other in ("b", "c")
        for metric in ("NMI", "F1")
    ]


def test_the_default_is_the_tuned_metric_of_the_fold_networks() -> None:
    ((one, two),) = Claim.model_validate(CLAIM).comparisons()
    assert one == Measured("contrastive", "aggregate", "mean_average_precision_at_r")
    assert two == Measured("triplet_margin", "aggregate", "mean_average_precision_at_r")


def test_than_names_another_place() -> None:
    than = {"category": "complete", "metric": "precision_at_1"}
    claim = Claim.model_validate(CLAIM | {"pairs": [["a", "a"]], "than": than})
    ((_, two),) = claim.comparisons()
    assert two == Measured("a", "complete", "precision_at_1")


def test_claims_are_part_of_the_experiment() -> None:
    loaded = compose(experiment(CLAIM))
    assert compose(parse_yaml(dump_yaml(loaded.plain()))) == loaded
    assert loaded.claims[0].margin == "5 %"
    assert compose(experiment()).claims == []


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"pairs": [["contrastive", "triplet"]]}, ["no method 'triplet'", "'triplet_margin'?"]),
        ({"categories": ["complet"]}, ["claims.one_over_two.categories", "'complet'"]),
        ({"metrics": ["AMI"]}, ["no metric 'AMI'", "NMI"]),
        ({"metrics": ["nmi"]}, ["there is no metric 'nmi'", "'NMI'?"]),
        ({"than": {"metric": "F1"}}, ["no metric 'F1'"]),
        ({"pairs": []}, ["claims.one_over_two.pairs"]),
        ({"pairs": [["contrastive"]]}, ["claims.one_over_two.pairs"]),
        ({"pairs": [["contrastive", "contrastive"]]}, ["with itself", "under 'than'"]),
        ({"margin": "much"}, ["margin", "as 5 %", "got 'much'"]),
        ({"margin": "0 %"}, ["margin", "greater than 0"]),
        ({"margin": 0}, ["margin", "greater than 0"]),
        ({"test": "below"}, ["'above', 'not_below' or 'equal'"]),
        ({"tests": "above"}, ["unknown key", "mean 'test'"]),
    ],
)
def test_wrong_claims_are_told_at_load_time(changes: dict[str, Any], parts: list[str]) -> None:
    with refused(*parts):
        compose(experiment(CLAIM | changes))


def test_a_category_that_is_not_measured_has_no_claims() -> None:
    raw = experiment(CLAIM | {"categories": ["complete"]})
    raw["protocol"] |= {"categories": ["aggregate"]}
    with pytest.raises(UsageError, match=r"no category 'complete'.*Write one of aggregate"):
        compose(raw)


def test_two_claims_of_one_name_are_refused() -> None:
    with pytest.raises(UsageError, match="two claims are named 'one_over_two'"):
        compose(experiment(CLAIM, CLAIM))
