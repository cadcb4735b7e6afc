"""Find likely mistakes in a data set: similar class names, values out of range, copies."""

from __future__ import annotations

import re
import textwrap
import unicodedata
import warnings
from collections.abc import Iterable, Sequence

import numpy as np

from reality_check.data.images import Images
from reality_check.data.sample_set import ImageSet, SampleSet
from reality_check.utils.spread import evenly_spread

#: An image without larger values is nearly black: a mask, or 14-bit values in a 16-bit file.
_DARK = 64


def warn_of_oddities(data: SampleSet) -> None:
    """Warn of class names that look alike, and of values in an unexpected range."""
    # The names are escaped, because two may differ only in invisible characters.
    if pairs := [f"{first!a} and {name!a}" for first, name in similar_names(data.class_names)]:
        warnings.warn(
            f"Names of classes of {data.name!r} look alike: "
            f"{textwrap.shorten(', '.join(pairs), 300)}. If two are one class, give them one name.",
            stacklevel=3,
        )
    if text := _range_oddity(data):
        warnings.warn(text, stacklevel=3)


def similar_names(names: Iterable[str]) -> list[tuple[str, str]]:
    """Return pairs of names that people may take for the same.

    The names of a pair differ in case (except single letters), blanks, leading zeros, invisible
    characters, or how Unicode writes accents and wide letters.
    """
    first_of_key: dict[str, str] = {}
    pairs = [(first_of_key.setdefault(_comparison_key(name), name), name) for name in names]
    return [(earlier, name) for earlier, name in pairs if earlier != name]


def _comparison_key(name: str) -> str:
    """Return a name without the differences that :func:`similar_names` ignores."""
    text = unicodedata.normalize("NFKC", name)
    # The category "Cf" is invisible characters; zeros are leading unless after a digit or a point.
    text = "".join(letter for letter in text if unicodedata.category(letter) != "Cf")
    text = re.sub(r"(?<![\d.])0+(?=\d)", "", " ".join(text.split()))
    return text if len(text) == 1 else text.casefold()


def _range_oddity(data: SampleSet) -> str:
    """Return a sentence on values that are likely to be a mistake; ``""`` if there are none."""
    sampled = data.samples[evenly_spread(len(data), 64)]
    if isinstance(sampled, Images):
        peaks = [int(sampled.image(row).max()) for row in range(len(sampled))]
        dark = [peak for peak in peaks if peak < _DARK]
        if len(dark) * 4 <= len(peaks):  # a few may be photographs taken at night
            return ""
        return (
            f"{len(dark)} of {len(peaks)} sampled images of {data.name!r} are nearly "
            f"black: no value above {max(dark)} of 255. Scale their values to 0..255 (of 16-bit "
            "files to 0..65535) and save them again."
        )
    values = sampled.array()
    low, high = values.min(), values.max()
    # Networks expect values of about 1; those computed from images are for the rest of a network.
    if values.ndim < 3 or max(-low, high) <= 10 or data.source is not None:
        return ""
    return (
        f"The samples of {data.name!r} are {values.dtype} of shape {values.shape[1:]} with values "
        f"from {low:g} to {high:g}, which reach the network as they are. Scale them to about 0..1; "
        "images are uint8 (N, H, W, C), 0..255, with 1 or 3 channels."
    )


def copies(data: SampleSet, tested: Sequence[int]) -> str:
    """Return a sentence on how many samples have a copy in another class, ``""`` if none has.

    Args:
        tested: labels of the test classes.
    """
    if isinstance(data, ImageSet):
        keys = data.digests.view(np.int64)[:, 0]  # the first 8 bytes of each checksum
    else:
        keys = np.array([hash(sample.tobytes()) for sample in data.samples.array()])
    _, content_ids = np.unique(keys, return_inverse=True)

    def count_in(groups: np.ndarray) -> int:
        """Return how many samples have a copy in another group, given each sample's group."""
        # The distinct pairs of a content and a group, each as one number.
        pairs = np.unique(content_ids * data.num_classes + groups)
        in_many_groups = np.bincount(pairs // data.num_classes) > 1  # for each content
        return int(in_many_groups[content_ids].sum())

    count = count_in(data.labels)
    if not count:
        return ""
    return (
        f"{count} of {len(data)} {data.noun}s have an identical copy in another class, "
        f"{count_in(np.isin(data.labels, tested))} of them in training and in test classes: no "
        "loss gets both right."
    )
