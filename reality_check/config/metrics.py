"""The table of metrics: what an experiment can ask for, and how reports print it.

``final_metrics`` of the protocol are measured on the test classes only, when a reproduction is
scored. This module computes nothing: ``function`` of a row names the code that does, and
:func:`find_metric` does not import it.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from reality_check.config.described import Description
from reality_check.config.plugins import find_plugin, plugins
from reality_check.utils.text import nearest

#: Value of a diverged training if a user-defined metric selects, below all values of the metric.
#: For the metrics of this package, which are fractions, it is 0.
DIVERGED = -1e9

#: Names of the three protocol metrics (as in pytorch-metric-learning) and how tables print them.
METRICS = {
    "mean_average_precision_at_r": "MAP@R",
    "r_precision": "RP",
    "precision_at_1": "P@1",
}

#: The metric that selects checkpoints and hyper-parameters, and that verdicts are about.
PRIMARY = "mean_average_precision_at_r"

#: The metric that selects checkpoints where a protocol selects on the test classes, as the papers
#: of the field do: P@1 is Recall@1.
SELECTS_ON_TEST = "precision_at_1"

#: The three categories in the order of the tables.
CATEGORIES = ("aggregate", "ensemble", "complete")


class Stage(str, enum.Enum):
    """The stages of a method, in the order in which they run, and the baselines.

    The race continues the best trials of a search. The final stage trains one network on all
    trainval classes, which the category ``complete`` scores.
    """

    SEARCH = "search"
    RACE = "race"
    REPRODUCTIONS = "reproductions"
    FINAL = "final"
    BASELINES = "baselines"

    # As in enum.StrEnum, which Python 3.10 does not have.
    __str__ = str.__str__
    __format__ = str.__format__  # type: ignore[assignment]

    @property
    def category_of_seeds(self) -> str:
        """The name that seeds are derived from; for the final stage, the name of its category."""
        return "complete" if self is Stage.FINAL else self.value

    @property
    def trial_name(self) -> str:
        """What a trial of the stage is called."""
        names = {
            "search": "trial",
            "race": "trial",
            "reproductions": "reproduction",
            "final": "final run",
        }
        return names.get(self.value, self.value)


#: The stages of a method, in order.
STAGES = (Stage.SEARCH, Stage.REPRODUCTIONS, Stage.FINAL)


def stage_of(category: str) -> Stage:
    """Return the stage whose networks a category scores."""
    return Stage.FINAL if category == "complete" else Stage.REPRODUCTIONS


#: The names of :data:`pml_extensions.evaluation.CORRUPTIONS`, written out because its import takes
#: seconds.
CORRUPTIONS = (
    "gaussian_noise",
    "uniform_noise",
    "salt_and_pepper",
    "dropout",
    "cutout",
    "affine_shear",
    "jigsaw",
    "hue_saturation",
    "defocus_blur",
)


@dataclass(frozen=True)
class Metric:
    """One metric that an experiment can ask for.

    Attributes:
        name: the name in YAML files, records and packs.
        title: the name in tables.
        function: the code that computes it: a key of
            :data:`reality_check.evaluation.scoring.FUNCTIONS`; for a user-defined metric its import
            path or its name in an installed package.
        higher_is_better: the direction; ``None`` if neither is better.
        percent: whether it is a fraction, printed in percent; otherwise it is a plain number.
        both_geometries: whether it is measured on both unit and raw vectors.
        selects: whether epochs and trials can be selected by it.
        needs_faiss: whether faiss computes it.
        images: the images it is measured on: ``test``, ``trainval``, ``training`` (those a network
            was trained on), ``pairs`` (of a list), or one of :data:`CORRUPTIONS`.
        on_test_images: the name of the same metric on the unchanged test images.
        depth: the K of ``recall_at_K``.
        pairs: the list of pairs of ``verification_LIST``.
        is_own: whether the user or an installed package defines it.
    """

    name: str
    title: str
    function: str
    higher_is_better: bool | None = True
    percent: bool = True
    both_geometries: bool = True
    selects: bool = False
    needs_faiss: bool = False
    images: str = "test"
    on_test_images: str = ""
    depth: int | None = None
    pairs: str = ""
    is_own: bool = False

    @property
    def sign(self) -> int:
        """1, or -1 for a metric of which lower values are better."""
        return -1 if self.higher_is_better is False else 1

    @property
    def maximised(self) -> Metric:
        """The metric that epochs and trials are selected by: this one, or its negative."""
        if self.sign > 0:
            return self
        return replace(self, title=f"-{self.title}", higher_is_better=True)

    @property
    def diverged(self) -> float:
        """The value of a diverged training where epochs and trials are selected by the metric."""
        return DIVERGED if self.is_own else 0.0


#: All metrics with fixed names. Raw scatter always uses raw embeddings, even if a method normalizes
#: them.
_TABLE = (
    *(Metric(name, title, "retrieval", selects=True) for name, title in METRICS.items()),
    Metric("mean_average_precision", "MAP", "retrieval", selects=True),
    Metric("mean_reciprocal_rank", "MRR", "retrieval", selects=True),
    *(Metric(name, name, "clusters", needs_faiss=True) for name in ("NMI", "AMI", "F1")),
    Metric("separability", "separability (ratio)", "separability", percent=False),
    *(
        Metric(name, title, "raw_scatter", percent=False, both_geometries=False)
        for name, title in {
            "separability_raw": "separability, raw (ratio)",
            "trace_between_raw": "tr S_b, raw (trace)",
            "trace_within_raw": "tr S_w, raw (trace)",
        }.items()
    ),
    Metric("verification_accuracy", "verification", "verification"),
    # Mean distance of the raw embeddings of the training images to their proxies.
    Metric("AvgDTP", "AvgDTP", "proxies", None, False, both_geometries=False, images="training"),
    *(
        Metric(
            f"binary_{name}", f"binary {title}", "codes", both_geometries=False, needs_faiss=True
        )
        for name, title in METRICS.items()
    ),
)
_BY_NAME = {metric.name: metric for metric in _TABLE}

_RECALL = re.compile(r"(binary_)?recall_at_([1-9][0-9]{0,5})")
_ON_OTHER_IMAGES = re.compile(rf"({'|'.join((*CORRUPTIONS, 'trainval'))})_(.+)")
_ON_PAIRS = re.compile(r"verification_(?!accuracy$)(.+?)(_se)?")


def find_metric(name: str, described: Mapping[str, Description] | None = None) -> Metric | None:
    """Return the metric of a name, or ``None`` if there is none, without importing its code.

    Args:
        name: a name in the table; ``recall_at_K``; ``CORRUPTION_precision_at_1``, ``trainval_...``
            or ``verification_LIST``; or the name of a user-defined metric.
        described: descriptions of user-defined metrics that a run recorded; without one, the title
            is the function's name.
    """
    if name in _BY_NAME:
        return _BY_NAME[name]
    if match := _RECALL.fullmatch(name):
        template = _BY_NAME[f"{match[1] or ''}precision_at_1"]
        title = template.title.replace("P@1", f"R@{match[2]}")
        return replace(template, name=name, title=title, depth=int(match[2]))
    if match := _ON_OTHER_IMAGES.fullmatch(name):
        return _on_other_images(name, match[1], find_metric(match[2]))
    if match := _ON_PAIRS.fullmatch(name):
        higher_is_better = None if match[2] else True  # None for a standard error
        title = name.replace("_", " ")
        return Metric(name, title, "verification", higher_is_better, images="pairs", pairs=match[1])
    if described and name in described:
        return _own_metric(name, described[name])
    is_path = "." in name and all(part.isidentifier() for part in name.split("."))
    if is_path or name in plugins("metric"):
        return _own_metric(name, Description(name.rpartition(".")[2][:60]))  # the longest title
    return None


def _on_other_images(name: str, images: str, metric: Metric | None) -> Metric | None:
    """Return a metric on corrupted images or on images of the trainval classes, if there is one."""
    # The metrics that are measured on such images.
    functions = ("separability", "raw_scatter") if images == "trainval" else ("retrieval",)
    if metric is None or metric.images != "test" or metric.function not in functions:
        return None
    suffix = " on trainval" if images == "trainval" else f" ({images.replace('_', ' ')})"
    title = f"{metric.title}{suffix}"
    return replace(
        metric, name=name, title=title, selects=False, images=images, on_test_images=metric.name
    )


def _own_metric(name: str, description: Description) -> Metric:
    """Return the metric that a user or a plugin defines under this name."""
    unit = f" ({description.unit})" if description.unit else ""
    return Metric(
        name,
        f"{description.title}{unit}",
        function=name,
        higher_is_better=description.higher_is_better,
        percent=False,
        both_geometries=False,
        selects=True,
        is_own=True,
    )


def metric_of(name: str, described: Mapping[str, Description] | None = None) -> Metric:
    """Return the metric of a recorded name, which may end in ``_raw`` or ``_normalized``.

    An unknown metric, such as one of a later version, has its name as title.
    """
    base = re.sub("_(raw|normalized)$", "", name)
    return find_metric(name, described) or find_metric(base, described) or Metric(name, name, "")


def names_on(images: str, names: Iterable[str]) -> list[str]:
    """Return the metrics that are measured on ``images``, by their names on test images."""
    metrics = map(metric_of, names)
    return [metric.on_test_images or metric.name for metric in metrics if metric.images == images]


def by_corruption(names: Iterable[str]) -> dict[str, list[str]]:
    """Return the metrics on each kind of corrupted images, in the order of ``names``."""
    kinds = dict.fromkeys(metric_of(name).images for name in names)
    return {kind: names_on(kind, names) for kind in kinds if kind in CORRUPTIONS}


def own_metrics(names: Iterable[str]) -> list[str]:
    """Return the user-defined metrics among the names, without duplicates."""
    return [name for name in dict.fromkeys(names) if metric_of(name).is_own]


def check_selects(name: str) -> str:
    """Return the name if epochs and trials can be selected by that metric, else raise."""
    metric = find_metric(name)
    if metric is not None and metric.selects:
        return name
    known = [*(known.name for known in _TABLE if known.selects), "recall_at_K"]
    raise ValueError(
        f"nothing can be selected by {name!r}; write one of {', '.join(known)}, or the import path "
        f"of an own metric.{nearest(name, known)}"
    )


def check_name(name: str) -> None:
    """Raise ``ValueError`` if there is no metric of that name to ask for."""
    if name in METRICS:
        raise ValueError(
            f"{name!r} is one of the protocol's three metrics, which are always measured; leave it "
            "out"
        )
    known = find_metric(name)
    if known is not None:
        # This raises UsageError if several packages have a metric of that name.
        find_plugin("metric", name, [] if known.is_own else [("reality_check", name)])
        return
    listed = ", ".join(known for known in _BY_NAME if known not in METRICS)
    raise ValueError(
        f"there is no metric {name!r}; known: {listed}, trainval_separability, recall_at_K, "
        "binary_recall_at_K, CORRUPTION_precision_at_1, verification_LIST, or the import path of "
        f"an own one such as my_metrics.silhouette.{_hint(name)}"
    )


def _hint(name: str) -> str:
    """Return the nearest valid name as a question, ignoring upper and lower case."""
    # The number at the end of the name is kept.
    depth = re.search(r"\d*$", name)[0].lstrip("0") or "1"  # type: ignore[index]
    others = (f"{images}_{base}" for images in (*CORRUPTIONS, "trainval") for base in _BY_NAME)
    names = [*_BY_NAME, *plugins("metric"), f"recall_at_{depth}", f"binary_recall_at_{depth}"]
    # From a name in lower case to its spelling.
    spelled = {valid.lower(): valid for valid in (*names, *filter(find_metric, others))}
    hint = nearest(name.lower(), spelled)  # a question with the name between quotes, chr(39), or ""
    return f" Did you mean {spelled[hint.split(chr(39))[1]]!r}?" if hint else ""
