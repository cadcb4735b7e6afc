"""Switching TF32 off for a while, whichever of torch's switches allowed it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch

from pml_extensions.functional import without_tf32

MATMUL = torch.backends.cuda.matmul
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


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """TF32 as it was before the test."""
    if NEW:
        everything, products = torch.backends.fp32_precision, MATMUL.fp32_precision
        yield
        torch.set_float32_matmul_precision("highest")  # the old switch must agree with the new one
        torch.backends.fp32_precision, MATMUL.fp32_precision = everything, products
    else:
        before = MATMUL.allow_tf32
        yield
        MATMUL.allow_tf32 = before


def switches() -> list[str]:
    """What torch says of its switches, the refusals too."""
    found = []
    for read in (
        lambda: MATMUL.allow_tf32,
        lambda: MATMUL.fp32_precision,
        lambda: torch.get_float32_matmul_precision(),
    ):
        try:
            found.append(str(read()))
        except (RuntimeError, AttributeError) as error:
            found.append(type(error).__name__)
    return found


def is_allowed() -> bool:
    return MATMUL.fp32_precision == "tf32" if NEW else bool(MATMUL.allow_tf32)


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
