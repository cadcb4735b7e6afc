"""What the arguments of PML's losses mean in the version that is installed, as plain loops.

The published search ranges hold only as long as PML keeps the units of its arguments.
"""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch

from reality_check.config import named_protocol
from reality_check.config.named import named_method
from reality_check.training.methods import build_loss, fill_settings, middle_params

CLASSES, DIM = 4, 6
LABELS = [0, 0, 0, 1, 1, 2, 2, 3, 3, 3]


@pytest.fixture
def raw() -> np.ndarray:
    """Embeddings of the ten images, not normalised."""
    return np.random.default_rng(0).normal(0.3, 1.0, (len(LABELS), DIM))


def value_of(name: str, raw: np.ndarray, **arguments: float) -> tuple[float, torch.nn.Module]:
    """The value of a shipped method's loss with these arguments, and the loss."""
    method, protocol = named_method(name), named_protocol("mlrc")
    params = middle_params(method, protocol)
    params |= {f"arguments.{key}": value for key, value in arguments.items()}
    torch.manual_seed(1)
    loss = build_loss(fill_settings(method, protocol, params), CLASSES, DIM).double()
    return float(loss(torch.from_numpy(raw), torch.tensor(LABELS)).detach()), loss


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.sqrt((rows**2).sum(axis=1, keepdims=True))


def pairs(same: bool) -> list[tuple[int, int]]:
    numbers = range(len(LABELS))
    return [(i, j) for i in numbers for j in numbers if i != j and (LABELS[i] == LABELS[j]) == same]


def mean_of_active(values: list[float]) -> float:
    active = [value for value in values if value > 0]
    return sum(active) / len(active) if active else 0.0


def cross_entropy(logits: np.ndarray) -> float:
    rows = [math.log(sum(math.exp(x) for x in row)) for row in logits]
    return sum(rows[i] - logits[i, y] for i, y in enumerate(LABELS)) / len(LABELS)


@pytest.mark.parametrize(("pos_margin", "neg_margin"), [(0.2, 1.5), (-0.2, 1.0)])
def test_contrastive_margins_are_distances_of_unit_vectors(
    raw: np.ndarray, pos_margin: float, neg_margin: float
) -> None:
    x = unit(raw)
    far = [float(np.linalg.norm(x[i] - x[j])) - pos_margin for i, j in pairs(same=True)]
    near = [neg_margin - float(np.linalg.norm(x[i] - x[j])) for i, j in pairs(same=False)]
    value, _ = value_of("contrastive", raw, pos_margin=pos_margin, neg_margin=neg_margin)
    assert value == pytest.approx(mean_of_active(far) + mean_of_active(near))


@pytest.mark.parametrize("margin", [0.3, -0.1])
def test_the_triplet_margin_is_a_difference_of_distances_and_may_be_negative(
    raw: np.ndarray, margin: float
) -> None:
    x = unit(raw)
    values = [
        float(np.linalg.norm(x[a] - x[p]) - np.linalg.norm(x[a] - x[n])) + margin
        for (a, p), (b, n) in product(pairs(same=True), pairs(same=False))
        if a == b
    ]
    assert value_of("triplet_margin", raw, margin=margin)[0] == pytest.approx(
        mean_of_active(values)
    )


def test_the_temperature_of_nt_xent_divides_cosines(raw: np.ndarray) -> None:
    cosines = unit(raw) @ unit(raw).T / 0.25
    values = []
    for a, p in pairs(same=True):
        others = sum(math.exp(cosines[a, n]) for b, n in pairs(same=False) if b == a)
        own = math.exp(cosines[a, p])
        values.append(-math.log(own / (own + others)))
    value, _ = value_of("nt_xent", raw, temperature=0.25)
    assert value == pytest.approx(sum(values) / len(values))


@pytest.mark.parametrize("name", ["margin", "margin_per_class"])
def test_margin_and_beta_are_distances_of_unit_vectors(raw: np.ndarray, name: str) -> None:
    x, beta, margin = unit(raw), 1.1, 0.2
    total, active = 0.0, 0
    for (a, p), (b, n) in product(pairs(same=True), pairs(same=False)):
        if a == b:
            far = max(0.0, float(np.linalg.norm(x[a] - x[p])) - beta + margin)
            near = max(0.0, beta - float(np.linalg.norm(x[a] - x[n])) + margin)
            total, active = total + far + near, active + (far > 0) + (near > 0)
    assert value_of(name, raw, margin=margin, beta=beta)[0] == pytest.approx(total / active)


def test_snr_margins_are_ratios_of_variances_and_its_regulariser_sees_raw_embeddings(
    raw: np.ndarray,
) -> None:
    x = unit(raw)

    def ratio(i: int, j: int) -> float:
        return float(np.var(x[i] - x[j], ddof=1) / np.var(x[i], ddof=1))

    far = mean_of_active([ratio(i, j) - 0.3 for i, j in pairs(same=True)])
    near = mean_of_active([0.9 - ratio(i, j) for i, j in pairs(same=False)])
    zero_mean = float(np.abs(raw.sum(axis=1)).mean())
    value, _ = value_of(
        "snr_contrastive", raw, pos_margin=0.3, neg_margin=0.9, embedding_reg_weight=0.25
    )
    assert value == pytest.approx(far + near + 0.25 * zero_mean)


