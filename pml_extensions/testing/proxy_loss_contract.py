"""The contract of losses with one learned vector (proxy) per class."""

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
    """The checks of :class:`LossContract`, and more for losses with one proxy per class.

    The proxies are expected as a parameter ``proxies`` of shape (num_classes, embedding_size);
    override the method ``proxies`` if the loss stores them in another way.
    """

    def proxies(self, loss: Any) -> Tensor:
        """Return the proxies, shape (num_classes, embedding_size), as a view of the parameter."""
        proxies: Tensor = loss.proxies
        return proxies

    def test_weight_regularizer_is_added(self) -> None:
        """``weight_regularizer`` adds its value times ``weight_reg_weight``.

        Applies only to losses with ``weight_regularizer``.

        Broken convention if it fails: weight_regularizer= has no effect.
        """
        x, labels = self.batch()
        loss = self.seeded_loss(
            weight_regularizer=regularizers.LpRegularizer(), weight_reg_weight=0.3
        )
        plain = self.value(x, labels)
        self.same(call(loss, x, labels), plain + 0.3 * self.proxies(loss).norm(dim=1).mean())

    def test_weight_init_func_is_used(self) -> None:
        """``weight_init_func`` initialises the proxies.

        Applies only to losses with ``weight_init_func``.

        Broken convention if it fails: weight_init_func= has no effect.
        """
        loss = self.make_loss(weight_init_func=lambda w: torch.nn.init.constant_(w, 0.25))
        assert self.proxies(loss).shape == (self.num_classes, self.embedding_size)
        assert (self.proxies(loss) == 0.25).all()

    def test_miner_weights_multiply_the_samples(self) -> None:
        """The weight of a sample is the number of its occurrences in the miner's indices.

        Weights are divided by the largest one.

        Applies only to losses with ``sub_loss_names``.

        Broken convention if it fails: miners do not weight samples.
        """
        x, labels = self.batch()
        # Anchors, positives and negatives: samples 0 and 5 occur twice, 1 and 2 once, others never.
        mined = ([0, 0], [5, 5], [1, 2])
        weights = torch.zeros(len(x), device=x.device)
        weights[[0, 5]], weights[[1, 2]] = 1.0, 0.5
        triplets = tuple(torch.tensor(index, device=x.device) for index in mined)
        plain, weighted = self.raw(x, labels), self.raw(x, labels, triplets)
        per_sample = [name for name in plain if plain[name]["reduction_type"] == "element"]
        assert per_sample, "no sub-loss has an entry for each sample"
        for name in per_sample:
            self.same(weighted[name]["losses"], plain[name]["losses"] * weights, name)

    def test_samples_are_independent(self) -> None:
        """The loss of a sample does not depend on the other samples of the batch.

        Then the loss in DistributedDataParallel gets the gradient of the full batch; a loss that is
        exempt from this check needs ``DistributedLossWrapper``. A sub-loss that is already reduced
        must be the mean over both halves of a batch. Losses on pairs or triplets fail this check.

        Applies only to losses with ``sub_loss_names``.

        Broken convention if it fails: under DistributedDataParallel the gradient is not that of the
        full batch; use PML's DistributedLossWrapper.
        """
        x, labels = self.batch()
        half = len(x) // 2
        full = self.raw(x[: 2 * half], labels[: 2 * half])
        halves = [self.raw(x[rows], labels[rows]) for rows in (slice(half), slice(half, 2 * half))]
        for name, sub_loss in full.items():
            kind, losses = sub_loss["reduction_type"], sub_loss["losses"]
            assert kind in ("element", "already_reduced"), f"{name} has an entry for each {kind}"
            actual = [loss_dict[name]["losses"] for loss_dict in halves]
            if kind == "element":
                self.same(torch.cat(actual), losses, name)
            elif isinstance(losses, Tensor):  # PML's zero loss is a plain number
                self.same(torch.stack(actual).mean(dim=0), losses, name)

    def test_embeddings_on_their_proxies_are_finite(self) -> None:
        """Value and gradients are finite if embeddings equal their proxies.

        Wrong result if it fails: weights become NaN when training brings embeddings onto their
        proxies.
        """
        loss = self.seeded_loss()
        labels = torch.arange(self.num_classes, device=self.device)
        for name, tensor in gradients(loss, self.proxies(loss), labels).items():
            assert tensor.isfinite().all(), f"{name} is not finite"

    def test_gradient_of_parameters_is_the_derivative(self) -> None:
        """Backward agrees with finite differences in float64, for each parameter.

        Wrong result if it fails: the loss's parameters are trained with a wrong gradient.
        """
        x, labels = self.batch(torch.float64, n=2 * self.num_classes)
        loss = self.seeded_loss().double()
        names, values = zip(*loss.named_parameters(), strict=True)

        def value(*parameters: Tensor) -> Any:
            torch.manual_seed(1)
            state = dict(zip(names, parameters, strict=True))
            # Copies, because some losses change their buffers with each batch.
            state |= {name: buffer.clone() for name, buffer in loss.named_buffers()}
            return torch.func.functional_call(loss, state, (x.detach(), labels))

        torch.autograd.gradcheck(value, values, fast_mode=self.fast_gradcheck)

    @pytest.mark.parametrize("name", ["num_classes", "minus_1", "minus_100"])
    def test_labels_out_of_range_are_refused(self, name: str) -> None:
        """Labels out of range raise an error, even -100, which PyTorch ignores by default.

        Broken convention if it fails: wrong labels are accepted.
        """
        if self.device != "cpu":
            pytest.skip("a device-side assertion makes an accelerator unusable")
        x, labels = self.batch()
        wrong = labels.clone()
        wrong[4] = {"num_classes": self.num_classes, "minus_1": -1, "minus_100": -100}[name]
        with pytest.raises(Refusal):
            self.seeded_loss()(x, wrong)

    def test_another_embedding_size_is_refused(self) -> None:
        """Embeddings whose dimension differs from that of the proxies raise an error.

        Broken convention if it fails: a wrong embedding size is accepted.
        """
        x, labels = self.batch()
        with pytest.raises(Refusal):
            self.seeded_loss()(x[:, :-1], labels)

    def test_sizes_are_recorded(self) -> None:
        """``num_classes`` and ``embedding_size`` are recordable attributes of the loss.

        PML records 0 for a name that a loss lists but never sets.

        Applies only to losses with ``add_to_recordable_attributes``.

        Broken convention if it fails: PML's record keeper does not record the sizes.
        """
        loss = self.make_loss()
        for name in ("num_classes", "embedding_size"):
            assert getattr(loss, name, None) == getattr(self, name), f"loss.{name} is not set"
            assert name in loss._record_these, f"{name} is not among the recordable attributes"

    def test_logits_are_larger_for_the_more_similar_class(self) -> None:
        """If embeddings equal orthogonal proxies, each has its largest logit for its own class.

        Applies only to losses with ``get_logits``.

        Wrong result if it fails: get_logits predicts the wrong class.
        """
        loss = self.seeded_loss().eval()
        directions = torch.eye(max(self.num_classes, self.embedding_size), device=self.device)
        proxies = directions[: self.num_classes, : self.embedding_size]
        with torch.no_grad():
            self.proxies(loss).copy_(proxies)
            logits = loss.get_logits(proxies)
        # Proxies beyond the number of dimensions are zero.
        usable = min(self.num_classes, self.embedding_size)
        assert logits.shape == (self.num_classes, self.num_classes)
        assert logits[:usable].argmax(dim=1).tolist() == list(range(usable))

    def test_logits_are_float32_under_autocast(self) -> None:
        """``get_logits`` returns the same float32 logits under autocast as without it.

        Applies only to losses with ``get_logits``.

        Broken convention if it fails: under torch.autocast logits have three correct digits.
        """
        x, _ = self.batch()
        loss = self.seeded_loss()
        with torch.autocast(torch.device(self.device).type, dtype=torch.bfloat16):
            logits = loss.get_logits(x)
        assert logits.dtype == torch.float32
        torch.testing.assert_close(logits, loss.get_logits(x), rtol=0, atol=0)
