"""A loss on batches that training meets seldom: degenerate, wrong, reordered."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from pml_extensions.testing._case import LossCase, call, gradients

#: What PyTorch and PML raise where a check of one's own would raise ValueError.
Refusal = (ValueError, IndexError, RuntimeError, TypeError)


class BatchChecks(LossCase):
    """No batch gives a gradient that destroys the weights, and no mistake passes silently."""

    @pytest.mark.parametrize(
        "name",
        ["empty", "one", "one_class", "zeros", "coincident", "tiny", "huge", "float16_extremes"],
    )
    def test_degenerate_batches_are_finite(self, name: str) -> None:
        """The value and every gradient are finite, whatever the batch holds.

        Wrong result: one such batch makes all weights NaN.
        """
        x, labels = self.degenerate_batch(name)
        for part, tensor in gradients(self.seeded_loss(), x, labels).items():
            assert tensor.isfinite().all(), f"{part} is not finite"

    def degenerate_batch(self, name: str) -> tuple[Tensor, Tensor]:
        """Return embeddings and labels of a case of ``test_degenerate_batches_are_finite``."""
        size, few = self.embedding_size, min(4, self.num_classes)
        eight = torch.arange(8) % few
        signs = 1.0 - 2.0 * ((torch.arange(8)[:, None] // few + torch.arange(size)) % 2)
        x, labels = {
            "empty": (torch.zeros(0, size), eight[:0]),
            "one": (torch.ones(1, size), eight[-1:]),
            "one_class": (torch.eye(4, size), torch.full((4,), few - 1)),
            "zeros": (torch.zeros(8, size), eight),
            "coincident": (torch.ones(8, size), eight),
            "tiny": (torch.full((8, size), 1e-30), eight),
            "huge": (torch.full((8, size), 1e4), eight),
            "float16_extremes": ((65504 * signs).half(), eight),
        }[name]
        return x.to(self.device), labels.to(self.device)

    def test_a_nan_embedding_shows_in_the_loss(self) -> None:
        """A network that has diverged must be noticed.

        Wrong result: a diverged training continues unnoticed.
        """
        x, labels = self.batch()
        bad = x.detach().clone()
        bad[3, 2] = torch.nan
        assert self.value(bad, labels).isnan()

    def test_inputs_are_left_alone(self) -> None:
        """The caller's embeddings, labels and mined indices are not written to.

        Wrong result: other losses of the batch and its metrics get changed numbers.
        """
        x, labels = self.batch()
        x = x.detach()
        pairs = tuple(torch.tensor(i, device=x.device) for i in ([0, 1], [5, 6], [2, 3], [4, 7]))
        given = (x, labels, *pairs)
        before = [tensor.clone() for tensor in given]
        loss = self.seeded_loss()
        call(loss, x, labels, *([pairs] if hasattr(loss, "sub_loss_names") else []))
        torch.testing.assert_close(list(given), before, rtol=0, atol=0)

    def test_order_of_samples_does_not_matter(self) -> None:
        """A reordered batch has the same value, and its gradient is reordered alike.

        Wrong result: what is learned depends on how a batch is sorted.
        """
        x, labels = self.batch(torch.float64)
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(2)).to(x.device)
        expected = gradients(self.seeded_loss().double(), x, labels)
        expected["embeddings"] = expected["embeddings"][order]
        self.same(gradients(self.seeded_loss().double(), x[order], labels[order]), expected)

    def test_names_of_classes_do_not_matter(self) -> None:
        """Other numbers for the same classes give the same value (see ``rename_classes``).

        Wrong result: what is learned depends on how classes are numbered.
        """
        x, labels = self.batch(torch.float64)
        expected = call(self.seeded_loss().double(), x, labels)
        new_name = torch.arange(self.num_classes, device=x.device).roll(2)
        loss = self.seeded_loss().double()
        self.rename_classes(loss, new_name)
        self.same(call(loss, x, new_name[labels]), expected)

    def rename_classes(self, loss: torch.nn.Module, new_name: Tensor) -> None:
        """Give class c the number ``new_name[c]`` in all tensors of the loss.

        By default along every dimension of length ``num_classes``; override it for a loss that
        keeps classes otherwise.
        """
        assert self.num_classes != self.embedding_size, "the checks need two different sizes"
        with torch.no_grad():
            for tensor in (*loss.parameters(), *loss.buffers()):
                for dimension, length in enumerate(tensor.shape):
                    if length == self.num_classes:
                        tensor.copy_(tensor.clone().index_copy(dimension, new_name, tensor.clone()))

    def test_labels_may_be_int32(self) -> None:
        """Labels of another integer type give the same value.

        Convention: labels must be int64; write labels.long().
        """
        x, labels = self.batch()
        self.same(self.value(x, labels.int()), self.value(x, labels))

    def test_calls_without_labels_are_refused(self) -> None:
        """Where labels are needed, their absence is an error of its own.

        For losses with ``sub_loss_names``.

        Convention: a forgotten argument is found later, or never.
        """
        if not self.labels_required:
            pytest.skip("labels_required is False")
        with pytest.raises(ValueError, match="labels"):
            self.make_loss().to(self.device)(self.batch()[0])

    def test_wrong_shapes_are_refused(self) -> None:
        """Embeddings of three dimensions, and labels of another length or shape, raise.

        Convention: a wrong shape is computed with.
        """
        x, labels = self.batch()
        loss = self.seeded_loss()
        for embeddings, wrong in ((x[:, :, None], labels), (x, labels[1:]), (x, labels[:, None])):
            with pytest.raises(Refusal):
                loss(embeddings, wrong)

    def test_reference_embeddings(self) -> None:
        """``ref_emb`` gets gradients where it is supported and is refused where it is not.

        For losses with ``sub_loss_names``.

        Convention: ref_emb= is ignored or fails; CrossBatchMemory hands it over.
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
