"""Embedders and binary codes: statistics of weights, golden bits, faiss' bit order."""

from __future__ import annotations

import json
import math

import faiss
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from support import paths
from support.examples import examples
from torch import nn

from pml_extensions.modules import (
    BinaryEmbedding,
    MLPEmbedder,
    UnitLength,
    embedder,
    start_from_pca,
)

GOLDEN = json.loads((paths.GOLDEN).read_text(encoding="utf-8"))["cases"]["binary_retrieval"]


def test_default_embedder_is_torchs() -> None:
    torch.manual_seed(3)
    layer = embedder(20, 5)
    torch.manual_seed(3)
    peer = nn.Linear(20, 5)
    assert torch.equal(layer.weight, peer.weight)
    assert torch.equal(layer.bias, peer.bias)
    assert embedder(20, 5, bias=False).bias is None


def test_kaiming_fan_out_takes_the_width_of_the_embedding() -> None:
    torch.manual_seed(0)
    layer = embedder(2048, 512, init="kaiming_fan_out")
    assert layer.weight.std().item() == pytest.approx(math.sqrt(2 / 512), rel=1e-2)
    assert layer.bias.tolist() == [0.0] * 512
    assert embedder(8, 4, bias=False, init="kaiming_fan_out").bias is None
    # Layer-normalised features have length sqrt(2048); papers.md gives the embedding's: 64.
    x = nn.functional.layer_norm(torch.randn(64, 2048), (2048,))
    assert layer(x).norm(dim=1).mean().item() == pytest.approx(64, rel=1e-2)


@pytest.mark.parametrize("kind", ["none", "batch_norm", "layer_norm"])
def test_a_perceptron_is_its_layers_in_a_row(kind: str) -> None:
    torch.manual_seed(1)
    network = MLPEmbedder(6, 3, layers=3, hidden_size=5, hidden_normalization=kind, dropout=0.5)  # type: ignore[arg-type]
    network.eval()
    x = torch.randn(4, 6)
    by_hand = x
    for number in range(2):
        by_hand = getattr(network, f"linear_{number}")(by_hand)
        by_hand = getattr(network, f"normalization_{number}")(by_hand).relu()
    assert torch.equal(network(x), network.linear(by_hand))
    shapes = [tuple(part.weight.shape) for part in network if isinstance(part, nn.Linear)]
    assert shapes == [(5, 6), (5, 5), (3, 5)]
    assert sum(isinstance(part, nn.Dropout) for part in network) == 3


