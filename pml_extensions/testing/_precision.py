"""A loss in low precision, in double precision and under autocast."""

from __future__ import annotations

import pytest
import torch

from pml_extensions.testing._case import LossCase, gradients


class PrecisionChecks(LossCase):
    """The loss computes in float32 at least, and its parameters keep their type."""

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
    def test_low_precision_embeddings_are_computed_in_float32(self, dtype: torch.dtype) -> None:
        """The value is that of the same numbers in float32; only the gradient is cast back.

        Convention: of half-precision embeddings a value has three digits, or none.
        """
        x, labels = self.batch(dtype)
        loss = self.seeded_loss()
        before = {name: p.dtype for name, p in loss.named_parameters()}
        found = gradients(loss, x, labels)
        exact = gradients(self.seeded_loss(), x.detach().float(), labels)
        assert {name: p.dtype for name, p in loss.named_parameters()} == before
        assert all(p.grad is None or p.grad.dtype == p.dtype for p in loss.parameters())
        assert found["embeddings"].dtype == dtype
        assert found["value"].dtype == torch.float32
        torch.testing.assert_close(
            found["value"], exact["value"], rtol=self.low_precision_rtol, atol=0
        )

    def test_double_precision_is_computed_in_double(self) -> None:
        """float64 embeddings give a float64 value, also with float32 parameters.

        Convention: float64 embeddings fail or lose digits.
        """
        x, labels = self.batch(torch.float64)
        found = gradients(self.seeded_loss(), x, labels)
        single = gradients(self.seeded_loss(), x.detach().float(), labels)
        assert found["value"].dtype == found["embeddings"].dtype == torch.float64
        self.same(found["value"].float(), single["value"])

    def test_autocast_changes_nothing(self) -> None:
        """float32 embeddings inside autocast give the value and gradients of those outside.

        Convention: inside of torch.autocast the loss has three digits; call it outside.
        """
        x, labels = self.batch()
        loss = self.seeded_loss()
        found = gradients(loss, x, labels, autocast=True)
        expected = gradients(self.seeded_loss(), x, labels)
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
        assert all(p.dtype == torch.float32 for p in loss.parameters())

    @pytest.mark.parametrize(
        "dtype",
        [torch.bfloat16, torch.float16, torch.float32, torch.float64],
        ids=["bfloat16", "float16", "float32", "float64"],
    )
    def test_an_optimizer_steps_after_any_dtype(self, dtype: torch.dtype) -> None:
        """A step between two of float32 neither fails nor changes a parameter's type.

        Convention: a batch of another float type ends the training.
        """
        model = self.scaled_loss()
        optimizer = self.make_optimizer(model.parameters())
        for step_dtype in (torch.float32, dtype, torch.float32):
            x, labels = self.batch()
            optimizer.zero_grad()
            model(x.detach(), labels, step_dtype).backward()
            optimizer.step()
        assert (model.weight != 1).any(), "the gradient does not reach the network"
        assert all(p.isfinite().all() and p.dtype == torch.float32 for p in model.parameters())
