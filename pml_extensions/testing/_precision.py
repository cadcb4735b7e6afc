"""Checks of a loss in low precision, in double precision and under autocast."""

from __future__ import annotations

import pytest
import torch

from pml_extensions.testing._case import LossCase, gradients


class PrecisionChecks(LossCase):
    """The loss computes in float32 at least, and its parameters keep their dtype."""

    @pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
    def test_low_precision_embeddings_are_computed_in_float32(self, dtype: torch.dtype) -> None:
        """The value equals that for the same embeddings in float32; the gradient is cast back.

        Broken convention if it fails: with half-precision embeddings the value has three correct
        digits, or none.
        """
        x, labels = self.batch(dtype)
        loss = self.seeded_loss()
        before = {name: p.dtype for name, p in loss.named_parameters()}
        actual = gradients(loss, x, labels)
        exact = gradients(self.seeded_loss(), x.detach().float(), labels)
        assert {name: p.dtype for name, p in loss.named_parameters()} == before
        assert all(p.grad is None or p.grad.dtype == p.dtype for p in loss.parameters())
        assert actual["embeddings"].dtype == dtype
        assert actual["value"].dtype == torch.float32
        torch.testing.assert_close(
            actual["value"], exact["value"], rtol=self.low_precision_rtol, atol=0
        )

    def test_double_precision_is_computed_in_double(self) -> None:
        """float64 embeddings give a float64 value, also with float32 parameters.

        Broken convention if it fails: float64 embeddings fail or lose precision.
        """
        x, labels = self.batch(torch.float64)
        actual = gradients(self.seeded_loss(), x, labels)
        single = gradients(self.seeded_loss(), x.detach().float(), labels)
        assert actual["value"].dtype == actual["embeddings"].dtype == torch.float64
        self.same(actual["value"].float(), single["value"])

    def test_autocast_changes_nothing(self) -> None:
        """Under autocast, float32 embeddings give the same value and gradients as without it.

        Broken convention if it fails: under torch.autocast the loss has three correct digits; call
        it outside.
        """
        x, labels = self.batch()
        loss = self.seeded_loss()
        actual = gradients(loss, x, labels, autocast=True)
        expected = gradients(self.seeded_loss(), x, labels)
        torch.testing.assert_close(actual, expected, rtol=0, atol=0)
        assert all(p.dtype == torch.float32 for p in loss.parameters())

    @pytest.mark.parametrize(
        "dtype",
        [torch.bfloat16, torch.float16, torch.float32, torch.float64],
        ids=["bfloat16", "float16", "float32", "float64"],
    )
    def test_an_optimizer_steps_after_any_dtype(self, dtype: torch.dtype) -> None:
        """A step in any dtype, between float32 steps, works and keeps the dtype of parameters.

        Broken convention if it fails: a batch of another dtype ends the training.
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
