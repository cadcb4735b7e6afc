"""What the arguments of PML's losses mean in the version that is installed.

The published search ranges hold only as long as PML keeps the units of its arguments. The values
are those that plain loops over the formulas gave, which commit 1b535f4 has in this file.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from reality_check.config import named_protocol
from reality_check.config.named import named_method
from reality_check.training.methods import build_loss, fill_method, middle_params

CLASSES, DIM = 4, 6
LABELS = [0, 0, 0, 1, 1, 2, 2, 3, 3, 3]

#: Margins are distances of unit vectors (of SNR: ratios of variances; of ArcFace: degrees; of the
#: others with classes: cosines), temperatures divide cosines, scales multiply them (of ProxyNCA:
#: squared distances), bins are of squared distances from 0 to 4.
VALUES: list[tuple[str, dict[str, float], float]] = [
    ("contrastive", {"pos_margin": 0.2, "neg_margin": 1.5}, 1.648678749),
    ("contrastive", {"pos_margin": -0.2, "neg_margin": 1.0}, 1.818555529),
    ("triplet_margin", {"margin": 0.3}, 0.6401630161),
    ("triplet_margin", {"margin": -0.1}, 0.4325253763),
    ("nt_xent", {"temperature": 0.25}, 3.765366525),
    ("margin", {"margin": 0.2, "beta": 1.1}, 0.5000655182),
    ("margin_per_class", {"margin": 0.2, "beta": 1.1}, 0.5000655182),
    (
        "snr_contrastive",
        {"pos_margin": 0.3, "neg_margin": 0.9, "embedding_reg_weight": 0.25},
        3.388346981,
    ),
    ("fast_ap", {"num_bins": 5}, 0.7608099542),
    ("arcface", {"margin": 20.0, "scale": 8.0}, 7.089408369),
    ("cosface", {"margin": 0.35, "scale": 8.0}, 7.269423825),
    ("proxy_nca", {"softmax_scale": 3.0}, 2.397381321),
    ("normalized_softmax", {"temperature": 0.2}, 3.080353156),
    (
        "soft_triple",
        {"la": 6.0, "gamma": 0.5, "margin": 0.1, "weight_reg_weight": 0.2},
        2.059399588,
    ),
    ("multi_similarity", {"alpha": 3.0, "beta": 10.0, "base": 0.4}, 1.022251256),
    ("proxy_anchor", {"margin": 0.1, "alpha": 8.0}, 8.434239234),
]


@pytest.mark.parametrize(("name", "arguments", "expected"), VALUES)
def test_arguments_have_the_units_of_the_published_ranges(
    name: str, arguments: dict[str, float], expected: float
) -> None:
    method, protocol = named_method(name), named_protocol("mlrc")
    params = middle_params(method, protocol)
    params |= {f"arguments.{key}": value for key, value in arguments.items()}
    loss = build_loss(fill_method(method, protocol, params), CLASSES, DIM).double()
    draw = np.random.default_rng(0)
    raw = torch.from_numpy(draw.normal(0.3, 1.0, (len(LABELS), DIM)))
    with torch.no_grad():
        for part, parameter in loss.named_parameters():
            if "beta" not in part:
                parameter.copy_(torch.from_numpy(draw.normal(size=parameter.shape)))
        value = float(loss(raw, torch.tensor(LABELS)))
    assert value == pytest.approx(expected)
