"""Metrics on request: scatter of raw embeddings, and pairs to verify."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from pml_extensions.evaluation import class_separability, pair_verification
from reality_check.evaluation.scoring import evaluate, evaluate_both_geometries, verification_pairs

LABELS = np.repeat(np.arange(12), [2, 9, 1, 5, 5, 5, 3, 8, 7, 6, 4, 5])
SCATTER = ["separability_raw", "trace_between_raw", "trace_within_raw"]


def embeddings() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(12, 5, generator=generator)
    found = centres[LABELS] + torch.randn(len(LABELS), 5, generator=generator)
    return found * torch.rand(len(LABELS), 1, generator=generator)


@pytest.mark.parametrize("normalize", [True, False])
def test_scatter_of_raw_embeddings_is_theirs_whatever_the_method_compares(normalize: bool) -> None:
    x = embeddings()
    raw, unit = class_separability(x, LABELS), class_separability(x, LABELS, normalize=True)
    found = evaluate_both_geometries(x, LABELS, normalize, ["separability", *SCATTER])
    assert [found[name] for name in SCATTER] == [raw.ratio, raw.trace_between, raw.trace_within]
    assert found["separability"] == (unit if normalize else raw).ratio
    assert not any(name.endswith(("_raw_raw", "_raw_normalized")) for name in found)
    alone = evaluate(x, LABELS, normalize, SCATTER)  # as of the baselines
    assert [alone[name] for name in SCATTER] == [found[name] for name in SCATTER]


def test_scatter_of_an_ensembles_raw_geometry() -> None:
    x = embeddings()
    wide = torch.cat((x, 2 * x), dim=1)
    unit = torch.cat((torch.nn.functional.normalize(x),) * 2, dim=1)
    found = evaluate_both_geometries(unit, LABELS, True, SCATTER, raw=wide)
    assert found["trace_within_raw"] == class_separability(wide, LABELS).trace_within


def test_half_of_the_pairs_are_of_one_class_and_no_image_is_its_own_partner() -> None:
    shuffled = np.random.default_rng(1).permutation(LABELS)
    first, second, same = verification_pairs(shuffled)
    assert (len(first), int(same.sum())) == (6000, 3000)
    assert np.array_equal(shuffled[first] == shuffled[second], same)
    assert (first != second).all()
    assert set(first[same].tolist()) == set(np.flatnonzero(shuffled != 2)), "a lone image has none"
    for fold in np.array_split(same, 10):
        assert 250 < fold.sum() < 350
    again = verification_pairs(shuffled)
    assert torch.equal(first, again[0])
    assert torch.equal(second, again[1])


@pytest.mark.parametrize(("normalize", "convention"), [(True, "insightface"), (False, "paper004")])
def test_verification_is_that_of_the_methods_geometry(normalize: bool, convention: str) -> None:
    x = embeddings()
    found = evaluate_both_geometries(x, LABELS, normalize, ["verification_accuracy"])
    first, second, same = verification_pairs(LABELS)
    expected = pair_verification(x[first], x[second], same, convention=convention)  # type: ignore[arg-type]
    assert found["verification_accuracy"] == expected.accuracy
    assert 0.5 < expected.accuracy < 1
    listed = {"LFW": (first[:100], second[:100], same[:100])}
    of_list = pair_verification(x[first[:100]], x[second[:100]], same[:100], convention=convention)  # type: ignore[arg-type]
    found = evaluate_both_geometries(x, LABELS, normalize, pairs=listed)
    assert found["verification_LFW"] == of_list.accuracy
    error = np.std(of_list.fold_accuracies, ddof=1) / 10**0.5
    assert found["verification_LFW_se"] == pytest.approx(error)
    perfect = torch.eye(12)[LABELS]
    assert evaluate(perfect, LABELS, True, ["verification_accuracy"])["verification_accuracy"] == 1
