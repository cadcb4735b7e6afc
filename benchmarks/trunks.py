"""What it costs to train the rest of a trunk on stored outputs, in time and in precision.

    python benchmarks/trunks.py steps
    python benchmarks/lite0.py lite0.pth && python benchmarks/trunks.py float16 --seeds 10

``steps``: the time of a step (batch of 32, AdamW, one thread) of the resumed trunk, divided by that
of its trained modules alone; and that of the whole network, frozen up to the same module.

``float16``: MAP@R on the classes of Caltech-101 that a fold does not train on, in points, of the
last stage of EfficientNet-lite0 and a head, which are trained on float32 and on float16 outputs of
the stage before (200 steps, normalized softmax).
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from pytorch_metric_learning.losses import NormalizedSoftmaxLoss
from torch import Tensor, nn

from pml_extensions.evaluation import RetrievalMetrics
from reality_check.config.datasets import NamedDataset
from reality_check.config.messages import validate
from reality_check.config.model import Model
from reality_check.config.named import expand
from reality_check.config.training import Augment
from reality_check.data import load_dataset
from reality_check.data.tensors import TensorShape
from reality_check.models.network import Network, build_network
from reality_check.models.partly_frozen import output_of
from reality_check.models.pipeline import build_pipeline

SHAPE = (64, 64, 3)
BATCH, ROUNDS, STEPS = 32, 9, 200
LITE0 = "timm:tf_efficientnet_lite0"


def first_token(tokens: Tensor) -> Tensor:
    return tokens[:, 0]


class Call(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


#: Trunk, arguments, module, and the trained modules alone.
CASES: dict[str, tuple[str, dict[str, int], str, Callable[[nn.Module], nn.Module]]] = {
    "ViT-Ti, last 2 of 12 blocks": (
        "timm:vit_tiny_patch16_224",
        {"img_size": 64},
        "blocks.9",
        lambda t: nn.Sequential(*t.blocks[10:], t.norm, Call(first_token)),
    ),
    "ResNet-18, last stage": ("torchvision:resnet18", {}, "layer3", lambda t: t.layer4),
    "EfficientNet-lite0, last stage": (
        LITE0,
        {},
        "blocks.5",
        lambda t: nn.Sequential(t.blocks[6], t.conv_head, t.bn2),
    ),
}


def networks(
    trunk: str, arguments: dict[str, int], name: str, images: Tensor
) -> tuple[Network, Network, Tensor]:
    """The whole network, frozen up to a module, the resumed one, and the samples of that one."""
    plain: dict[str, Any] = {"name": "x", "trunk": trunk, "arguments": arguments, "frozen": name}
    whole = build_network(Model.model_validate(plain), SHAPE, 128, seed=0)
    with torch.no_grad():
        stored = output_of(whole.eval().trunk, name, images)
    plain["stored"] = {"images": SHAPE, "state": ""}
    shape = TensorShape(tuple(stored.shape[1:]), torch.float32)
    return whole, build_network(Model.model_validate(plain), shape, 128, seed=0), stored


def step_of(network: nn.Module, samples: Tensor) -> Callable[[], None]:
    """A function that takes a step."""
    trained = [p for p in network.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, 1e-5)
    network.train()

    def step() -> None:
        optimizer.zero_grad()
        network(samples).square().mean().backward()
        optimizer.step()

    return step


def seconds(step: Callable[[], None], count: int = 5) -> float:
    start = time.perf_counter()
    for _ in range(count):
        step()
    return (time.perf_counter() - start) / count


def print_steps() -> None:
    print("| trunk | resumed / alone | whole, frozen / alone | alone |")
    print("|---|---|---|---|")
    for title, (trunk, arguments, name, part) in CASES.items():
        images = torch.randn(BATCH, 3, *SHAPE[:2])
        whole, rest, stored = networks(trunk, arguments, name, images)
        alone = Network(part(whole.trunk), whole.head, whole.embedder)
        steps = [step_of(n, x) for n, x in ((rest, stored), (whole, images), (alone, stored))]
        rounds = [[seconds(step) for step in steps] for _ in range(ROUNDS)]
        ratios = [statistics.median(r[k] / r[2] for r in rounds) for k in (0, 1)]
        alone_ms = 1000 * statistics.median(r[2] for r in rounds)
        print(f"| {title} | {ratios[0]:.2f} | {ratios[1]:.2f} | {alone_ms:.1f} ms |", flush=True)


def print_float16(seeds: int) -> None:
    config = validate(
        NamedDataset, {"dataset": expand("caltech101", "dataset", "datasets", None)}, ""
    )
    data = load_dataset(config.dataset)
    plain: dict[str, Any] = {
        "name": "x",
        "trunk": LITE0,
        "weights": "./lite0.pth",
        "frozen": "blocks.5",
    }
    whole = build_network(Model.model_validate(plain), SHAPE, 128, seed=0).eval()
    pipeline = build_pipeline(data, Model.model_validate(plain), Augment(), torch.device("cpu"))
    with torch.no_grad():
        batches = [output_of(whole.trunk, "blocks.5", b) for b in pipeline.evaluation_batches()]
    stored = torch.cat(batches)
    labels = torch.from_numpy(data.labels)
    plain["stored"] = {"images": SHAPE, "state": ""}
    model, shape = Model.model_validate(plain), TensorShape(tuple(stored.shape[1:]), torch.float32)
    scores: dict[str, list[float]] = {"float32": [], "float16": []}
    for seed in range(seeds):
        for kind, samples in (("float32", stored), ("float16", stored.half().float())):
            scores[kind].append(
                score(build_network(model, shape, 128, seed), samples, labels, seed)
            )
    differences = np.subtract(scores["float16"], scores["float32"])
    error = differences.std(ddof=1) / len(differences) ** 0.5
    print(f"MAP@R with float32: {np.mean(scores['float32']):.2f}")
    print(f"float16 - float32: {differences.mean():+.3f} points (standard error {error:.3f})")


def score(network: Network, samples: Tensor, labels: Tensor, seed: int) -> float:
    """Train on even classes; return MAP@R on odd ones in points."""
    torch.manual_seed(seed)
    even = torch.nonzero(labels % 2 == 0).flatten()
    loss = NormalizedSoftmaxLoss(int(labels.max()) // 2 + 1, 128)
    trained = [p for p in network.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(
        [{"params": trained, "lr": 1e-4}, {"params": loss.parameters(), "lr": 1e-2}]
    )
    for _ in range(STEPS):
        rows = even[torch.randint(len(even), (BATCH,))]
        network.eval()  # BatchNorm stands still
        optimizer.zero_grad()
        loss(network(samples[rows]), labels[rows] // 2).backward()
        optimizer.step()
    odd = labels % 2 == 1
    with torch.no_grad():
        embeddings = torch.cat([network(part) for part in samples[odd].split(256)])
    found = RetrievalMetrics()(nn.functional.normalize(embeddings), labels[odd])
    return 100 * found["mean_average_precision_at_r"]


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("steps", "float16"))
    parser.add_argument("--seeds", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.what == "steps":
        print_steps()
    else:
        print_float16(options.seeds)


if __name__ == "__main__":
    main()
