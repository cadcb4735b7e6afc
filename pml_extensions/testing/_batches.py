"""Checks of a loss on unusual batches: degenerate, invalid, reordered."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pml_extensions.testing._case import LossCase, call, gradients

#: Exceptions that PyTorch, PML or a loss may raise for invalid input.
Refusal = (ValueError, IndexError, RuntimeError, TypeError)


class BatchChecks(LossCase):
    """Every batch gives finite gradients, and invalid input raises an error."""

    @pytest.mark.parametrize(
        "name",
        ["empty", "one", "one_class", "zeros", "coincident", "tiny", "huge", "float16_extremes"],
    )
    def test_degenerate_batches_are_finite(self, name: str) -> None:
        """The value and every gradient are finite for each degenerate batch.

        Wrong result if it fails: one such batch makes all weights NaN.
        """
        x, labels = self.degenerate_batch(name)
        for part, tensor in gradients(self.seeded_loss(), x, labels).items():
            assert tensor.isfinite().all(), f"{part} is not finite"

    def degenerate_batch(self, name: str) -> tuple[Tensor, Tensor]:
        """Return embeddings and labels of one case of ``test_degenerate_batches_are_finite``."""
        size, classes = self.embedding_size, min(4, self.num_classes)
        labels = torch.arange(8) % classes
        # Signs alternate over dimensions, and over the samples of a class.
        signs = 1.0 - 2.0 * ((torch.arange(8)[:, None] // classes + torch.arange(size)) % 2)
        x, labels = {
            "empty": (torch.zeros(0, size), labels[:0]),
            "one": (torch.ones(1, size), labels[-1:]),
            "one_class": (torch.eye(4, size), torch.full((4,), classes - 1)),
            "zeros": (torch.zeros(8, size), labels),
            "coincident": (torch.ones(8, size), labels),
            "tiny": (torch.full((8, size), 1e-30), labels),
            "huge": (torch.full((8, size), 1e4), labels),
            # 65504 is the largest number of float16.
            "float16_extremes": ((65504 * signs).half(), labels),
        }[name]
        return x.to(self.device), labels.to(self.device)

    def test_a_nan_embedding_shows_in_the_loss(self) -> None:
        """A NaN in an embedding makes the loss NaN.

        Wrong result if it fails: diverged training goes unnoticed.
        """
        x, labels = self.batch()
        embeddings = x.detach().clone()
        embeddings[3, 2] = torch.nan
        assert self.value(embeddings, labels).isnan()

    def test_inputs_are_left_alone(self) -> None:
        """The loss does not modify embeddings, labels or mined indices.

        Wrong result if it fails: other losses and metrics of the same batch get modified inputs.
        """
        x, labels = self.batch()
        x = x.detach()
        # Anchors, their positives, anchors again, and their negatives.
        pairs = tuple(torch.tensor(i, device=x.device) for i in ([0, 1], [5, 6], [2, 3], [4, 7]))
        inputs = [x, labels, *pairs]
        before = [tensor.clone() for tensor in inputs]
        loss = self.seeded_loss()
        # Only PML's losses take mined pairs.
        mined = [pairs] if hasattr(loss, "sub_loss_names") else []
        call(loss, x, labels, *mined)
        torch.testing.assert_close(inputs, before, rtol=0, atol=0)

    def test_order_of_samples_does_not_matter(self) -> None:
        """A permuted batch has the same value, and its gradient is permuted in the same way.

        Wrong result if it fails: training depends on the order of samples in a batch.
        """
        x, labels = self.batch(torch.float64)
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(2)).to(x.device)
        expected = gradients(self.seeded_loss().double(), x, labels)
        expected["embeddings"] = expected["embeddings"][order]
        self.same(gradients(self.seeded_loss().double(), x[order], labels[order]), expected)

    def test_names_of_classes_do_not_matter(self) -> None:
        """Permuting the labels and the class-wise parameters in the same way keeps the value.

        Wrong result if it fails: training depends on which label a class has.
        """
        x, labels = self.batch(torch.float64)
        expected = call(self.seeded_loss().double(), x, labels)
        new_label = torch.arange(self.num_classes, device=x.device).roll(2)
        loss = self.seeded_loss().double()
        self.rename_classes(loss, new_label)
        self.same(call(loss, x, new_label[labels]), expected)

    def rename_classes(self, loss: torch.nn.Module, new_label: Tensor) -> None:
        """Permute the class-wise tensors of the loss, so that class c gets label ``new_label[c]``.

        By default this permutes every dimension of length ``num_classes`` of parameters and
        buffers. Override it if the loss stores classes in another way.
        """
        assert self.num_classes != self.embedding_size, "num_classes must not be embedding_size"
        with torch.no_grad():
            for tensor in (*loss.parameters(), *loss.buffers()):
                for dim, length in enumerate(tensor.shape):
                    if length == self.num_classes:
                        tensor.copy_(tensor.clone().index_copy(dim, new_label, tensor.clone()))

    def test_labels_may_be_int32(self) -> None:
        """int32 labels give the same value as int64 labels.

        Broken convention if it fails: int32 labels are refused; write labels.long().
        """
        x, labels = self.batch()
        self.same(self.value(x, labels.int()), self.value(x, labels))

    def test_calls_without_labels_are_refused(self) -> None:
        """A call without labels raises ValueError, if the loss requires them.

        Applies only to losses with ``sub_loss_names``.

        Broken convention if it fails: missing labels raise an obscure error, or none at all.
        """
        if not self.labels_required:
            pytest.skip("labels_required is False")
        with pytest.raises(ValueError, match="labels"):
            self.make_loss().to(self.device)(self.batch()[0])

    def test_wrong_shapes_are_refused(self) -> None:
        """Three-dimensional embeddings, and labels of another length or shape, raise an error.

        Broken convention if it fails: wrong shapes are accepted.
        """
        x, labels = self.batch()
        loss = self.seeded_loss()
        for embeddings, wrong in ((x[:, :, None], labels), (x, labels[1:]), (x, labels[:, None])):
            with pytest.raises(Refusal):
                loss(embeddings, wrong)

    def test_reference_embeddings(self) -> None:
        """``ref_emb`` gets gradients if it is supported, and raises ValueError otherwise.

        Applies only to losses with ``sub_loss_names``.

        Broken convention if it fails: ref_emb=, which CrossBatchMemory passes, is ignored or fails.
        """
        x, labels = self.batch()
        ref = x.detach().flip(0).mul(0.9).requires_grad_()
        loss = self.seeded_loss()
        if not self.supports_ref_emb:
            with pytest.raises(ValueError, match="ref_emb"):
                loss(x, labels, ref_emb=ref, ref_labels=labels.flip(0))
            return
        value = call(loss, x, labels, ref_emb=ref, ref_labels=labels.flip(0))
        value.backward()
        assert value.isfinite()
        for tensor in (x, ref):
            assert tensor.grad is not None
            assert tensor.grad.isfinite().all()
            assert tensor.grad.any()
