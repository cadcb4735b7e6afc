"""Losses to compare with: baselines of the papers' tables, and newer ones that PML lacks.

A YAML file names one by its import path: ``reality_check.baseline_losses.LinearSoftmaxLoss``.
"""

from __future__ import annotations

from typing import Any, ClassVar

import torch
from pytorch_metric_learning.losses import BaseMetricLossFunction
from pytorch_metric_learning.utils import common_functions as c_f
from pytorch_metric_learning.utils import loss_and_miner_utils as lmu
from torch import Tensor

from pml_extensions._shared.base_losses import Float32Loss, IndicesTuple, LossDict, Phased
from pml_extensions._shared.checks import Number, embedding_shape, positive
from pml_extensions._shared.numerics import COINCIDENT, root, softplus
from pml_extensions.functional import pairwise_distances, unit_vectors
from pml_extensions.losses import NormalizedSoftmaxLoss


class LinearSoftmaxLoss(torch.nn.Module):
    r"""Cross-entropy of a linear classifier on the embeddings: nothing is normalised.

    .. math:: L = \frac{1}{N} \sum_i -\ln \mathrm{softmax}(W f_i + b)_{y_i}

    This is the baseline "SM" of "Heated-Up Softmax Embedding", Tables 1 to 5. It computes in
    float32 and has the initialisation of torch's linear layer.

    Args:
        num_classes: Number of classes C.
        embedding_size: Dimension D of the embeddings.
        bias: Whether to add the bias b.
        label_smoothing: As in torch's cross-entropy: every class gets label_smoothing / C of the
            target probability.
    """

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        bias: bool = True,
        label_smoothing: float = 0.0,
    ) -> None:
        super().__init__()
        self.classify = torch.nn.Linear(embedding_size, num_classes, bias=bias)
        self.label_smoothing = label_smoothing

    def forward(self, embeddings: Tensor, labels: Tensor, indices_tuple: object = None) -> Tensor:
        """Return the mean over the batch; mined indices are ignored.

        Args:
            embeddings: Shape (N, D).
            labels: Shape (N,).
            indices_tuple: Ignored.
        """
        logits = self.classify(embeddings.float())
        return torch.nn.functional.cross_entropy(
            logits, labels, label_smoothing=self.label_smoothing
        )


class RingLoss(BaseMetricLossFunction):
    r"""Pulls the lengths of the embeddings towards a learned radius.

    .. math:: L = \frac{1}{2N} \sum_i (\|f_i\| - R)^2

    "Stop-Gradient Softmax Loss", Eq. 4, after "Ring loss: Convex feature normalization for face
    recognition". The weight lambda is set where this loss is added to another one. R
    starts at the mean length in the first training batch.
    """

    def __init__(self) -> None:
        super().__init__()
        self.radius = torch.nn.Parameter(torch.tensor(-1.0))  # negative until the first batch

    def compute_loss(
        self,
        embeddings: Tensor,
        labels: Tensor,
        indices_tuple: object,
        ref_emb: Tensor,
        ref_labels: Tensor,
    ) -> dict[str, dict[str, object]]:
        """Return PML's loss dictionary, with one entry per sample."""
        lengths = embeddings.float().norm(dim=1)
        with torch.no_grad():  # only the first batch sets the radius
            self.radius.copy_(torch.where(self.radius < 0, lengths.mean(), self.radius))
        losses = 0.5 * (lengths - self.radius).square()
        indices = torch.arange(len(losses), device=losses.device)
        return {"loss": {"losses": losses, "indices": indices, "reduction_type": "element"}}


def dr_triplet(
    anchors: Tensor, positives: Tensor, negatives: Tensor, margin: float, direction: float
) -> Tensor:
    """Return the value of :class:`DRTripletLoss` for each triplet, before the hinge.

    Args:
        anchors: Shape (..., D), like ``positives`` and ``negatives``.
        positives: Embeddings of the anchors' classes.
        negatives: Embeddings of other classes.
        margin: The margin m.
        direction: Weight g of the direction regulariser.
    """
    squared_positive = (anchors - positives).square().sum(dim=-1)
    squared_negative = (anchors - negatives).square().sum(dim=-1)
    ratio = root(squared_positive) / root(squared_negative).clamp(min=COINCIDENT**0.5)
    return squared_positive - squared_negative + margin - direction / 2 * ratio


