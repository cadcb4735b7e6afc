"""Measure how hard the embedded glyphs are: raw pixels against a small trained conv net.

Run ``python benchmarks/glyphs_difficulty.py``. Both are scored by P@1 on the test half of the
classes (each image's nearest other image). A data set that can rank losses has raw pixels far from
both ends, and a trained net well above raw pixels yet below 1.
"""

from __future__ import annotations

import argparse
import itertools
import time

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from reality_check.data import ClassBalancedSampler, ImageSet, Normalize, class_splits, make_glyphs


def precision_at_1(embeddings: Tensor, labels: Tensor) -> float:
    """P@1 of rows (N, D) under the Euclidean distance; a row never retrieves itself."""
    distances = torch.cdist(embeddings, embeddings).fill_diagonal_(float("inf"))
    return float((labels[distances.argmin(dim=1)] == labels).float().mean())


def raw_pixels(data: ImageSet) -> float:
    """P@1 of pixels in 0..1."""
    pixels = torch.from_numpy(data.images.array()).flatten(1) / 255
    return precision_at_1(pixels, torch.from_numpy(data.labels))


def conv_net(channels: int, embedding_size: int) -> nn.Sequential:
    """Four stride-2 convolutions, global average pooling and one linear layer."""
    widths = [channels, 32, 48, 64, 64]
    layers: list[nn.Module] = []
    for before, after in itertools.pairwise(widths):
        layers += [nn.Conv2d(before, after, 3, 2, 1), nn.BatchNorm2d(after), nn.ReLU()]
    return nn.Sequential(*layers, nn.Flatten(), nn.LazyLinear(embedding_size))


def train(data: ImageSet, iterations: int, seed: int) -> nn.Module:
    """Train with the normalised softmax loss, temperature 0.1, batches of 64."""
    shape = data.images.array().shape[1:]
    torch.manual_seed(seed)
    net = conv_net(shape[2], 64)
    net(torch.zeros(2, *shape).permute(0, 3, 1, 2))
    proxies = nn.Parameter(torch.randn(data.num_classes, 64))
    optimizer = torch.optim.Adam([*net.parameters(), proxies], lr=2e-3)
    sampler = ClassBalancedSampler(data.labels, 64, 1, seed)
    transform = Normalize()
    for _ in range(iterations):
        rows = sampler.next_batch()
        images = transform(torch.from_numpy(data.images[rows].array()))
        embeddings = functional.normalize(net(images))
        logits = embeddings @ functional.normalize(proxies).T / 0.1
        loss = functional.cross_entropy(logits, torch.from_numpy(data.labels[rows]))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net.eval()


@torch.no_grad()
def embed(net: nn.Module, data: ImageSet) -> Tensor:
    """Unit embeddings (N, D) of all images."""
    parts = torch.from_numpy(data.images.array()).split(512)
    return functional.normalize(torch.cat([net(Normalize()(part)) for part in parts]))


def main() -> None:
    """Print raw, untrained and trained P@1 on the test classes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--iterations", type=int, default=400)
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    start = time.perf_counter()
    data = make_glyphs()
    print(f"glyphs: {time.perf_counter() - start:.1f} s for {data.images.shape}")
    splits = class_splits(data.num_classes)
    trainval, test = data.subset(splits.trainval), data.subset(splits.test)
    labels = torch.from_numpy(test.labels)
    print(f"raw pixels: trainval {raw_pixels(trainval):.3f}, test {raw_pixels(test):.3f}")
    for seed in range(arguments.seeds):
        untrained = precision_at_1(embed(train(trainval, 0, seed), test), labels)
        start = time.perf_counter()
        net = train(trainval, arguments.iterations, seed)
        seconds = time.perf_counter() - start
        trained = precision_at_1(embed(net, test), labels)
        own = precision_at_1(embed(net, trainval), torch.from_numpy(trainval.labels))
        print(
            f"seed {seed}: untrained {untrained:.3f}, trained {trained:.3f} "
            f"(trainval {own:.3f}; {arguments.iterations} iterations in {seconds:.0f} s)"
        )


if __name__ == "__main__":
    with np.errstate(all="raise"):
        main()
