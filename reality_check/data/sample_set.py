"""The data that every reader returns: samples, labels and class names."""

from __future__ import annotations

import functools
import hashlib
import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from typing_extensions import Self

from reality_check.data._digests import image_digests, tensor_digests
from reality_check.data.images import Images
from reality_check.data.source_images import SourceImages
from reality_check.data.tensors import Tensors
from reality_check.utils.errors import UsageError


@dataclass(frozen=True, eq=False)
class SampleSet(ABC):
    """Samples with their classes: an :class:`ImageSet` or a :class:`TensorSet`.

    Args:
        samples: the N samples.
        labels: int64, shape (N,), values 0..C-1; every class has at least one sample.
        class_names: one distinct name per label. Readers sort the classes; :meth:`subset` keeps the
            order that it is given.
        name: name of the data set in reports.
        test_classes: labels of the test classes of the data set's own split; None if it has no such
            split.
        queries: bool, shape (N,): which samples of the test classes are queries; the others are the
            gallery. None if every sample is both.
        skipped: image files that could not be decoded and were left out, each as
            ``"path: reason"``.
        sample_names: texts, shape (N,): name of each sample in reports that cannot show it; None if
            the samples have no names.
        origin: a sentence on the data set and the trunk that the samples come from.
        source: the images that the samples were computed from, which reports show, if known.

    Raises:
        UsageError: if an array has another type or shape, a label has no class, a class has no
            sample, or a class name occurs twice.
    """

    #: What error messages call a sample.
    noun: ClassVar[str] = "sample"

    samples: Images | Tensors
    labels: np.ndarray
    class_names: tuple[str, ...]
    name: str
    test_classes: tuple[int, ...] | None = None
    queries: np.ndarray | None = None
    skipped: tuple[str, ...] = ()
    sample_names: np.ndarray | None = None
    origin: str = ""
    source: SourceImages | None = None

    def __post_init__(self) -> None:
        _check_labels(self)
        _check_official_split(self)

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def num_classes(self) -> int:
        """Number of classes."""
        return len(self.class_names)

    def subset(self, classes: Sequence[int]) -> Self:
        """Keep some classes and relabel them 0..len(classes)-1 in the given order.

        Args:
            classes: distinct labels of this set.

        Returns:
            A new set, a view of the same samples, in the order of this set.

        Raises:
            UsageError: if ``classes`` is empty, or has a label twice or one that does not exist.
        """
        chosen = list(map(int, classes))
        if not chosen or sorted(chosen) != sorted(set(chosen) & set(range(self.num_classes))):
            raise UsageError(
                f"A subset of {self.name!r} must be classes among 0..{self.num_classes - 1}, each "
                f"once and at least one, but {chosen} was given."
            )
        new_label = np.full(self.num_classes, -1, dtype=np.int64)
        new_label[chosen] = np.arange(len(chosen))
        relabelled = new_label[self.labels]
        rows = np.flatnonzero(relabelled >= 0)
        return replace(
            self,
            samples=self.samples[rows],
            labels=relabelled[rows],
            class_names=tuple(self.class_names[label] for label in chosen),
            test_classes=None,
            queries=None if self.queries is None else self.queries[rows],
            skipped=(),
            sample_names=None if self.sample_names is None else self.sample_names[rows],
            source=None if self.source is None else self.source[rows],
        )

    def fingerprint(self) -> str:
        """Return a sha256 (hex) of samples, labels, class names and split, computed once.

        Two sets with equal content have equal fingerprints, whatever their ``name`` and wherever
        they were read from.
        """
        return self._fingerprint

    @functools.cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256()
        sizes, digests = self._content()
        digest.update(json.dumps([len(self), *sizes, list(self.class_names)]).encode())
        digest.update(np.ascontiguousarray(self.labels, dtype="<i8").tobytes())
        if self.queries is not None:
            digest.update(np.packbits(self.queries).tobytes())
        if self.test_classes is not None:
            digest.update(json.dumps(list(self.test_classes)).encode())
        digest.update(digests.tobytes())
        return digest.hexdigest()

    @abstractmethod
    def _content(self) -> tuple[Sequence[object], np.ndarray]:
        """Return the samples' sizes and type, for JSON, and checksums of their content."""