class DRTripletLoss(Float32Loss, BaseMetricLossFunction):
    r"""The triplet loss with a direction regulariser.

    .. math:: L = \max\Big(0, |a - p|^2 - |a - n|^2 + m - \frac g2 \frac{|a - p|}{|a - n|}\Big)

    "GradML", section 3.1, after "Moving in the right direction" (Mohan et al., CVPR 2020), for
    embeddings of unit length, where the paper's :math:`1 - a^\top p` is half of
    :math:`|a - p|^2`. Without a miner, all triplets of the batch are used.

    Args:
        margin: The margin m (our value; neither paper gives one).
        direction: Weight g of the regulariser (our value too); 0 is the triplet loss.
        **kwargs: PML's ``reducer``, ``embedding_regularizer`` and ``embedding_reg_weight``.
    """

    def __init__(self, margin: float = 0.2, direction: float = 0.3, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.margin, self.direction = margin, direction
        self.add_to_recordable_attributes(list_of_names=["margin", "direction"], is_stat=False)

    def compute_loss(
        self,
        embeddings: Tensor,
        labels: Tensor | None,
        indices_tuple: IndicesTuple,
        ref_emb: Tensor,
        ref_labels: Tensor | None,
    ) -> LossDict:
        """Return PML's loss dictionary, with one entry per triplet."""
        c_f.labels_or_indices_tuple_required(labels, indices_tuple)
        embedding_shape(embeddings)
        triplets = lmu.convert_to_triplets(indices_tuple, labels, ref_labels, t_per_anchor="all")
        if len(triplets[0]) == 0:
            return self.zero_losses()
        a, p, n = triplets
        x, y = unit_vectors(embeddings), unit_vectors(ref_emb)
        losses = dr_triplet(x[a], y[p], y[n], self.margin, self.direction).clamp(min=0)
        return {"loss": {"losses": losses, "indices": triplets, "reduction_type": "triplet"}}


class LossAfterWarmUp(Phased, torch.nn.Module):
    """One loss in the first phase of a training, another one from the second phase on.

    It lets losses that need a partly trained network be compared from equal starts. To switch,
    write ``phase2: {arguments: {warm_up_weight: 0}}``.

    Args:
        warm_up: The loss of the first phase, called without mined indices.
        loss: The loss of the second phase.
        warm_up_weight: Weight of ``warm_up``, 1 in the first phase and 0 in the second; ``loss``
            has the remaining weight.

    Raises:
        ValueError: ``warm_up_weight`` is not between 0 and 1.
    """

    phase_checks: ClassVar = {"warm_up_weight": Number("between 0 and 1", lambda x: 0 <= x <= 1)}
    warm_up_weight: float

    def __init__(
        self, warm_up: torch.nn.Module, loss: torch.nn.Module, warm_up_weight: float = 1.0
    ) -> None:
        super().__init__()
        self.warm_up, self.loss = warm_up, loss
        self.set_phase(warm_up_weight=warm_up_weight)

    def forward(
        self,
        embeddings: Tensor,
        labels: Tensor,
        indices_tuple: IndicesTuple = None,
        ref_emb: Tensor | None = None,
        ref_labels: Tensor | None = None,
    ) -> Tensor:
        """Return the loss of the current phase; the arguments are those of PML's losses."""
        parts = []
        if self.warm_up_weight > 0:
            warm = self.warm_up(embeddings, labels, None, ref_emb, ref_labels)
            parts.append(self.warm_up_weight * warm)
        if self.warm_up_weight < 1:
            later = self.loss(embeddings, labels, indices_tuple, ref_emb, ref_labels)
            parts.append((1 - self.warm_up_weight) * later)
        return sum(parts[1:], parts[0])  # one or both of the losses

    def set_phase(self, **values: float) -> None:
        """Set ``warm_up_weight``, and other values of ``loss`` if it has ``set_phase`` too.

        Raises:
            ValueError: A name is unknown or a value is not allowed; then nothing is changed.
        """
        set_phase_of_loss: Any = getattr(self.loss, "set_phase", None)
        # Without such a method, an unknown name is left to this class, which refuses it.
        own_values = {
            k: v for k, v in values.items() if set_phase_of_loss is None or k in self.phase_checks
        }
        self._checked_phase(own_values)  # raises before anything is changed
        if len(own_values) < len(values):
            set_phase_of_loss(**{k: v for k, v in values.items() if k not in own_values})
        super().set_phase(**own_values)


class CenterContrastiveLoss(NormalizedSoftmaxLoss):
    r"""CCL: a softmax over cosines to class centers, with a margin and a pull to the center.

    .. math::
        L = \frac{1}{N} \sum_i -\ln \frac{e^{s (\cos_{i y_i} - m)}}
        {e^{s (\cos_{i y_i} - m)} + \sum_{j \ne y_i} e^{s \cos_{ij}}}
        + \lambda \|\hat x_i - \hat c_{y_i}\|^2, \qquad \cos_{ij} = \hat x_i \cdot \hat c_j

    "Center Contrastive Loss for Metric Learning" (Cai, Xiong & Tian 2023, arXiv 2308.00458), Eq. 5,
    as described in two independent implementations, which drop the constant 2 lambda of the squared
    distance: the paper itself was not at hand. The centers are parameters, as proxies are. No
    source gives the paper's s, m and lambda, so the defaults are ours; the two
    implementations have s 16 and 64, m 0 and 0.2, lambda 2 and 1.

    The reducer gets both terms as sub-losses of each sample, ``contrastive_loss`` and
    ``center_loss`` (with lambda).

    Args:
        num_classes: Number of classes C.
        embedding_size: Dimension D of the embeddings.
        scale: s, multiplies the cosines; above 0.
        margin: m, subtracted from the cosine to the center of the sample's class.
        center_weight: lambda, weight of the second term.
        **kwargs: Arguments of ``NormalizedSoftmaxLoss`` except ``temperature``, which is 1 / s.
    """

    sub_losses = ("contrastive_loss", "center_loss")

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        scale: float = 16.0,
        margin: float = 0.1,
        center_weight: float = 1.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            num_classes, embedding_size, temperature=1 / positive("scale", scale), **kwargs
        )
        self.margin, self.center_weight = margin, center_weight
        self.add_to_recordable_attributes(list_of_names=["margin", "center_weight"], is_stat=False)

    def sample_losses(self, embeddings: Tensor, labels: Tensor) -> dict[str, Tensor]:
        """Return the sub-losses by name, each of shape (N,)."""
        # ``proxies`` is a tuple of the proxies of this step's classes, whose rows ``y`` indexes.
        y, proxies = self.select_classes(embeddings, labels, self.proxies)
        sums = self.softmax.sums(self.logits, self.features(embeddings), proxies, y)
        # ``sums.own`` has the logit of each sample's class, and ``sums.others`` the logarithm of
        # the sum of the exponentials of the other logits.
        own_logits = sums.own - self.margin / self.temperature
        return {
            "contrastive_loss": softplus(sums.others - own_logits),
            # The squared distance of unit vectors is 2 - 2 cos.
            "center_loss": 2 * self.center_weight * (1 - self.temperature * sums.own),
        }


