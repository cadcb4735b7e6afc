"""The images that features were computed from, for reports that show samples."""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from reality_check.config.datasets import NamedDataset
from reality_check.data.images import Images
from reality_check.utils.errors import UsageError
from reality_check.utils.paths import expand_path

#: Readers that are not used here, because they run code of the user's or download data, and the
#: file of features may come from a stranger.
_UNSAFE_READERS = ("function", "torch_dataset")


@dataclass(frozen=True)
class SourceImages:
    """The images that the rows of a file of features were computed from.

    Args:
        config: configuration of the data set as JSON, see :func:`dataset_json`.
        fingerprint: fingerprint of the data set when it was embedded.
        rows: int64, shape (N,): the index of each sample's image.
        samples: the number of rows in the file.
    """

    config: str
    fingerprint: str
    rows: np.ndarray
    samples: int

    def __getitem__(self, rows: Any) -> SourceImages:
        return replace(self, rows=self.rows[rows])

    def images(self, classes: Sequence[str]) -> Images | None:
        """Return the image of each sample; ``None`` if the data set is missing or has changed.

        Args:
            classes: name of each sample's class.
        """
        data = _open_dataset(self.config, self.fingerprint)
        if data is None or len(data) != self.samples:
            return None
        if [data.class_names[label] for label in data.labels[self.rows]] != list(classes):
            return None  # the file's rows are in another order, or of other images
        return data.images[self.rows]


def dataset_json(config: Any) -> str:
    """Return a data set's configuration as JSON, with an absolute path and without download."""
    plain = config.plain()
    path = plain.get("path")
    if path is not None and "${" not in path:  # variables are expanded where it is opened
        plain["path"] = str(expand_path(path).absolute())
    return json.dumps(plain | ({"download": False} if "download" in plain else {}))


def recorded_source(columns: Mapping[str, Any], samples: int) -> SourceImages | None:
    """Return the images that ``reality-check embed`` recorded in a file; None if there are none.

    Args:
        columns: from the name of each array of the file to the array.
        samples: the number of rows.
    """
    if "source" not in columns or "made_of" not in columns:
        return None
    fingerprint = json.loads(columns["made_of"])["data_fingerprint"]
    return SourceImages(columns["source"], fingerprint, np.arange(samples), samples)


@functools.lru_cache(maxsize=1)
def _open_dataset(text: str, fingerprint: str) -> Any:
    """Open the data set of a configuration in JSON; return None if it is missing or has changed."""
    # Here, because that module imports this one.
    from reality_check.data import ImageSet, load_dataset

    try:
        config = NamedDataset.model_validate({"dataset": json.loads(text)}).dataset
        if config.reader in _UNSAFE_READERS or getattr(config, "download", False):
            return None
        data = load_dataset(config)
    except (UsageError, OSError, ValueError):
        return None
    if not isinstance(data, ImageSet) or data.fingerprint() != fingerprint:
        return None
    return data