def test_the_state_of_a_perceptron_says_what_it_is_of() -> None:
    state = MLPEmbedder(6, 3, layers=2, hidden_size=5, dropout=0.5).state_dict()
    assert all(isinstance(value, torch.Tensor) for value in state.values())  # for safetensors
    options = MLPEmbedder.read_options(state["_extra_state"])
    assert options["layers"] == 2
    for saved in (state, {**state, "_extra_state": options}):  # older files hold the options
        MLPEmbedder(6, 3, layers=2, hidden_size=5).load_state_dict(saved)
    with pytest.raises(ValueError, match=r"state of a perceptron with .* not .*layer_norm"):
        MLPEmbedder(6, 3, 2, 5, "layer_norm").load_state_dict(state, strict=False)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"layers": 0}, "layers"),
        ({"hidden_size": 0}, "hidden_size"),
        ({"hidden_normalization": "group"}, "hidden_normalization"),
        ({"dropout": 1.0}, "dropout must be at least 0 and below 1"),
    ],
)
def test_a_perceptron_refuses(options: dict, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        MLPEmbedder(6, 3, **options)


@pytest.mark.parametrize("count", [50, 7])
@pytest.mark.parametrize("bias", [True, False])
def test_a_start_from_principal_components_is_numpys(count: int, bias: bool) -> None:
    x = np.random.default_rng(0).normal(size=(count, 9)) * np.arange(1, 10) + 3
    layer = nn.Linear(9, 4, bias=bias)
    start_from_pca(layer, torch.tensor(x, dtype=torch.float32))
    mean = x.mean(axis=0)
    _, _, components = np.linalg.svd(x - mean, full_matrices=False)
    expected = (x - mean if bias else x) @ components[:4].T
    actual = layer(torch.tensor(x, dtype=torch.float32)).detach().numpy()
    signs = np.sign((layer.weight.detach().numpy() * components[:4]).sum(axis=1))
    assert actual == pytest.approx(expected * signs, abs=2e-3)
    largest = np.abs(layer.weight.detach().numpy()).argmax(axis=1)
    assert (layer.weight.detach().numpy()[range(4), largest] > 0).all()


def test_a_start_needs_as_many_features_as_components() -> None:
    with pytest.raises(ValueError, match=r"shape \(3, 9\) have at most 3 .* has 4 dimensions"):
        start_from_pca(nn.Linear(9, 4), torch.randn(3, 9))


def test_equal_widths_need_no_layer() -> None:
    assert isinstance(embedder(8, 8, skip_if_equal=True), nn.Identity)
    assert isinstance(embedder(8, 8), nn.Linear)
    assert isinstance(embedder(8, 4, skip_if_equal=True), nn.Linear)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [((0, 4), "in_features"), ((4, 2.5), "embedding_size"), ((4, 4, True, "xavier"), "'xavier'")],
)
def test_arguments_are_checked(arguments: tuple[object, ...], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        embedder(*arguments)  # type: ignore[arg-type]


def test_golden_bits() -> None:
    x = torch.tensor(GOLDEN["inputs"]["x"])
    bits = BinaryEmbedding()(x)
    assert bits.dtype == torch.bool
    assert bits.int().tolist() == GOLDEN["expected"]["bits"]
    assert torch.equal(BinaryEmbedding()(UnitLength()(x)), bits)


def test_hamming_recall_through_faiss_is_golden() -> None:
    labels = GOLDEN["inputs"]["labels"]
    codes = BinaryEmbedding(pack=True)(torch.tensor(GOLDEN["inputs"]["x"])).numpy()
    index = faiss.IndexBinaryFlat(8 * codes.shape[1])
    index.add(codes)
    _, neighbours = index.search(codes, len(codes))
    for k, expected in GOLDEN["expected"]["recall_at_k_hamming"].items():
        hits = 0
        for query, row in enumerate(neighbours.tolist()):
            others = [item for item in row if item != query][: int(k)]
            hits += any(labels[item] == labels[query] for item in others)
        assert hits / len(labels) == pytest.approx(expected)


@examples(40)
@given(st.integers(1, 5), st.integers(1, 40), st.integers(0, 10**6))
def test_packing_is_that_of_faiss_and_numpy(rows: int, width: int, seed: int) -> None:
    x = torch.randn(rows, width, generator=torch.Generator().manual_seed(seed))
    packed = BinaryEmbedding(pack=True)(x)
    assert packed.dtype == torch.uint8
    peer = np.packbits(x.numpy() > 0, axis=1, bitorder="little")
    assert (packed.numpy() == peer).all()
    theirs = np.zeros_like(peer)
    faiss.fvecs2bitvecs(
        faiss.swig_ptr(np.ascontiguousarray(x.numpy())), faiss.swig_ptr(theirs), width, rows
    )
    assert (packed.numpy() == theirs).all()


def test_zero_is_no_bit() -> None:
    assert BinaryEmbedding()(torch.tensor([[0.0, -0.0, 1e-30, -1.0]])).tolist() == [
        [False, False, True, False]
    ]
    assert BinaryEmbedding(pack=True)(torch.tensor([[1.0, 0.0, 1.0]])).tolist() == [[5]]
    assert BinaryEmbedding(pack=True)(torch.zeros(0, 9)).shape == (0, 2)


def test_binary_embedding_compiles_without_graph_breaks() -> None:
    x = torch.tensor(GOLDEN["inputs"]["x"])
    for pack in (False, True):
        module = BinaryEmbedding(pack)
        compiled = torch.compile(module, fullgraph=True, backend="eager")
        assert torch.equal(compiled(x), module(x))


def test_packing_takes_no_operation_that_onnx_lacks() -> None:
    graph = torch.export.export(BinaryEmbedding(pack=True), (torch.randn(3, 9),)).graph
    assert not [node.name for node in graph.nodes if "shift" in node.name]
