"""The commented YAML and loss file that ``reality-check init`` writes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from reality_check.config.json_schema import json_schema
from reality_check.config.named import TENSOR_FILES, dataset_of_path
from reality_check.config.types import Name
from reality_check.utils.errors import UsageError
from reality_check.utils.files import atomic_write

#: Name of the schema beside the YAML, where editors find it without a network.
SCHEMA = "reality-check.schema.json"
#: The module of the loss, and the loss.
MODULE, CLASS = "my_losses", "MyLoss"

YAML = """\
# yaml-language-server: $schema={schema}
# One experiment of reality-check: does my loss beat the known ones?
#   reality-check check {yaml}     forward, backward, cost; trains nothing
#   reality-check run {yaml}       the whole comparison, then open the report it names

{subject}
methods:
  - name: my_loss
    loss: {module}.{cls}         # a file in this folder, or any importable path
    arguments:                       # of its constructor; num_classes and embedding_size are added
      margin: {{low: 0.0, high: 0.5}}  # where it takes them. A range is searched,
      scale: {{low: 4, high: 64, log: true}}  # a plain value is fixed.
    learning_rates:
      loss: {{low: 0.001, high: 0.1, log: true}}  # of the loss's own parameters, if it has any
    {samples}
    # normalize_embeddings: false    # if the loss trains raw distances
    # miner: {{class: MultiSimilarityMiner, epsilon: 0.1}}
    # phase2: {{factors: {{scale: 0.5}}, lr_factor: 0.1}}

  # What it is compared with, under the same budget (names: reality-check show methods).
  - {baseline}
  - quick/contrastive

seed: 0
"""

#: The data to compare on: images, several data sets, or features that `reality-check embed` wrote.
ONE = """\
dataset: glyphs        # names: reality-check show datasets. Your own images:
                       # dataset: {base: ./images, size: 64, resize: square}
"""
SUITE = """\
suite: {suite}  # data sets or experiments by name (reality-check show datasets);
                       # what differs on one: {{base: NAME, model: conv4, protocol: ...}}
"""
IMAGES = """\
model: conv4           # names: reality-check show models
protocol: quick        # a small budget to try things out; for a claim mlrc_subsets (days on a GPU)
"""
FEATURES = """\
dataset: {features}   # .npz, .npy, .safetensors or .parquet: samples x, labels y
model: identity           # one linear layer on them; a perceptron:
                          # {{base: identity, embedder: {{layers: 2, hidden_size: 512}}}}
                          # {{base: identity, embedder: {{init: pca}}}} starts from components
protocol: features_quick  # a small budget to try things out; for a claim features (minutes)
"""

#: How batches are drawn from images, and from features, which often have few classes.
SAMPLES = "samples_per_class: 1             # images of a class in a batch; 4 for losses of pairs"
FEW_SAMPLES = (
    "samples_per_class: 4             # of each class in a batch; 1 needs 32 classes and more"
)
BASELINE = "quick/normalized_softmax"
FEW_BASELINE = "{base: quick/normalized_softmax, samples_per_class: 4}"

LOSS = '''\
"""A loss of my own: additive-margin softmax, as an example to start from."""

import torch
from pytorch_metric_learning.losses import BaseMetricLossFunction


class {cls}(BaseMetricLossFunction):
    """Softmax over cosines, with a margin on the own class."""

    def __init__(self, num_classes, embedding_size, margin=0.1, scale=16.0, **kwargs):
        super().__init__(**kwargs)
        self.weights = torch.nn.Parameter(torch.randn(num_classes, embedding_size))
        self.margin = margin
        self.scale = scale

    def compute_loss(self, embeddings, labels, indices_tuple, ref_emb, ref_labels):
        normalize = torch.nn.functional.normalize
        cosines = normalize(embeddings) @ normalize(self.weights).T
        margins = self.margin * torch.nn.functional.one_hot(labels, cosines.shape[1])
        losses = torch.nn.functional.cross_entropy(
            self.scale * (cosines - margins), labels, reduction="none"
        )
        return {{
            "loss": {{
                "losses": losses,
                "indices": torch.arange(len(labels), device=losses.device),
                "reduction_type": "element",
            }}
        }}
'''


def write_starter(file: Path, features: str | None = None, suite: Sequence[str] = ()) -> list[str]:
    """Write a starter YAML, a loss file that it uses, and the schema that editors complete from.

    Args:
        file: path of the YAML; the others are written beside it. An existing loss file is kept.
        features: a file of vectors on which losses are compared; ``None`` stands for images.
        suite: the data sets, if there are several.

    Returns:
        A sentence about each file.

    Raises:
        UsageError: the YAML exists already, cannot have that name or cannot be written, or the file
            of vectors does not exist; in each case nothing is written.
    """
    _check_name(file)
    kind, parts = "images", {"subject": ONE + IMAGES, "samples": SAMPLES, "baseline": BASELINE}
    if features is not None:
        _check_features(features)
        subject = FEATURES.format(features=json.dumps(features))
        parts = {"subject": subject, "samples": FEW_SAMPLES, "baseline": FEW_BASELINE}
        kind = "features"
    if suite:
        parts["subject"] = SUITE.format(suite=f"[{', '.join(suite)}]") + IMAGES
        kind = "data sets"
    folder, loss = file.parent, file.parent / f"{MODULE}.py"
    schema = folder / SCHEMA
    names = {"yaml": file.name, "module": MODULE, "cls": CLASS, "schema": SCHEMA}
    texts = {file: YAML.format(**names, **parts)}
    messages = [f"wrote {file}: what is compared, on which {kind}, with which budget"]
    if loss.exists():
        messages.append(f"left {loss} as it is; the YAML names its {CLASS}")
    else:
        texts[loss] = LOSS.format(cls=CLASS)
        messages.append(f"wrote {loss}: a loss to change into your own")
    messages.append(f"wrote {schema}: your editor completes the YAML from it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        texts[schema] = json.dumps(json_schema(folder), indent=1)
        for path, text in texts.items():
            atomic_write(path, text)
    except OSError as error:
        raise UsageError(
            f"{file} cannot be written ({error.strerror}: {error.filename}); name a file in a "
            "folder of yours."
        ) from None
    return messages


def _check_features(name: str) -> None:
    """Raise ``UsageError`` unless a file or folder of tensors has this path."""
    dataset = dataset_of_path(name) or {}
    if dataset.get("reader") != "tensors" or not Path(dataset["path"]).exists():
        raise UsageError(
            f"--features is {name!r}, but it must be an existing file that ends in "
            f"{', '.join(TENSOR_FILES)}; write one with reality-check embed."
        )


def _check_name(file: Path) -> None:
    """Raise ``UsageError`` if the YAML exists, or if its name cannot be that of an experiment."""
    if file.exists():
        raise UsageError(
            f"{file} exists already; rename it, or choose another name for the new one."
        )
    if file.suffix not in (".yaml", ".yml"):
        raise UsageError(f"{file} must end in .yaml; write reality-check init {file.stem}.yaml.")
    try:
        TypeAdapter(Name).validate_python(file.stem)
    except ValidationError:
        raise UsageError(
            f"{file.stem!r} would be the experiment's name, but that may hold only letters, digits "
            "and the signs _ . + -, must start with a letter or digit, and has at most 64 of them; "
            "write another file name."
        ) from None
