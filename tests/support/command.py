"""The command in processes of their own, in a folder with a small experiment."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np

from support.pace import slowness

EXPERIMENT = """\
dataset: {name: blobs, reader: tensors, path: blobs.npz}
model: {base: conv4, arguments: {width: 4}}
protocol:
  base: quick_one_search
  split: {folds: 2}
  training: {iterations_per_epoch: 3, max_epochs: 2, embedding_size: 8, batch_size: 4}
  search: {trials: 2, startup_trials: 1}
  reproductions: 2
  final_metrics: [recall_at_2, NMI, separability, binary_recall_at_1]
  gallery: 2
methods: [contrastive, {base: normalized_softmax, name: a_name_so_long_that_few_tables_want_it}]
"""


def write_images(file: Path, classes: int) -> None:
    """Four noisy 16 x 16 images of each class."""
    draw = np.random.default_rng(0)
    patterns = draw.integers(0, 255, (classes, 1, 16, 16)).repeat(4, axis=1).reshape(-1, 16, 16)
    images = np.clip(patterns + draw.normal(0, 40, patterns.shape), 0, 255).astype(np.uint8)
    np.savez(file, images=images, labels=np.repeat(np.arange(classes), 4))


def write_large_images(file: Path) -> None:
    """24 classes of 6 noisy 32 x 32 patterns."""
    draw = np.random.default_rng(0)
    patterns = draw.uniform(0, 255, (24, 1, 8, 8)).repeat(4, axis=2).repeat(4, axis=3)
    images = np.clip(patterns + draw.normal(0, 90, (24, 6, 32, 32)), 0, 255)
    labels = np.repeat(np.arange(24), 6)
    np.savez(file, images=images.reshape(144, 32, 32).astype(np.uint8), labels=labels)


def prepare(folder: Path, experiment: str = EXPERIMENT) -> None:
    write_images(folder / "blobs.npz", 20)
    (folder / "experiment.yaml").write_text(experiment)


def start(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "reality_check", *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Its exit status and what it wrote, once it has ended."""
    out, error = process.communicate(timeout=120 * slowness())
    return process.returncode, out, error
