"""Losses that pytorch-metric-learning lacks, in its style and usable wherever its losses are."""

from pml_extensions.losses.chunked_softmax import ChunkedSoftmax
from pml_extensions.losses.class_sampler import ClassSampler
from pml_extensions.losses.cross_batch_memory import CrossBatchMemory
from pml_extensions.losses.grad_ml_loss import GradMLLoss
from pml_extensions.losses.heated_up_softmax_loss import HeatedUpSoftmaxLoss
from pml_extensions.losses.hist_loss import HISTLoss
from pml_extensions.losses.normalized_softmax_loss import NormalizedSoftmaxLoss
from pml_extensions.losses.proxy_nca_plus_plus_loss import ProxyNCAPlusPlusLoss
from pml_extensions.losses.stop_gradient_softmax_loss import StopGradientSoftmaxLoss
from pml_extensions.losses.warped_softmax_loss import WarpedSoftmaxLoss

__all__ = [
    "ChunkedSoftmax",
    "ClassSampler",
    "CrossBatchMemory",
    "GradMLLoss",
    "HISTLoss",
    "HeatedUpSoftmaxLoss",
    "NormalizedSoftmaxLoss",
    "ProxyNCAPlusPlusLoss",
    "StopGradientSoftmaxLoss",
    "WarpedSoftmaxLoss",
]
