"""How similar an embedding x is to a proxy p, written as a function of x.p, |x|^2 and |p|^2.

In this form a batch is compared with any number of classes by one matrix product, whose backward is
two more; what is left is element by element. The class-wise sums of ``class_sums`` build on it.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from pml_extensions.functional.distances import (
    SHORTEST_VECTOR,
    paired_distances,
    per_distance,
    root,
    unit_vectors,
)
from pml_extensions.functional.warps import Warp, slope


class Similarity(Protocol):
    """A similarity of vectors x, shape (N, D), and p, shape (C, D): larger is more similar."""

    def paired(self, x: Tensor, p: Tensor) -> Tensor:
        """Return the similarities of x_i and p_i, both (N, D), shape (N,); differentiable."""
        ...

    def of_products(self, products: Tensor, x_squared: Tensor, p_squared: Tensor) -> Tensor:
        """Return the similarities of all pairs, shape (N, C).

        Args:
            products: ``x @ p.t()``, shape (N, C).
            x_squared: Squared lengths of x, shape (N, 1).
            p_squared: Squared lengths of p, shape (1, C).
        """
        ...

    def backward(
        self,
        grad: Tensor,
        products: Tensor,
        similarities: Tensor,
        x_squared: Tensor,
        p_squared: Tensor,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return the parts (A, a, b) of the gradient: A p + a x for x, and A' x + b p for p.

        Args:
            grad: Gradient of the similarities, shape (N, C).
            products: ``x @ p.t()``, shape (N, C).
            similarities: What ``of_products`` returned.
            x_squared: Squared lengths of x, shape (N, 1).
            p_squared: Squared lengths of p, shape (1, C).

        Returns:
            A of shape (N, C), a of shape (N, 1) and b of shape (1, C); None stands for zeros.
        """
        ...


def similarity_matrix(similarity: Similarity, x: Tensor, p: Tensor) -> Tensor:
    """Return the similarities of all pairs, shape (N, C), differentiable as it stands.

    Args:
        similarity: How to compare.
        x: Shape (N, D).
        p: Shape (C, D).
    """
    return similarity.of_products(x @ p.t(), squared_lengths(x).unsqueeze(1), squared_lengths(p))


def squared_lengths(x: Tensor) -> Tensor:
    """Return the squared lengths of the rows of ``x``, shape (N,)."""
    return torch.linalg.vector_norm(x, dim=1).square()


class DotProduct:
    """The dot product x.p."""

    def paired(self, x: Tensor, p: Tensor) -> Tensor:
        """Return x_i.p_i, shape (N,)."""
        return (x * p).sum(dim=1)

    def of_products(self, products: Tensor, x_squared: Tensor, p_squared: Tensor) -> Tensor:
        """Return the products themselves."""
        return products

    def backward(
        self,
        grad: Tensor,
        products: Tensor,
        similarities: Tensor,
        x_squared: Tensor,
        p_squared: Tensor,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return the parts of the gradient, see :class:`Similarity`."""
        return grad, None, None


class Cosine:
    """The cosine of x and p; 0 with zero gradient where a vector has no direction.

    Args:
        normalize_embeddings: False compares x with p / |p| and leaves the length of x in.
    """

    def __init__(self, normalize_embeddings: bool = True) -> None:
        self.normalize_embeddings = normalize_embeddings

    def paired(self, x: Tensor, p: Tensor) -> Tensor:
        """Return the cosines of x_i and p_i, shape (N,)."""
        x = unit_vectors(x) if self.normalize_embeddings else x
        return (x * unit_vectors(p)).sum(dim=1)

    def of_products(self, products: Tensor, x_squared: Tensor, p_squared: Tensor) -> Tensor:
        """Return the cosines of all pairs, shape (N, C)."""
        if self.normalize_embeddings:
            products = products * inverse_length(x_squared)
        return products * inverse_length(p_squared)

    def backward(
        self,
        grad: Tensor,
        products: Tensor,
        similarities: Tensor,
        x_squared: Tensor,
        p_squared: Tensor,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return the parts of the gradient, see :class:`Similarity`."""
        inverse_p = inverse_length(p_squared)
        along = grad * similarities
        p_part = -along.sum(dim=0, keepdim=True) * inverse_p.square()
        grad = grad * inverse_p
        if not self.normalize_embeddings:
            return grad, None, p_part
        inverse_x = inverse_length(x_squared)
        return grad * inverse_x, -along.sum(dim=1, keepdim=True) * inverse_x.square(), p_part


class NegativeDistance:
    """Minus the Euclidean distance, or minus a function of it.

    All pairs are compared by |x|^2 + |p|^2 - 2 x.p, which loses digits for close points far from
    the origin (in float32 17 % at separation 0.1 and length 64): shift both towards it before.
    ``paired`` takes the direct difference and loses none; ``class_sums`` does so for the nearest
    pairs.

    Args:
        warp: Function f of the distances, element by element, for minus f(|x - p|).
    """

    def __init__(self, warp: Warp | None = None) -> None:
        self.warp = warp

    def paired(self, x: Tensor, p: Tensor) -> Tensor:
        """Return minus the (warped) distances of x_i and p_i, shape (N,)."""
        distances = paired_distances(x, p)
        return -distances if self.warp is None else -self.warp(distances)

    def paired_gradient(self, grad: Tensor, x: Tensor, p: Tensor) -> Tensor:
        """Return the gradient for x of ``paired``; that for p is minus the same.

        Args:
            grad: Gradient of the similarities, shape (N,).
            x: Shape (N, D).
            p: Shape (N, D).

        Returns:
            Shape (N, D).
        """
        distances = paired_distances(x, p)
        if self.warp is not None:
            grad = grad * slope(self.warp, distances)
        return per_distance(-grad, distances).unsqueeze(1) * (x - p)

    def of_products(self, products: Tensor, x_squared: Tensor, p_squared: Tensor) -> Tensor:
        """Return minus the (warped) distances of all pairs, shape (N, C)."""
        distances = _distances(products, x_squared, p_squared)
        return -distances if self.warp is None else -self.warp(distances)

    def backward(
        self,
        grad: Tensor,
        products: Tensor,
        similarities: Tensor,
        x_squared: Tensor,
        p_squared: Tensor,
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """Return the parts of the gradient, see :class:`Similarity`."""
        distances = -similarities
        if self.warp is not None:
            distances = _distances(products, x_squared, p_squared)
            grad = grad * slope(self.warp, distances)
        grad = per_distance(grad, distances)
        return grad, -grad.sum(dim=1, keepdim=True), -grad.sum(dim=0, keepdim=True)


def _distances(products: Tensor, x_squared: Tensor, p_squared: Tensor) -> Tensor:
    return root((x_squared + p_squared - 2 * products).clamp_min(0))


def inverse_length(squared: Tensor) -> Tensor:
    """Return 1 / |x| from |x|^2, and 0 where x has no direction."""
    has_direction = squared > SHORTEST_VECTOR**2
    return squared.where(has_direction, torch.ones_like(squared)).rsqrt() * has_direction
