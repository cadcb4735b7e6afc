"""Numerically stable functions that the losses and metrics are built from."""

from pml_extensions._shared.numerics import (
    paired_distances,
    pairwise_distances,
    unit_vectors,
    without_autocast,
)
from pml_extensions.functional.distances import directions
from pml_extensions.functional.memory import free_memory
from pml_extensions.functional.precision import allow_tf32, without_tf32
from pml_extensions.functional.warps import Piecewise, Power, Scaled, Warp

__all__ = [
    "Piecewise",
    "Power",
    "Scaled",
    "Warp",
    "allow_tf32",
    "directions",
    "free_memory",
    "paired_distances",
    "pairwise_distances",
    "unit_vectors",
    "without_autocast",
    "without_tf32",
]
