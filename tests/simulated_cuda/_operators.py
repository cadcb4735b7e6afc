"""What is known of torch's operators: which only look, which wait, which take CPU tensors."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch

#: The host must know how large the result is, or what is in it.
_WAITING = frozenset(
    [
        "_coalesce",
        "_linalg_check_errors",
        "_local_scalar_dense",
        "_to_sparse",
        "_unique",
        "_unique2",
        "allclose",
        "bincount",
        "equal",
        "histc",
        "is_nonzero",
        "masked_select",
        "multinomial",
        "nonzero",
        "unique_consecutive",
        "unique_dim",
    ]
)
#: CUDA has no products of integers.
_PRODUCTS = frozenset(["addbmm", "addmm", "addmv", "baddbmm", "bmm", "dot", "mm", "mv"])
#: Besides the elementwise ones these take a number that lies on the CPU.
_TAKE_NUMBERS = frozenset(
    [
        "_amp_foreach_non_finite_check_and_unscale_",
        "_local_scalar_dense",
        "fill",
        "fill_",
        "index_fill",
        "index_fill_",
        "masked_fill",
        "masked_fill_",
        "where",
    ]
)
_INDEXING = frozenset(["_index_put_impl_", "index", "index_put", "index_put_"])
_COPIES = frozenset(["_to_copy", "copy_"])
_NO_KERNEL = frozenset(["alias", "detach", "lift_fresh"])


@dataclass(frozen=True)
class Operator:
    """What the simulation needs to know of one.

    Attributes:
        name: without namespace and overload.
        looks_only: it starts nothing on the GPU.
        waits: it makes the host wait.
        draws: it takes random numbers.
        writes: it changes an argument.
        reshapes: it changes the shape of its argument.
        copies: it may carry a tensor from one device to another.
        indexes: it may take indices from the CPU.
        takes_numbers: it takes single numbers from the CPU.
        is_product: of matrices or vectors.
    """

    name: str
    looks_only: bool
    waits: bool
    draws: bool
    writes: bool
    reshapes: bool
    copies: bool
    indexes: bool
    takes_numbers: bool
    is_product: bool


@functools.cache
def known(func: Any) -> Operator:
    """What is known of an operator of torch."""
    schema = func._schema
    name = schema.name.partition("::")[2]
    aliases = (result.alias_info for result in schema.returns)
    is_view = any(alias is not None and not alias.is_write for alias in aliases)
    elementwise = torch.Tag.pointwise in func.tags or name.startswith("_foreach_")
    reshapes = torch.Tag.inplace_view in func.tags
    return Operator(
        name=name,
        looks_only=is_view or reshapes or name in _NO_KERNEL,
        waits=name in _WAITING,
        draws=torch.Tag.nondeterministic_seeded in func.tags,
        writes=schema.is_mutable,
        reshapes=reshapes,
        copies=name in _COPIES,
        indexes=name in _INDEXING,
        takes_numbers=elementwise or name in _TAKE_NUMBERS,
        is_product=name in _PRODUCTS,
    )