def test_fast_ap_counts_bins_of_squared_distances_from_0_to_4(raw: np.ndarray) -> None:
    x, bins, count = unit(raw), 5, len(LABELS)
    width = 4 / bins
    losses = []
    for i in range(count):
        others = [j for j in range(count) if j != i]
        before_pos = before_all = precision = 0.0
        for edge in range(bins + 1):
            pulse = {
                j: max(0.0, 1 - abs(float(((x[i] - x[j]) ** 2).sum()) - edge * width) / width)
                for j in others
            }
            pos = sum(pulse[j] for j in others if LABELS[j] == LABELS[i])
            before_pos, before_all = before_pos + pos, before_all + sum(pulse.values())
            precision += pos * before_pos / before_all if pos > 0 else 0.0
        same = sum(LABELS[j] == LABELS[i] for j in others)
        losses.append(1 - precision / same)
    assert value_of("fast_ap", raw, num_bins=bins)[0] == pytest.approx(sum(losses) / count)


def test_the_margin_of_arcface_is_in_degrees_and_that_of_cosface_a_cosine(raw: np.ndarray) -> None:
    for name, margin in (("arcface", 20.0), ("cosface", 0.35)):
        value, loss = value_of(name, raw, margin=margin, scale=8.0)
        logits = unit(raw) @ unit(loss.W.detach().numpy().T).T
        for i, y in enumerate(LABELS):
            angle = math.acos(logits[i, y])
            moved = math.cos(angle + math.radians(margin))
            logits[i, y] = moved if name == "arcface" else logits[i, y] - margin
        assert value == pytest.approx(cross_entropy(8.0 * logits)), name


def test_the_scale_of_proxy_nca_multiplies_squared_distances(raw: np.ndarray) -> None:
    value, loss = value_of("proxy_nca", raw, softmax_scale=3.0)
    proxies = unit(loss.proxies.detach().numpy())
    squares = ((unit(raw)[:, None] - proxies[None]) ** 2).sum(axis=2)
    assert value == pytest.approx(cross_entropy(-3.0 * squares))


def test_the_temperature_of_normalized_softmax_divides_cosines(raw: np.ndarray) -> None:
    value, loss = value_of("normalized_softmax", raw, temperature=0.2)
    cosines = unit(raw) @ unit(loss.W.detach().numpy().T).T
    assert value == pytest.approx(cross_entropy(cosines / 0.2))


def test_the_gamma_of_soft_triple_divides_and_its_regulariser_is_the_papers(
    raw: np.ndarray,
) -> None:
    value, loss = value_of("soft_triple", raw, la=6.0, gamma=0.5, margin=0.1, weight_reg_weight=0.2)
    centers = unit(loss.fc.detach().numpy().T).reshape(CLASSES, 10, DIM)
    logits = np.zeros((len(LABELS), CLASSES))
    for i, c in product(range(len(LABELS)), range(CLASSES)):
        cosines = centers[c] @ unit(raw)[i]
        weights = np.exp(cosines / 0.5)
        logits[i, c] = (weights / weights.sum()) @ cosines - 0.1 * (LABELS[i] == c)
    spread = [
        math.sqrt(2 - 2 * centers[c, s] @ centers[c, t])
        for c in range(CLASSES)
        for s in range(10)
        for t in range(s)
    ]
    expected = cross_entropy(6.0 * logits) + 0.2 * sum(spread) / (2 * len(spread))
    assert value == pytest.approx(expected)


def test_alpha_beta_and_base_of_multi_similarity_are_those_of_the_paper(raw: np.ndarray) -> None:
    cosines = unit(raw) @ unit(raw).T
    alpha, beta, base = 3.0, 10.0, 0.4
    total = 0.0
    for i in range(len(LABELS)):
        pos = sum(math.exp(-alpha * (cosines[i, j] - base)) for a, j in pairs(True) if a == i)
        neg = sum(math.exp(beta * (cosines[i, j] - base)) for a, j in pairs(False) if a == i)
        total += math.log(1 + pos) / alpha + math.log(1 + neg) / beta
    value, _ = value_of("multi_similarity", raw, alpha=alpha, beta=beta, base=base)
    assert value == pytest.approx(total / len(LABELS))


def test_proxy_anchor_has_the_papers_margin_and_alpha(raw: np.ndarray) -> None:
    value, loss = value_of("proxy_anchor", raw, margin=0.1, alpha=8.0)
    cosines = unit(raw) @ unit(loss.proxies.detach().numpy()).T
    pos = neg = 0.0
    for c in range(CLASSES):
        own = [cosines[i, c] for i, y in enumerate(LABELS) if y == c]
        other = [cosines[i, c] for i, y in enumerate(LABELS) if y != c]
        pos += math.log(1 + sum(math.exp(-8.0 * (s - 0.1)) for s in own))
        neg += math.log(1 + sum(math.exp(8.0 * (s + 0.1)) for s in other))
    assert value == pytest.approx(pos / CLASSES + neg / CLASSES)
