"""Values and gradients against golden ones: scalar loops that share no code with this project."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from pytorch_metric_learning.reducers import DoNothingReducer
from support.paths import GOLDEN
from support.softmaxes import chunked
from torch import Tensor

from pml_extensions.losses import (
    ClassSampler,
    GradMLLoss,
    HeatedUpSoftmaxLoss,
    HISTLoss,
    NormalizedSoftmaxLoss,
    ProxyNCAPlusPlusLoss,
    StopGradientSoftmaxLoss,
    WarpedSoftmaxLoss,
)

Case = dict[str, Any]
CASES: dict[str, Case] = json.loads(GOLDEN.read_text(encoding="utf-8"))["cases"]
TOLERANCE = {torch.float64: 1e-9, torch.float32: 1e-5}
pytestmark = pytest.mark.parametrize("dtype", list(TOLERANCE), ids=["float64", "float32"])
every_chunk = pytest.mark.parametrize("chunk", [None, 1, 2, 100], ids=lambda c: f"chunk{c}")


def golden(*prefixes: str) -> pytest.MarkDecorator:
    names = [name for name in CASES if name.startswith(prefixes)]
    assert len(names) >= len(prefixes), f"golden cases are missing for {prefixes}"
    return pytest.mark.parametrize("name", names)


def close(actual: Tensor, expected: Any, dtype: torch.dtype) -> None:
    tolerance = TOLERANCE[dtype]
    torch.testing.assert_close(
        actual.detach(), torch.tensor(expected, dtype=dtype), rtol=tolerance, atol=tolerance
    )


def leaf(values: Any, dtype: torch.dtype) -> Tensor:
    return torch.tensor(values, dtype=dtype, requires_grad=True)


def check(
    make: Callable[..., Any], case: Case, dtype: torch.dtype, embeddings: str, **names: str
) -> None:
    """Compare the mean, each sample and all gradients; ``names`` maps parameters to inputs."""
    x = leaf(case["inputs"][embeddings], dtype)
    labels = torch.tensor(case["params"]["labels"])
    expected = case["expected"]

    def prepared(**kwargs: Any) -> Any:
        loss = make(**kwargs).to(dtype)
        for parameter, source in names.items():
            value = torch.tensor(case["inputs"][source], dtype=dtype)
            getattr(loss, parameter).data.copy_(value)
        return loss

    loss = prepared()
    value = loss(x, labels)
    value.backward()
    assert value.dtype == dtype
    close(value, expected["loss"], dtype)
    assert x.grad is not None
    close(x.grad, expected["grads"][embeddings], dtype)
    for parameter, source in names.items():
        close(getattr(loss, parameter).grad.to_dense(), expected["grads"][source], dtype)
    if "per_sample" in expected:
        raw = prepared(reducer=DoNothingReducer())(x, labels)
        close(sum(sub["losses"] for sub in raw.values()), expected["per_sample"], dtype)


@every_chunk
@golden("sgsl_gamma1", "sgsl_gamma10", "sgsl_gamma30")
def test_stop_gradient_term(name: str, chunk: int | None, dtype: torch.dtype) -> None:
    # The loss is linear in beta, so the term alone is the difference of beta = 1 and beta = 0.
    case = CASES[name]
    labels = torch.tensor(case["params"]["labels"])
    results = []
    for beta in (1.0, 0.0):
        loss = StopGradientSoftmaxLoss(
            4,
            3,
            gamma=case["params"]["gamma"],
            beta=beta,
            join_mode="always",
            softmax=chunked(chunk),
        ).to(dtype)
        loss.proxies.data.copy_(torch.tensor(case["inputs"]["W"], dtype=dtype))
        x = leaf(case["inputs"]["f"], dtype)
        value = loss(x, labels)
        value.backward()
        results.append((value, x.grad, loss.proxies.grad))
    value, grad, proxies_grad = (a - b for a, b in zip(*results, strict=True))
    close(value, case["expected"]["loss"], dtype)
    close(grad, case["expected"]["grads"]["f"], dtype)
    assert proxies_grad.abs().max() == 0


@every_chunk
@golden("sgsl_total", "sgsl_gate", "sgsl_eps")
def test_stop_gradient_softmax(name: str, chunk: int | None, dtype: torch.dtype) -> None:
    params = CASES[name]["params"]

    def make(**kwargs: Any) -> StopGradientSoftmaxLoss:
        return StopGradientSoftmaxLoss(
            4,
            3,
            gamma=params["gamma"],
            beta=params["beta"],
            label_smoothing=params["label_smoothing"],
            smoothing_convention="torch"
            if params["smoothing_convention"] == "torch"
            else "official",
            join_threshold=params.get("join_threshold", 3.0),
            softmax=chunked(chunk),
            **kwargs,
        )

    check(make, CASES[name], dtype, "f", proxies="W")


@every_chunk
@golden("warp_", "euclid_softmax")
def test_warped_softmax(name: str, chunk: int | None, dtype: torch.dtype) -> None:
    params = CASES[name]["params"]

    def make(**kwargs: Any) -> WarpedSoftmaxLoss:
        return WarpedSoftmaxLoss(
            3,
            2,
            alpha=params.get("alpha", 1.0),
            k1=params.get("k1", 1.0),
            k2=params.get("k2", 1.0),
            delta_multiplier=params.get("delta_multiplier", 1.0),
            scale=params["scale"],
            softmax=chunked(chunk),
            **kwargs,
        )

    check(make, CASES[name], dtype, "e", proxies="p")


@every_chunk
@golden("heated_l2", "heated_bn")
def test_heated_up_softmax(name: str, chunk: int | None, dtype: torch.dtype) -> None:
    params = CASES[name]["params"]
    has_bias = "bias" in params

    def make(**kwargs: Any) -> HeatedUpSoftmaxLoss:
        return HeatedUpSoftmaxLoss(
            3,
            4,
            alpha=params["alpha"],
            bias="unscaled" if has_bias else False,
            normalization=params["norm"],
            bn_eps=params.get("bn_eps", 1e-3),
            softmax=chunked(chunk),
            **kwargs,
        )

    parameters = {"proxies": "W", "bias": "b"} if has_bias else {"proxies": "W"}
    check(make, CASES[name], dtype, "f", **parameters)


@golden("gradml_quad", "gradml_batch")
@pytest.mark.filterwarnings("ignore:GradMLLoss without normalize_embeddings")
def test_grad_ml(name: str, dtype: torch.dtype) -> None:
    params = {key: value for key, value in CASES[name]["params"].items() if key != "labels"}
    check(lambda **kwargs: GradMLLoss(**params, **kwargs), CASES[name], dtype, "e")


@every_chunk
@pytest.mark.parametrize("name", ["normsoftmax_sigma0.05", "normsoftmax_sigma1.0"])
def test_normalized_softmax(name: str, chunk: int | None, dtype: torch.dtype) -> None:
    case = CASES[name]

    def make(**kwargs: Any) -> NormalizedSoftmaxLoss:
        temperature = case["params"]["temperature"]
        return NormalizedSoftmaxLoss(4, 3, temperature, softmax=chunked(chunk), **kwargs)

    check(make, case, dtype, "x", proxies="W")


@every_chunk
@pytest.mark.parametrize("sparse", [False, True])
def test_normalized_softmax_over_a_subset(
    sparse: bool, chunk: int | None, dtype: torch.dtype
) -> None:
    case = CASES["normsoftmax_sigma0.05_subset"]
    kept = torch.tensor(case["params"]["classes_kept"])

    def make(**kwargs: Any) -> NormalizedSoftmaxLoss:
        loss = NormalizedSoftmaxLoss(
            4,
            3,
            case["params"]["temperature"],
            class_sampler=ClassSampler(0.75, sparse_gradients=sparse),
            softmax=chunked(chunk),
            **kwargs,
        )
        loss.class_sampler.sample = lambda labels, num_classes: kept
        return loss

    check(make, case, dtype, "x", proxies="W")


@every_chunk
@golden("proxyncapp")
def test_proxy_nca_plus_plus(name: str, chunk: int | None, dtype: torch.dtype) -> None:
    scale = CASES[name]["params"]["scale"]
    check(
        lambda **kwargs: ProxyNCAPlusPlusLoss(4, 3, scale, softmax=chunked(chunk), **kwargs),
        CASES[name],
        dtype,
        "x",
        proxies="P",
    )


@every_chunk
def test_hist_distribution_term(chunk: int | None, dtype: torch.dtype) -> None:
    case = CASES["hist_distribution_tau32"]
    params = case["params"]

    def make(**kwargs: Any) -> HISTLoss:
        loss = HISTLoss(
            4,
            3,
            params["tau"],
            params["alpha"],
            hypergraph_weight=0,
            softmax=chunked(chunk),
            **kwargs,
        )
        loss.log_variances.data = torch.tensor(params["log_vars"], dtype=torch.float64)
        return loss

    check(make, case, dtype, "x", proxies="mu")
