"""The contract of losses that hold a vector for each class."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from pytorch_metric_learning import regularizers
from torch import Tensor

from pml_extensions.testing._batches import Refusal
from pml_extensions.testing._case import call, gradients
from pml_extensions.testing.loss_contract import LossContract


class ProxyLossContract(LossContract):
    """What a loss with one proxy a class owes beyond :class:`LossContract`.

    The proxies are expected as a parameter ``proxies`` of shape (num_classes, embedding_size);
    override ``proxies`` where they are elsewhere.
    """

    def proxies(self, loss: Any) -> Tensor:
        """Return the proxies, shape (num_classes, embedding_size), as a view of the parameter."""
        proxies: Tensor = loss.proxies
        return proxies

    def test_weight_regularizer_is_added(self) -> None:
        """``weight_regularizer`` adds its value times ``weight_reg_weight``.

        For losses with ``weight_regularizer``.

        Convention: weight_regularizer= has no effect.
        """
        x, labels = self.batch()
        loss = self.seeded_loss(
            weight_regularizer=regularizers.LpRegularizer(), weight_reg_weight=0.3
        )
        plain = self.value(x, labels)
        self.same(call(loss, x, labels), plain + 0.3 * self.proxies(loss).norm(dim=1).mean())

    def test_weight_init_func_is_used(self) -> None:
        """``weight_init_func`` initialises the proxies.

        For losses with ``weight_init_func``.

        Convention: weight_init_func= has no effect.
        """
        loss = self.make_loss(weight_init_func=lambda w: torch.nn.init.constant_(w, 0.25))
        assert self.proxies(loss).shape == (self.num_classes, self.embedding_size)
        assert (self.proxies(loss) == 0.25).all()

    def test_miner_weights_multiply_the_samples(self) -> None:
        """A sample counts as often as a miner names it, relative to the one named most often.

        For losses with ``sub_loss_names``.

        Convention: miners do not weigh samples.
        """
        x, labels = self.batch()
        named = ([0, 0], [5, 5], [1, 2])
        weights = torch.zeros(len(x), device=x.device)
        weights[[0, 5]], weights[[1, 2]] = 1.0, 0.5
        triplets = tuple(torch.tensor(index, device=x.device) for index in named)
        plain, weighted = self.raw(x, labels), self.raw(x, labels, triplets)
        per_sample = [name for name in plain if plain[name]["reduction_type"] == "element"]
        assert per_sample, "no sub-loss has an entry for each sample"
        for name in per_sample:
            self.same(weighted[name]["losses"], plain[name]["losses"] * weights, name)

    def test_samples_are_independent(self) -> None:
        """The loss of a sample does not depend on the rest of the batch.

        Then DistributedDataParallel around the loss gives the gradient of the full batch; a loss
        that is exempt from this needs ``DistributedLossWrapper``. A sub-loss that is already
        reduced must be the mean of those of both halves of a batch, and one of pairs or triplets
        depends on the rest by its nature.

        For losses with ``sub_loss_names``.

        Convention: under DistributedDataParallel the gradient is not that of the full batch; use
        PML's DistributedLossWrapper.
        """
        x, labels = self.batch()
        half = len(x) // 2
        parts = [slice(half), slice(half, 2 * half)]
        whole = self.raw(x[: 2 * half], labels[: 2 * half])
        halves = [self.raw(x[part], labels[part]) for part in parts]
        for name, sub_loss in whole.items():
            kind, losses = sub_loss["reduction_type"], sub_loss["losses"]
            assert kind in ("element", "already_reduced"), f"{name} has an entry for each {kind}"
            found = [one[name]["losses"] for one in halves]
            if kind == "element":
                self.same(torch.cat(found), losses, name)
            elif isinstance(losses, Tensor):  # PML's zero, a plain number, is the same everywhere
                self.same(torch.stack(found).mean(dim=0), losses, name)

    def test_embeddings_on_their_proxies_are_finite(self) -> None:
        """Where distances vanish, gradients do not become infinite.

        Wrong result: weights become NaN as embeddings reach their proxies, where training takes
        them.
        """
        loss = self.seeded_loss()
        labels = torch.arange(self.num_classes, device=self.device)
        for part, tensor in gradients(loss, self.proxies(loss), labels).items():
            assert tensor.isfinite().all(), f"{part} is not finite"

    def test_gradient_of_parameters_is_the_derivative(self) -> None:
        """Backward agrees with finite differences in float64, for each parameter.

        Wrong result: the loss's parameters learn something else.
        """
        x, labels = self.batch(torch.float64, n=2 * self.num_classes)
        loss = self.seeded_loss().double()
        names, values = zip(*loss.named_parameters(), strict=True)

        def value(*parameters: Tensor) -> Any:
            torch.manual_seed(1)
            given = dict(zip(names, parameters, strict=True))
            buffers = {name: buffer.clone() for name, buffer in loss.named_buffers()}
            return torch.func.functional_call(loss, {**given, **buffers}, (x.detach(), labels))

        torch.autograd.gradcheck(value, values, fast_mode=self.fast_gradcheck)

    @pytest.mark.parametrize("name", ["num_classes", "minus_1", "minus_100"])
    def test_labels_out_of_range_are_refused(self, name: str) -> None:
        """No label without a proxy is taken silently, nor -100, which PyTorch may ignore.

        Convention: a wrong label is computed with.
        """
        if self.device != "cpu":
            pytest.skip("an invalid label stops an accelerator for good")
        x, labels = self.batch()
        wrong = labels.clone()
        wrong[4] = {"num_classes": self.num_classes, "minus_1": -1, "minus_100": -100}[name]
        with pytest.raises(Refusal):
            self.seeded_loss()(x, wrong)

    def test_another_embedding_size_is_refused(self) -> None:
        """Embeddings must have the size of the proxies.

        Convention: a wrong size is computed with.
        """
        x, labels = self.batch()
        with pytest.raises(Refusal):
            self.seeded_loss()(x[:, :-1], labels)

    def test_sizes_are_recorded(self) -> None:
        """PML records 0 for a name that a loss lists but never sets.

        For losses with ``add_to_recordable_attributes``.

        Convention: PML's record keeper lacks the sizes.
        """
        loss = self.make_loss()
        for name in ("num_classes", "embedding_size"):
            assert getattr(loss, name, None) == getattr(self, name), f"loss.{name} is not set"
            assert name in loss._record_these, f"{name} is not among the recordable attributes"

    def test_logits_are_larger_for_the_more_similar_class(self) -> None:
        """``get_logits`` is largest for the own class on orthogonal proxies themselves.

        For losses with ``get_logits``.

        Wrong result: get_logits predicts the wrong class.
        """
        loss = self.seeded_loss().eval()
        directions = torch.eye(max(self.num_classes, self.embedding_size), device=self.device)
        proxies = directions[: self.num_classes, : self.embedding_size]
        with torch.no_grad():
            self.proxies(loss).copy_(proxies)
            logits = loss.get_logits(proxies)
        usable = min(self.num_classes, self.embedding_size)
        assert logits.shape == (self.num_classes, self.num_classes)
        assert logits[:usable].argmax(dim=1).tolist() == list(range(usable))

    def test_logits_are_float32_under_autocast(self) -> None:
        """``get_logits`` loses no precision in mixed precision.

        For losses with ``get_logits``.

        Convention: logits have three digits inside of torch.autocast.
        """
        x, _ = self.batch()
        loss = self.seeded_loss()
        with torch.autocast(torch.device(self.device).type, dtype=torch.bfloat16):
            logits = loss.get_logits(x)
        assert logits.dtype == torch.float32
        torch.testing.assert_close(logits, loss.get_logits(x), rtol=0, atol=0)
