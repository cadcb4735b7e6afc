"""Metrics that an experiment may ask for beside the protocol's three: names, titles and units.

They are measured on the test classes only, when a reproduction is scored (``final_metrics`` of the
protocol); nothing is ever selected by them.
"""

from __future__ import annotations

import difflib
import enum
import re
from collections.abc import Iterable

from reality_check.utils.text import nearest

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
    """A stage of an experiment: of a method, in the order in which they run, or of the baselines.

    The final stage trains one network on all trainval classes, which the category ``complete``
    scores.
    """

    SEARCH = "search"
    REPRODUCTIONS = "reproductions"
    FINAL = "final"
    BASELINES = "baselines"

    __str__ = str.__str__
    __format__ = str.__format__  # type: ignore[assignment]

    @property
    def category_of_seeds(self) -> str:
        """What seeds are derived from: networks of the final stage have their category's."""
        return "complete" if self is Stage.FINAL else self.value


#: Those that a method goes through, in order.
STAGES = (Stage.SEARCH, Stage.REPRODUCTIONS, Stage.FINAL)


def stage_of(category: str) -> Stage:
    """The stage whose networks a category scores."""
    return Stage.FINAL if category == "complete" else Stage.REPRODUCTIONS


#: Those of one name, and how tables print them.
RETRIEVAL = {"mean_average_precision": "MAP", "mean_reciprocal_rank": "MRR"}
CLUSTERING = {"NMI": "NMI", "AMI": "AMI", "F1": "F1"}
SEPARABILITY = "separability"
#: Of raw embeddings, whatever a method's own geometry is: the names of
#: :class:`pml_extensions.evaluation.ClassSeparability`, and how tables print them.
RAW_SCATTER = {
    "separability_raw": "separability, raw (ratio)",
    "trace_between_raw": "tr S_b, raw (trace)",
    "trace_within_raw": "tr S_w, raw (trace)",
}
VERIFICATION = "verification_accuracy"
#: Mean distance of the images of a network's training classes to their proxies, raw.
AVG_DTP = "AvgDTP"
#: What the names of metrics of the images of the trainval classes begin with.
TRAINVAL = "trainval_"

#: What the names of metrics of binary codes begin with.
BINARY = "binary_"

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

_NAMED = {
    **RETRIEVAL,
    **CLUSTERING,
    SEPARABILITY: "separability (ratio)",
    **RAW_SCATTER,
    VERIFICATION: "verification",
    AVG_DTP: AVG_DTP,
    **{BINARY + name: f"binary {title}" for name, title in METRICS.items()},
}
_RECALL = re.compile(r"(?:binary_)?recall_at_([1-9][0-9]{0,5})")
_OF_PAIRS = re.compile(r"verification_(?!accuracy$)(.+?)(_se)?")
_CORRUPTED = re.compile(rf"({'|'.join(CORRUPTIONS)})_(.+)")


def recall_depth(name: str) -> int | None:
    """The K of ``recall_at_K`` or ``binary_recall_at_K``; ``None`` for any other name."""
    match = _RECALL.fullmatch(name)
    return int(match[1]) if match else None


def pair_list(name: str) -> str | None:
    """The list of pairs of ``verification_LFW`` or its standard error, ``verification_LFW_se``."""
    match = _OF_PAIRS.fullmatch(name)
    return match and match[1]


def corrupted(name: str) -> tuple[str, str] | None:
    """Corruption and metric of ``dropout_precision_at_1``; ``None`` for any other name.

    Any of the protocol's three metrics and ``recall_at_K`` can be asked for on test images that
    were corrupted (:data:`CORRUPTIONS`).
    """
    match = _CORRUPTED.fullmatch(name)
    if match is None or not (
        match[2] in METRICS or (recall_depth(match[2]) and not is_binary(match[2]))
    ):
        return None
    return match[1], match[2]


def of_trainval(names: Iterable[str]) -> list[str]:
    """What is asked for of the images of the trainval classes, by the name that test images have.

    Only separability and its parts can be: ``trainval_separability``.
    """
    bases = (name.removeprefix(TRAINVAL) for name in names if name.startswith(TRAINVAL))
    return [name for name in bases if name == SEPARABILITY or name in RAW_SCATTER]


