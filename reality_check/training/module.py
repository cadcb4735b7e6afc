"""The network, the loss and the optimisers of a training, and the training step."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from reality_check.config.training import GpuSettings
from reality_check.data.tensors import InputShape
from reality_check.evaluation.scoring import Diverged
from reality_check.models.network import Network, autocast, build_network
from reality_check.training.captured_step import CapturedStep
from reality_check.training.fold import FoldTask
from reality_check.training.methods import (
    FilledSecondPhase,
    build_loss,
    build_miner,
    enter_second_phase,
    loss_value,
)
from reality_check.training.optimizers import JointOptimizer, build_optimizers
from reality_check.training.schedules import ScheduledValues, rate_factor
from reality_check.training.strategy import BATCH_NORM, Strategy
from reality_check.training.sub_batches import SubBatches, accumulates, save_memory
from reality_check.training.weight_average import WeightAverage
from reality_check.utils import checkpoints
from reality_check.utils.text import one_line


class TrainingModule:
    """The network, the loss and the optimisers of a training."""

    def __init__(
        self,
        task: FoldTask,
        num_classes: int,
        shape: InputShape,
        device: torch.device,
        strategy: Strategy | None = None,
    ) -> None:
        filled, self.training = task.settings, task.training
        self.device = device
        self.strategy = strategy or Strategy()
        # GpuSettings has nothing on by default but the graph.
        gpu = self.training.gpu if device.type == "cuda" else GpuSettings(cuda_graph=False)
        network = build_network(task.model, shape, task.embedding_size, task.network_seed)
        save_memory(network, self.training)
        self._memory_format = torch.channels_last if gpu.channels_last else torch.contiguous_format
        self.network: Network = network.to(device)
        if self._memory_format == torch.channels_last:
            movable: Any = self.network  # older type stubs of torch lack memory_format here
            movable.to(memory_format=self._memory_format)
        if filled.learning_rates["trunk"] == 0:
            self.network.trunk.requires_grad_(False)
        if self.training.freeze_batchnorm == "with_affine":  # before the optimisers are built
            freeze_batchnorm(self.network.trunk, with_affine=True)
        checkpoints.seed_everything(task.loss_seed)
        self.loss = build_loss(filled, num_classes, task.embedding_size)
        is_exact = accumulates(task, self.loss, num_classes)
        self.miner = build_miner(filled, num_classes, task.embedding_size)
        self.loss.to(device)
        self.scheduled = ScheduledValues(self.loss, filled.schedules, self.training.max_epochs)
        if isinstance(self.miner, nn.Module):
            self.miner.to(device)
        self.optimizers = build_optimizers(self.network, self.loss, filled, self.training)
        self._rates = {  # the learning rates without the factor of the schedule
            name: [float(group["lr"]) for group in optimizer.param_groups]
            for name, optimizer in self.optimizers.items()
        }
        self._trunk_frozen = False
        self.average = WeightAverage(self.network, self.training.ema)
        self._forward = self.strategy.parallel(self.network)  # the network, perhaps wrapped
        self._joint_optimizer = JointOptimizer(self.optimizers.values())
        if gpu.compile:
            compiled: Any = torch.compile(self._forward)
            self._forward = compiled
        size = self.training.sub_batch_size
        self._sub_batches = size and SubBatches(
            size, is_exact, self._embed, self._backward, self._forward
        )
        self.captured = self._capture_step() if gpu.cuda_graph else None
        self.scaler = torch.amp.GradScaler(
            device.type, enabled=self.training.autocast == "fp16" and device.type == "cuda"
        )

    def train(self) -> None:
        """Enter training mode, with BatchNorm frozen if the protocol says so."""
        self._forward.train()
        if self.training.freeze_batchnorm:
            freeze_batchnorm(self.network.trunk)
        self.strategy.check_statistics(self.network)
        self.loss.train()

    def set_iteration(self, iteration: int, iterations_per_epoch: int) -> None:
        """Set the learning rates of an iteration, counted from the start of the training.

        They depend on the iteration only, so they are not part of a checkpoint.
        """
        training = self.training
        self._trunk_frozen = iteration < training.freeze_trunk_epochs * iterations_per_epoch
        schedule = training.schedule
        if schedule.kind == "constant" and not schedule.warmup_iterations:
            return
        factor = rate_factor(schedule, iteration, iterations_per_epoch, training.max_epochs)
        for name, optimizer in self.optimizers.items():
            for group, rate in zip(optimizer.param_groups, self._rates[name], strict=True):
                group["lr"] = rate * factor

    def step(self, images: Tensor, labels: Tensor) -> Tensor:
        """Train with one batch.

        Args:
            images: the images of this process's part of the batch, float32 (B, C, H, W), or other
                tensors.
            labels: the labels of the full batch, (N,).

        Returns:
            The value of the loss before the step, a scalar on the device.

        Raises:
            Diverged: the loss fails on embeddings that are not finite.
            UsageError: the loss is not a scalar tensor that depends on the embeddings.
        """
        compute = self.captured or self._set_gradients
        value = compute(images, labels)
        self._update()
        return value

    def _set_gradients(self, images: Tensor, labels: Tensor) -> Tensor:
        """Compute the loss and all gradients; return the loss."""
        for optimizer in self.optimizers.values():
            optimizer.zero_grad()
        if self._sub_batches and len(images) > self._sub_batches.size:
            return self._sub_batches.set_gradients(images, labels)
        return self._backward(self._embed(images), labels)

    def _backward(self, embeddings: Tensor, labels: Tensor, factor: float = 1.0) -> Tensor:
        """Add all gradients of the loss, times a factor, and return their product.

        Args:
            embeddings: those of this process.
            labels: those of all processes.
            factor: the factor.
        """
        embeddings = self.strategy.gather_with_gradient(embeddings)
        try:
            value = loss_value(self.loss, self.miner, embeddings, labels)
        except Exception as error:
            if not bool(torch.isfinite(embeddings).all()):
                message = f"the embeddings are not finite, and the loss fails: {one_line(error)}"
                raise Diverged(message) from error
            raise
        if factor != 1.0:
            value = value * factor
        self.scaler.scale(value).backward()
        return value.detach()

    def _capture_step(self) -> CapturedStep:
        """Return :meth:`_set_gradients` as a CUDA graph, if that is possible."""
        parts = {
            "trunk": self.network.trunk,
            "head": self.network.head,
            "embedder": self.network.embedder,
            "loss": self.loss,
            "miner": self.miner,
        }
        # In float32 on an H100, the gradients of a resnet18 by a graph and by a plain step have a
        # relative difference of 1.1e-4.
        is_float32 = self.training.autocast == "none" and not self.training.tf32
        captured = CapturedStep(
            self._set_gradients, parts, self.device, 1e-3 if is_float32 else 1e-2
        )
        if self.scheduled:
            captured.give_up("the method changes values of the loss during the training")
        elif self.strategy.size > 1:
            captured.give_up("several processes train the network")
        elif self.training.gpu.compile:
            captured.give_up("the network is compiled")
        elif self._sub_batches or self.training.activation_checkpointing:
            captured.give_up("parts of the network's forward pass are computed twice")
        return captured

    def release(self) -> None:
        """Drop the recorded step, if there is one, and free its GPU memory."""
        if self.captured is not None:
            self.captured.forget()

    def remarks(self) -> tuple[str, ...]:
        """Return how batches are embedded in parts, and why there is no CUDA graph."""
        why_not = None if self.captured is None else self.captured.why_not
        remarks = () if why_not is None else (f"no CUDA graph, since {why_not}",)
        if not self._sub_batches:
            return remarks
        way = "gradient accumulation" if self._sub_batches.accumulates else "GradCache"
        return f"batches in parts by {way}", *remarks

    def _embed(self, images: Tensor) -> Tensor:
        """Return the embeddings of images of this process."""
        with self.autocast():
            if images.dim() == 4:
                images = images.contiguous(memory_format=self._memory_format)
            embeddings = self._forward(images)
        return embeddings.float()

    @torch.no_grad()
    def update_statistics(self, images: Tensor, labels: Tensor) -> None:
        """Update the BatchNorm statistics of the network and of the loss with a batch."""
        embeddings = self.strategy.gather_with_gradient(self._embed(images))
        if keeps_statistics(self.loss):
            self.loss(embeddings, labels)  # updates them

    def _update(self) -> None:
        """Take a step with every optimiser, except that of a frozen trunk."""
        self._clip_gradients()
        self._joint_optimizer.active = [
            optimizer
            for name, optimizer in self.optimizers.items()
            if name != "trunk" or not self._trunk_frozen
        ]
        self.scaler.step(self._joint_optimizer)
        self.scaler.update()
        self.average.update()

    def _clip_gradients(self) -> None:
        """Clip the gradients of the network, but not those of the loss's own parameters."""
        value, norm = self.training.gradient_clip, self.training.gradient_clip_norm
        if value is None and norm is None:
            return
        self.scaler.unscale_(self._joint_optimizer)
        parameters = [
            parameter
            for name, optimizer in self.optimizers.items()
            if name != "loss"
            for group in optimizer.param_groups
            for parameter in group["params"]
        ]
        if value is not None:
            torch.nn.utils.clip_grad_value_(parameters, value)
        if norm is not None:
            torch.nn.utils.clip_grad_norm_(parameters, norm)

    def autocast(self) -> torch.autocast:
        """Return a context with the precision of the network's forward pass."""
        return autocast(self.device, self.training.autocast)

    def enter_second_phase(self, second: FilledSecondPhase | None) -> None:
        """Change the loss's values and the learning rates, if there is a second phase."""
        if second is None:
            return
        enter_second_phase(self.loss, second)
        self.release()
        for name, optimizer in self.optimizers.items():
            factor = second.loss_lr_factor if name == "loss" else second.lr_factor
            self._rates[name] = [rate * factor for rate in self._rates[name]]
            for group in optimizer.param_groups:
                group["lr"] *= factor

    def state_dict(self) -> dict[str, Any]:
        """Return the state of the network, the loss and the optimisers."""
        return {
            "network": self.network.kept_state(),
            "loss": self.loss.state_dict(),
            "optimizers": {name: opt.state_dict() for name, opt in self.optimizers.items()},
            "scaler": self.scaler.state_dict(),
            "average": self.average.state_dict(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state that :meth:`state_dict` returned; further keys are ignored."""
        self.network.load_kept_state(state["network"])
        self.loss.load_state_dict(state["loss"])
        # The state may have replaced values that were scheduled or are in the recorded step.
        self.scheduled.forget()
        self.release()
        for name, optimizer in self.optimizers.items():
            optimizer.load_state_dict(state["optimizers"][name])
        self.scaler.load_state_dict(state["scaler"])
        self.average.load_state_dict(state.get("average", {}))  # not in files of 2026-11


def keeps_statistics(loss: nn.Module) -> bool:
    """Return whether a loss keeps running statistics of batches."""
    return any(name.endswith("running_mean") for name, _ in loss.named_buffers())


def freeze_batchnorm(module: nn.Module, with_affine: bool = False) -> None:
    """Put every BatchNorm in evaluation mode, so that its statistics no longer change.

    Its scale and shift are still trained, unless ``with_affine``.
    """
    for part in module.modules():
        if isinstance(part, BATCH_NORM):
            part.eval()
            if with_affine:
                part.requires_grad_(False)
