"""Losses of PML in sentence-transformers; importing this module imports sentence-transformers."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from pml_extensions.distributed import DistributedLossWrapper

_Trainer: Any = import_module("sentence_transformers").SentenceTransformerTrainer


class MetricLossTrainer(_Trainer):
    """A ``SentenceTransformerTrainer`` whose ``loss`` may be a loss of PML or of this package.

    The data set has one column of texts and one of integer labels. The loss's parameters (proxies)
    are trained with the model; ``learning_rate_mapping={r"^loss\\.": 0.1}`` of the training
    arguments gives them their own learning rate. Under DistributedDataParallel the loss is that of
    the full batch. Checkpoints also hold the state of the loss, in ``loss.pt``, so that a resumed
    training continues with its proxies instead of fresh ones.

    Losses of sentence-transformers remain as they are; their own parameters are not saved.
    """

    def prepare_loss(self, loss: Any, model: Any) -> torch.nn.Module:
        """Return the loss as a module of texts, on the device of the model."""
        if isinstance(loss, torch.nn.Module) and not hasattr(loss, "model"):
            loss = _LossOfTexts(model, loss)
        return super().prepare_loss(loss, model)

    def _states(self) -> torch.nn.ModuleDict:
        """Return the losses with a state of their own, by the name of their data set."""
        losses = self.loss if isinstance(self.loss, dict) else {"loss": self.loss}
        return torch.nn.ModuleDict(
            {name: loss.loss for name, loss in losses.items() if isinstance(loss, _LossOfTexts)}
        )

    def _save(self, output_dir: str | None = None, state_dict: Any = None) -> None:
        super()._save(output_dir, state_dict)
        torch.save(self._states().state_dict(), Path(output_dir or self.args.output_dir, "loss.pt"))

    def _load_from_checkpoint(self, checkpoint_path: str) -> None:
        file = Path(checkpoint_path, "loss.pt")
        if not file.exists():
            raise FileNotFoundError(
                f"{checkpoint_path} has no loss.pt, the state of the loss, which training would "
                "continue with fresh proxies; resume from a checkpoint of MetricLossTrainer."
            )
        super()._load_from_checkpoint(checkpoint_path)
        self._states().load_state_dict(torch.load(file, map_location="cpu", weights_only=True))


class _LossOfTexts(torch.nn.Module):
    """A loss of embeddings as sentence-transformers calls losses."""

    def __init__(self, model: torch.nn.Module, loss: torch.nn.Module) -> None:
        super().__init__()
        self.model = model
        self.loss = DistributedLossWrapper(loss)

    def forward(self, features: list[dict[str, Tensor]], labels: Tensor | None) -> Tensor:
        if len(features) != 1 or labels is None:
            raise ValueError(
                f"A loss of PML takes one column of texts and one of labels, but the data set has "
                f"{len(features)} of texts and {'no labels' if labels is None else 'labels'}; "
                "select the columns, and name the labels' 'label'."
            )
        return self.loss(self.model(features[0])["sentence_embedding"], labels.view(-1))