@dataclass(frozen=True, eq=False)
class ImageSet(SampleSet):
    """Decoded images with their classes.

    Args:
        samples: N grey or RGB images, or a uint8 array (N, H, W, C). Pixels may be
            memory-mapped.

    The other arguments and errors are those of :class:`SampleSet`.
    """

    noun: ClassVar[str] = "image"

    samples: Images

    def __post_init__(self) -> None:
        if isinstance(self.samples, np.ndarray):
            object.__setattr__(self, "samples", Images.from_array(self.samples))
        super().__post_init__()

    @property
    def images(self) -> Images:
        """The samples."""
        return self.samples

    @property
    def image_shape(self) -> tuple[int, int, int] | None:
        """Height, width and channels of every image; None if their sizes differ."""
        return self.images.shape

    @functools.cached_property
    def digests(self) -> np.ndarray:
        """The sha256 of the pixels of each image: uint8, shape (N, 32)."""
        return image_digests(self.images)

    def _content(self) -> tuple[Sequence[object], np.ndarray]:
        images = self.images
        sizes = images.shape or [images.heights.tolist(), images.widths.tolist(), images.channels]
        return sizes, self.digests


@dataclass(frozen=True, eq=False)
class TensorSet(SampleSet):
    """Vectors, or other tensors of one shape, with their classes.

    Args:
        samples: N tensors, or an array (N, ...), see :meth:`Tensors.from_array`. Values may be
            memory-mapped.

    The other arguments and errors are those of :class:`SampleSet`.
    """

    samples: Tensors

    def __post_init__(self) -> None:
        if isinstance(self.samples, np.ndarray):
            subject = f"The samples of {self.name!r}"
            object.__setattr__(self, "samples", Tensors.from_array(self.samples, subject))
        super().__post_init__()

    def _content(self) -> tuple[Sequence[object], np.ndarray]:
        tensors = self.samples
        return [*tensors.shape, tensors.values.dtype.name], tensor_digests(tensors)


def _check_official_split(data: SampleSet) -> None:
    """Raise UsageError unless the official split fits the classes and samples."""
    if data.test_classes is not None:
        classes = list(data.test_classes)
        if sorted(set(classes) & set(range(data.num_classes))) != classes or not classes:
            raise UsageError(
                f"The test classes of {data.name!r} must be sorted labels among "
                f"0..{data.num_classes - 1}, each once."
            )
    if data.queries is not None and (
        data.queries.dtype != np.bool_ or data.queries.shape != data.labels.shape
    ):
        raise UsageError(
            f"The queries of {data.name!r} are {data.queries.dtype} of shape "
            f"{data.queries.shape}, but they must be bool of shape {data.labels.shape}."
        )


def _check_labels(data: SampleSet) -> None:
    """Raise UsageError unless labels, names and samples fit, and every class has a sample."""
    name, noun, labels, class_names = data.name, data.noun, data.labels, data.class_names
    count = len(data.samples)
    if labels.dtype != np.int64 or labels.shape != (count,):
        raise UsageError(
            f"The labels of {name!r} are {labels.dtype} of shape {labels.shape}, but they must be "
            f"int64 of shape ({count},), one per {noun}."
        )
    if data.sample_names is not None and data.sample_names.shape != (count,):
        raise UsageError(
            f"The names of the {noun}s of {name!r} have shape {data.sample_names.shape}, but they "
            f"must have shape ({count},), one per {noun}."
        )
    duplicates = [text for text, times in Counter(class_names).items() if times > 1]
    if duplicates:
        raise UsageError(
            f"{name!r} has two classes named {duplicates[0]!r}; give each its own name."
        )
    low, high = int(labels.min()), int(labels.max())
    if low < 0 or high >= len(class_names):
        raise UsageError(
            f"The labels of {name!r} span {low}..{high}, but with {len(class_names)} class names "
            f"they must be 0..{len(class_names) - 1}; number the classes from 0 without gaps."
        )
    empty = np.flatnonzero(np.bincount(labels, minlength=len(class_names)) == 0)
    if empty.size:
        raise UsageError(
            f"Class {class_names[empty[0]]!r} of {name!r} has no {noun}; "
            f"remove the class or add {noun}s to it."
        )
