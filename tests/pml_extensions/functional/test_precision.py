"""Switching TF32 off or on for a while, whichever of torch's switches allowed it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from pml_extensions.functional import allow_tf32, without_tf32

MATMUL: Any = torch.backends.cuda.matmul
CUDNN: Any = torch.backends.cudnn
NEW = hasattr(MATMUL, "fp32_precision")
GPU = torch.device("cuda")

needs_new = pytest.mark.skipif(not NEW, reason="torch before 2.9")


def by_old_switch() -> None:
    MATMUL.allow_tf32 = True


def by_new_switch() -> None:
    MATMUL.fp32_precision = "tf32"


def for_everything() -> None:
    torch.backends.fp32_precision = "tf32"


def by_name() -> None:
    torch.set_float32_matmul_precision("high")


def without_cudnn_by_old_switch() -> None:
    CUDNN.allow_tf32 = False


def without_convolutions_by_new_switch() -> None:
    CUDNN.conv.fp32_precision = "ieee"


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """TF32 as torch has it."""
    yield
    torch.set_float32_matmul_precision("highest")  # the old switch must agree with the new one
    CUDNN.allow_tf32 = True
    if NEW:
        torch.backends.fp32_precision = MATMUL.fp32_precision = "none"


def switches() -> list[str]:
    """What torch says of its switches, the refusals too."""
    values = []
    for read in (
        lambda: MATMUL.allow_tf32,
        lambda: MATMUL.fp32_precision,
        lambda: torch.get_float32_matmul_precision(),
        lambda: CUDNN.allow_tf32,
        lambda: CUDNN.conv.fp32_precision,
        lambda: CUDNN.rnn.fp32_precision,
    ):
        try:
            values.append(str(read()))
        except (RuntimeError, AttributeError) as error:
            values.append(type(error).__name__)
    return values


def is_allowed() -> bool:
    return MATMUL.fp32_precision == "tf32" if NEW else bool(MATMUL.allow_tf32)


def allowed_by_cudnn() -> set[bool]:
    """Of convolutions and of recurrent layers."""
    if not NEW:
        return {bool(CUDNN.allow_tf32)}
    return {part.fp32_precision == "tf32" for part in (CUDNN.conv, CUDNN.rnn)}


@pytest.mark.parametrize(
    "allow",
    [
        by_old_switch,
        by_name,
        pytest.param(by_new_switch, marks=needs_new),
        pytest.param(for_everything, marks=needs_new),
    ],
)
def test_tf32_is_off_meanwhile_and_as_before_after(allow: Callable[[], None]) -> None:
    allow()
    assert is_allowed()
    before = switches()
    with without_tf32(GPU):
        assert not is_allowed()
    assert switches() == before
    with pytest.raises(ZeroDivisionError), without_tf32(GPU):
        raise ZeroDivisionError
    assert switches() == before


def test_where_it_was_off_nothing_changes() -> None:
    before = switches()
    with without_tf32(GPU):
        assert not is_allowed()
    assert switches() == before


def test_on_a_cpu_nothing_is_touched() -> None:
    by_old_switch()
    with without_tf32(torch.device("cpu")):
        assert is_allowed()


@pytest.mark.parametrize("allowed", [False, True])
@pytest.mark.parametrize(
    "begin",
    [
        lambda: None,
        by_old_switch,
        by_name,
        without_cudnn_by_old_switch,
        *(
            pytest.param(begin, marks=needs_new)
            for begin in (by_new_switch, for_everything, without_convolutions_by_new_switch)
        ),
    ],
)
def test_products_and_convolutions_are_switched_together(
    begin: Callable[[], None], allowed: bool
) -> None:
    begin()
    before = switches()
    with allow_tf32(GPU, allowed):
        assert is_allowed() == allowed
        assert allowed_by_cudnn() == {allowed}
        with without_tf32(GPU):
            assert not is_allowed()
        assert is_allowed() == allowed
    assert switches() == before
    with pytest.raises(ZeroDivisionError), allow_tf32(GPU, allowed):
        raise ZeroDivisionError
    assert switches() == before


@pytest.mark.parametrize("allowed", [False, True])
def test_code_that_asks_by_the_old_switch_is_answered(allowed: bool) -> None:
    with allow_tf32(GPU, allowed):
        assert CUDNN.allow_tf32 == allowed
        with CUDNN.flags(enabled=False, allow_tf32=CUDNN.allow_tf32):
            assert allowed_by_cudnn() == {allowed}
        assert allowed_by_cudnn() == {allowed}


def test_on_a_cpu_convolutions_stay_as_they_are() -> None:
    before = switches()
    with allow_tf32(torch.device("cpu"), False):
        assert switches() == before