class PotentialFieldLoss(Float32Loss, BaseMetricLossFunction):
    r"""PFML: the potential energy of samples and proxies that attract and repel each other.

    .. math::
        U = \sum_a \Big( \sum_{b \ne a,\, y_b = y_a} -\max(d_{ab}, \delta)^{-\alpha}
        + \sum_{y_b \ne y_a} \min(d_{ab}, \delta)^{-\alpha} \Big)

    over the points a: the N unit-length embeddings of the batch and M proxies of each class, with
    Euclidean distances d. "Potential Field Based Deep Metric Learning" (Bhatnagar & Ahuja, CVPR
    2025, arXiv 2405.18560), Eq. 1, 2 and 6, as described in a summary and two independent
    implementations that agree: the paper itself was not at hand. Three details are ours, as no
    source gives them: U is divided by N; proxies are drawn from a normal distribution; and below a
    tenth of delta the repulsion continues along its tangent, so that the force between nearly
    coincident points is finite.

    The reducer gets the energy of each sample, ``sample_loss``, and the energy of all proxies
    divided by N, ``proxy_loss``, already reduced. Mined pairs are ignored: all points interact.

    Args:
        num_classes: Number of classes C.
        embedding_size: Dimension D of the embeddings.
        proxies_per_class: M (paper: 15 for CUB and Cars, 2 for SOP).
        alpha: Power by which potentials decay, above 0 (paper: best at 3 to 6).
        delta: Distance below which nothing attracts and above which nothing repels (paper: 0.1 to
            0.3); above 0.
        **kwargs: PML's ``reducer``, ``embedding_regularizer`` and ``embedding_reg_weight``.
    """

    def __init__(
        self,
        num_classes: int,
        embedding_size: int,
        proxies_per_class: int = 15,
        alpha: float = 4.0,
        delta: float = 0.2,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.alpha, self.delta = positive("alpha", alpha), positive("delta", delta)
        self.proxies = torch.nn.Parameter(
            torch.randn(num_classes, proxies_per_class, embedding_size)
        )
        self.add_to_recordable_attributes(list_of_names=["alpha", "delta"], is_stat=False)

    def compute_loss(
        self,
        embeddings: Tensor,
        labels: Tensor | None,
        indices_tuple: object,
        ref_emb: Tensor | None,
        ref_labels: Tensor | None,
    ) -> dict[str, dict[str, Any]]:
        """Return PML's loss dictionary; called by ``forward``."""
        c_f.labels_required(labels)
        c_f.ref_not_supported(embeddings, labels, ref_emb, ref_labels)
        assert labels is not None
        if len(embeddings) == 0:
            return self.zero_losses()
        num_samples, (num_classes, proxies_per_class, _) = len(embeddings), self.proxies.shape
        proxy_labels = torch.arange(num_classes, device=labels.device).repeat_interleave(
            proxies_per_class
        )
        # The samples, followed by the proxies of all classes.
        points = unit_vectors(torch.cat((embeddings, self.proxies.flatten(0, 1).to(embeddings))))
        energies = self._energies(points, torch.cat((labels, proxy_labels.to(labels))))
        return {
            "sample_loss": {
                "losses": energies[:num_samples],
                "indices": c_f.torch_arange_from_size(embeddings),
                "reduction_type": "element",
            },
            "proxy_loss": {
                "losses": energies[num_samples:].sum() / num_samples,
                "indices": None,
                "reduction_type": "already_reduced",
            },
        }

    def _energies(self, points: Tensor, labels: Tensor) -> Tensor:
        """Return the energy of each point in the field of the others."""
        distances = pairwise_distances(points, points.clone())  # torch.compile wants two tensors
        attraction = -distances.clamp(min=self.delta).pow(-self.alpha)
        near = distances.clamp(max=self.delta)
        floored = near.clamp(min=self.delta / 10)  # below it, the curve is its tangent
        slope = -self.alpha * floored.pow(-self.alpha - 1)
        repulsion = floored.pow(-self.alpha) + slope * (near - floored)
        energies = torch.where(labels[:, None] == labels, attraction, repulsion)
        return energies.sum(dim=1) - energies.diagonal()  # without the point itself

    def _sub_loss_names(self) -> list[str]:
        return ["sample_loss", "proxy_loss"]


class UniformByWidth:
    """Initialises proxies (C, D) uniformly in +-1/sqrt(D), like torch's linear layer.

    Only the direction of a normalised proxy matters, but the length divides the gradient. The
    authors of "Classification is a Strong Baseline for Deep Metric Learning" initialise this way.
    """

    def __call__(self, proxies: Tensor) -> None:
        bound = proxies.shape[1] ** -0.5
        torch.nn.init.uniform_(proxies, -bound, bound)
