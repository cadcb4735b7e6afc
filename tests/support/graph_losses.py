"""Losses whose step a CUDA graph would repeat wrongly, each in a way of its own."""

from __future__ import annotations

import itertools
import random
from typing import Any

import torch
from torch import Tensor, nn


class Plain(nn.Module):
    """What a graph repeats rightly; the others change the factor."""

    def __init__(self, num_classes: int, embedding_size: int) -> None:
        super().__init__()
        self.proxies = nn.Parameter(torch.empty(num_classes, embedding_size))
        nn.init.normal_(self.proxies, std=0.1)

    def forward(self, x: Tensor, labels: Tensor, *_: Any) -> Tensor:
        return nn.functional.cross_entropy(x @ self.proxies.t() * self.factor(x), labels)

    def factor(self, x: Tensor) -> Any:
        return 1.0


class Waits(Plain):
    """For a number."""

    def factor(self, x: Tensor) -> Any:
        return 1 + 0 * x.detach().sum().item()


class Chooses(Plain):
    """Elements, of which the host must know how many."""

    def factor(self, x: Tensor) -> Any:
        chosen = x.detach()[x.detach() > 0]
        return 1 + 0 * chosen.sum()


class Uploads(Plain):
    """From page-locked memory, which no wait shows."""

    def factor(self, x: Tensor) -> Any:
        return torch.ones(1).pin_memory().to(x.device, non_blocking=True)


class Draws(Plain):
    """On the host."""

    def factor(self, x: Tensor) -> Any:
        return 1 + random.random()


class Counts(Plain):
    """In a number of Python, as PML's memory does."""

    def __init__(self, num_classes: int, embedding_size: int) -> None:
        super().__init__(num_classes, embedding_size)
        self.steps = 0

    def factor(self, x: Tensor) -> Any:
        self.steps += 1
        return 1 / self.steps


class Hides(Plain):
    """The same where nobody looks."""

    def __init__(self, num_classes: int, embedding_size: int) -> None:
        super().__init__(num_classes, embedding_size)
        self.counter = itertools.count(1)

    def factor(self, x: Tensor) -> Any:
        return 1 / next(self.counter)


class Replaces(Plain):
    """A buffer, instead of writing into it."""

    mean: Tensor

    def __init__(self, num_classes: int, embedding_size: int) -> None:
        super().__init__(num_classes, embedding_size)
        self.register_buffer("mean", torch.ones(()))

    def factor(self, x: Tensor) -> Any:
        self.mean = 0.9 * self.mean + 0.1 * x.detach().square().mean()
        return self.mean


class Remembers(Replaces):
    """The same as it should be."""

    def factor(self, x: Tensor) -> Any:
        self.mean.mul_(0.9).add_(0.1 * x.detach().square().mean())
        return self.mean.clone()


class Sparse(Plain):
    """In its gradient."""

    def factor(self, x: Tensor) -> Any:
        rows = torch.zeros(1, dtype=torch.int64, device=x.device)
        return 1 + nn.functional.embedding(rows, self.proxies, sparse=True).square().mean()

    def forward(self, x: Tensor, labels: Tensor, *_: Any) -> Tensor:
        return x.square().mean() * self.factor(x)


class Scaled(Plain):
    """With a number that a schedule or a second phase may change."""

    def __init__(self, num_classes: int, embedding_size: int, scale: float = 1.0) -> None:
        super().__init__(num_classes, embedding_size)
        self.scale = scale

    def factor(self, x: Tensor) -> Any:
        return self.scale
