"""Values and gradients against golden ones: scalar loops that share no code with this project."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch
from pytorch_metric_learning.reducers import DoNothingReducer
from support.losses import chunked
from support.paths import GOLDEN
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
    names = [name for name in CASES if name.startswith(prefixes) and "_subset" not in name]
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
        options = {"beta": beta, "join_mode": "always", "softmax": chunked(chunk)}
        loss = StopGradientSoftmaxLoss(4, 3, case["params"]["gamma"], **options).to(dtype)
        loss.proxies.data.copy_(torch.tensor(case["inputs"]["W"], dtype=dtype))
        x = leaf(case["inputs"]["f"], dtype)
        value = loss(x, labels)
        value.backward()
        results.append((value, x.grad, loss.proxies.grad))
    value, grad, proxies_grad = (a - b for a, b in zip(*results, strict=True))
    close(value, case["expected"]["loss"], dtype)
    close(grad, case["expected"]["grads"]["f"], dtype)
    assert proxies_grad.abs().max() == 0


#: By the start of a case's name: the loss, its embeddings, and the inputs that its parameters take.
LOSSES: dict[str, tuple[Callable[..., Any], str, dict[str, str]]] = {
    "sgsl": (StopGradientSoftmaxLoss, "f", {"proxies": "W"}),
    "warp": (WarpedSoftmaxLoss, "e", {"proxies": "p"}),
    "euclid": (partial(WarpedSoftmaxLoss, alpha=1.0, k1=1.0, k2=1.0), "e", {"proxies": "p"}),
    "heated": (HeatedUpSoftmaxLoss, "f", {"proxies": "W", "bias": "b"}),
    "normsoftmax": (NormalizedSoftmaxLoss, "x", {"proxies": "W"}),
    "proxyncapp": (ProxyNCAPlusPlusLoss, "x", {"proxies": "P"}),
    "hist": (partial(HISTLoss, hypergraph_weight=0), "x", {"proxies": "mu"}),
}
#: What the cases name otherwise.
WORDS = {"eps/(C-1)": "official", "added after alpha": "unscaled"}


def check_proxies(name: str, chunk: int | None, dtype: torch.dtype, **options: Any) -> Any:
    case = CASES[name]
    cls, embeddings, parameters = LOSSES[name.partition("_")[0]]
    parameters = {key: value for key, value in parameters.items() if value in case["inputs"]}
    proxies = case["inputs"][parameters["proxies"]]
    params = {"normalization" if k == "norm" else k: v for k, v in case["params"].items()}
    known = inspect.signature(cls).parameters.keys() & params
    arguments = {key: WORDS.get(str(params[key]), params[key]) for key in known}

    def make(**kwargs: Any) -> Any:
        arguments.update(options, softmax=chunked(chunk), **kwargs)
        loss = cls(len(proxies), len(proxies[0]), **arguments)
        if "log_vars" in params:
            loss.log_variances.data = torch.tensor(params["log_vars"], dtype=torch.float64)
        if "classes_kept" in params:
            kept = torch.tensor(params["classes_kept"])
            loss.class_sampler.sample = lambda labels, num_classes: kept
        return loss

    check(make, case, dtype, embeddings, **parameters)


@every_chunk
@golden("sgsl_total", "sgsl_gate", "sgsl_eps", *(f"{name}_" for name in LOSSES if name != "sgsl"))
def test_proxy_losses(name: str, chunk: int | None, dtype: torch.dtype) -> None:
    check_proxies(name, chunk, dtype)


@every_chunk
@pytest.mark.parametrize("sparse", [False, True])
def test_normalized_softmax_over_a_subset(
    sparse: bool, chunk: int | None, dtype: torch.dtype
) -> None:
    sampler = ClassSampler(0.75, sparse_gradients=sparse)
    check_proxies("normsoftmax_sigma0.05_subset", chunk, dtype, class_sampler=sampler)


@golden("gradml_quad", "gradml_batch")
@pytest.mark.filterwarnings("ignore:GradMLLoss without normalize_embeddings")
def test_grad_ml(name: str, dtype: torch.dtype) -> None:
    params = {key: value for key, value in CASES[name]["params"].items() if key != "labels"}
    check(lambda **kwargs: GradMLLoss(**params, **kwargs), CASES[name], dtype, "e")