def by_corruption(names: Iterable[str]) -> dict[str, list[str]]:
    """The metrics asked for on each kind of corrupted images, in the order given."""
    metrics: dict[str, list[str]] = {}
    for corruption, metric in filter(None, map(corrupted, names)):
        metrics.setdefault(corruption, []).append(metric)
    return metrics


def clean(names: Iterable[str]) -> list[str]:
    """Those of the metrics that are measured on the test images as they are."""
    return [
        name
        for name in names
        if not (name == AVG_DTP or corrupted(name) or pair_list(name) or of_trainval([name]))
    ]


def is_binary(name: str) -> bool:
    """Whether the metric is one of binary codes, which are the same in both geometries."""
    return name.startswith(BINARY)


def depends_on_geometry(name: str) -> bool:
    """Whether there are two of the metric: of unit vectors, and of raw ones."""
    return not is_binary(name) and name.removeprefix(TRAINVAL) not in (AVG_DTP, *RAW_SCATTER)


def other_geometry(normalize: bool) -> str:
    """What names end in of metrics in the geometry that is not the method's."""
    return "_raw" if normalize else "_normalized"


def is_fraction(name: str) -> bool:
    """Whether the metric lies in 0..1 and is printed in percent; else it is a plain number."""
    name = name.removeprefix(TRAINVAL)
    return name not in (SEPARABILITY, AVG_DTP, *RAW_SCATTER)


def is_ranked(name: str) -> bool:
    """Whether more of the metric is better."""
    return name != AVG_DTP and not name.endswith("_se")


def title(name: str) -> str:
    """How tables print a metric, those of the protocol too: ``recall_at_2`` as ``R@2``."""
    if name in METRICS:
        return METRICS[name]
    changed = corrupted(name)
    if changed is not None:
        return f"{title(changed[1])} ({changed[0].replace('_', ' ')})"
    if pair_list(name):
        return name.replace("_", " ")
    if of_trainval([name]):
        return f"{title(name.removeprefix(TRAINVAL))} on trainval"
    depth = recall_depth(name)
    if depth is None:
        return _NAMED[name]
    return f"binary R@{depth}" if is_binary(name) else f"R@{depth}"


def check_selects(name: str) -> str:
    """The name of a metric, if epochs and trials can be selected by it."""
    if name in METRICS or name in RETRIEVAL or (recall_depth(name) and not is_binary(name)):
        return name
    known = (*METRICS, *RETRIEVAL, "recall_at_K")
    raise ValueError(
        f"nothing can be selected by {name!r}; write one of {', '.join(known)}."
        f"{nearest(name, known)}"
    )


def check_name(name: str) -> None:
    """Make sure that a metric can be asked for."""
    if name in METRICS:
        raise ValueError(
            f"{name!r} is one of the protocol's three metrics, which are always measured; leave it "
            "out"
        )
    special = recall_depth(name) or corrupted(name) or pair_list(name)
    if name in _NAMED or special or of_trainval([name]):
        return
    known = [
        *_NAMED,
        "trainval_separability",
        "recall_at_K",
        "binary_recall_at_K",
        "CORRUPTION_precision_at_1",
        "verification_LIST",
    ]
    raise ValueError(f"there is no metric {name!r}; known: {', '.join(known)}.{_hint(name)}")


def _hint(name: str) -> str:
    """The nearest valid name as a question, whatever the case in which the user wrote."""
    spelled = {valid.lower(): valid for valid in (*_NAMED, *METRICS)}
    depth = re.search(r"\d*$", name)[0].lstrip("0")  # type: ignore[index]
    recalls = [f"{prefix}recall_at_{depth or 1}" for prefix in ("", BINARY)]
    spelled |= {TRAINVAL + of: TRAINVAL + of for of in (SEPARABILITY, *RAW_SCATTER)}
    spelled |= {recall: recall for recall in recalls if recall_depth(recall)}
    spelled |= {
        f"{corruption}_{metric}": f"{corruption}_{metric}"
        for corruption in CORRUPTIONS
        for metric in METRICS
    }
    close = difflib.get_close_matches(name.lower(), spelled, n=1, cutoff=0.5)
    return f" Did you mean {spelled[close[0]]!r}?" if close else ""
