"""Class splits: which classes train, validate and test.

The first half of the sorted classes is trainval, the second half is test; no shuffling and no seed,
so every method, trial and laboratory sees the same classes. Where a data set has a split of its
own, its test classes can be taken instead. Trainval is cut into class-disjoint folds by one of
these rules:

``"mlrc"``
    The rule of the Metric Learning Reality Check (powerful-benchmarker's ``MLRCSplitManager``),
    written for k folds. With T trainval classes and v = T // k, fold p starts at s = p * T // k: it
    trains on T - v consecutive classes from s on (wrapping) and validates on the v classes after
    them, which are the v classes before s. So fold 0 validates on the last block, fold 1 on the
    first. T mod k classes are never used for validation. The original counts the rounding remainder
    of an *odd* number of classes as training classes, so that a class is in both train and
    validation; here the extra class is in test only, and all even counts are as in the original.
``"kfold"``
    scikit-learn's ``KFold(k, shuffle=False)``: contiguous blocks, the first T mod k of them one
    class larger; every trainval class is used for validation once.
``"halves"``
    One fold: the first T // 2 trainval classes train, the others validate. ("Realigned Softmax
    Warping", section IV-B; "ProxyNCA++", section 4.1.)
``"own"``
    Each fold validates on the classes that are named for it and trains on all others.

For an odd number of classes, test has the extra class under all rules.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from reality_check.config.protocol import Split
from reality_check.data.sample_set import SampleSet
from reality_check.utils.errors import UsageError
from reality_check.utils.text import nearest

Rule = Literal["mlrc", "kfold", "halves", "own"]


@dataclass(frozen=True)
class Fold:
    """The classes of one fold: sorted labels of the data set, train and validation disjoint."""

    train: tuple[int, ...]
    validation: tuple[int, ...]


@dataclass(frozen=True)
class ClassSplits:
    """A split into trainval and test classes, with folds: sorted labels of the data set.

    ``test`` is the same for all folds and shares no class with ``trainval``. The constructor checks
    that parts are disjoint and raises ``ValueError`` if they are not (a bug, not a user's mistake),
    so that no split that leaks classes can exist.
    """

    trainval: tuple[int, ...]
    test: tuple[int, ...]
    folds: tuple[Fold, ...]

    def __post_init__(self) -> None:
        _check_disjoint("trainval and test", self.trainval, self.test)
        for number, fold in enumerate(self.folds):
            _check_disjoint(f"train and validation of fold {number}", fold.train, fold.validation)
            if not fold.train or not fold.validation:
                raise ValueError(f"Fold {number} has no classes to train or to validate on.")
            if {*fold.train, *fold.validation} != {*self.trainval}:
                raise ValueError(f"Train and validation of fold {number} do not make up trainval.")
            for other in range(number):
                parts = f"the validation classes of folds {other} and {number}"
                _check_disjoint(parts, self.folds[other].validation, fold.validation)


def class_splits(
    num_classes: int,
    folds: int = 4,
    rule: Rule = "mlrc",
    test_classes: Sequence[int] | None = None,
    validation: Sequence[Sequence[int]] = (),
) -> ClassSplits:
    """Split the classes 0..num_classes-1 into trainval folds and test.

    Args:
        num_classes: number of classes of the data set.
        folds: number of folds: 1 for the rule ``"halves"``, at least 2 for the others.
        rule: ``"mlrc"`` (the published protocol), ``"kfold"``, ``"halves"`` or ``"own"``; see the
            docstring of this module.
        test_classes: labels of the test classes; all others are trainval. None means the second
            half.
        validation: the validation classes of each fold, for the rule ``"own"`` only.

    Returns:
        The split; the classes of every part are sorted.

    Raises:
        UsageError: if the rule is unknown or does not allow this number of folds, or if a fold
            would validate on fewer than 2 classes (with one class, every retrieval is right).
    """
    half = range(num_classes // 2, num_classes)
    test = tuple(sorted(map(int, half if test_classes is None else test_classes)))
    trainval = tuple(sorted({*range(num_classes)} - {*test}))
    if rule == "own":
        return _own_split(trainval, test, validation)
    if rule not in _RULES:
        raise UsageError(
            f"Split rule {rule!r} does not exist; write one of {', '.join(map(repr, _RULES))}."
            + nearest(str(rule), _RULES)
        )
    if rule == "halves" and folds != 1:
        raise UsageError(f"folds={folds}, but the rule 'halves' has one fold; write folds: 1.")
    if rule != "halves" and folds < 2:
        raise UsageError(f"folds={folds}, but a cross-validation needs at least 2; write folds: 4.")
    # Each fold validates on 2 classes; a single fold also needs 2 to train on.
    required = 2 * max(folds, 2)
    if len(trainval) < required or len(test) < 2:
        raise UsageError(
            f"{len(trainval)} training and {len(test)} test classes are too few for {folds} folds, "
            f"which need at least {required} and 2: each validates on 2; write fewer folds or "
            "other split.test_classes, or give more classes."
        )
    all_folds = (
        _make_fold(trainval, [trainval[rank] for rank in ranks])
        for ranks in _RULES[rule](len(trainval), folds)
    )
    return ClassSplits(trainval, test, tuple(all_folds))


def split_dataset(data: SampleSet, options: Split) -> ClassSplits:
    """Split the classes of a data set.

    Args:
        data: the data set.
        options: ``folds`` and ``rule`` as in :func:`class_splits`; ``test_classes``, which is
            ``"half"`` (the second half of the classes), ``"official"`` (the test classes of the
            data set's own split) or names of classes; and ``validation``, the names of each fold's
            validation classes.

    Raises:
        UsageError: if the official split is asked for and does not exist, or another one is asked
            for but the data set tests with queries and a gallery, or a class does not exist.
    """
    test = options.test_classes
    if test == "official" and data.test_classes is None:
        raise UsageError(
            f"{data.name!r} has no split of its own, so split.test_classes cannot be official; "
            "write half."
        )
    if test != "official" and data.queries is not None:
        cut = "halved" if test == "half" else "split otherwise"
        raise UsageError(
            f"{data.name!r} tests with queries and a gallery, so its classes cannot be {cut}; "
            "write protocol.split.test_classes: official."
        )
    chosen = data.test_classes if test == "official" else None  # None: the second half
    label_of = {name: label for label, name in enumerate(data.class_names)}
    if not isinstance(test, str):
        chosen = _find_labels(test, label_of, data.name, "test_classes")
    validation = [
        _find_labels(names, label_of, data.name, f"validation[{fold}]")
        for fold, names in enumerate(options.validation or ())
    ]
    return class_splits(data.num_classes, options.folds, options.rule, chosen, validation)


def _find_labels(
    names: Sequence[str], label_of: Mapping[str, int], dataset: str, key: str
) -> tuple[int, ...]:
    """Return the labels of class names; raise UsageError if a name does not exist."""
    unknown = next((name for name in names if name not in label_of), None)
    if unknown is not None:
        raise UsageError(
            f"protocol.split.{key} has the class {unknown!r}, but {dataset!r} has none of that "
            f"name.{nearest(unknown, label_of)}"
        )
    return tuple(label_of[name] for name in names)


def _own_split(
    trainval: tuple[int, ...], test: tuple[int, ...], validation: Sequence[Sequence[int]]
) -> ClassSplits:
    """Return the split of the rule ``"own"``; ``validation`` has the classes of each fold."""
    for number, classes in enumerate(validation):
        if tested := set(classes) & set(test):
            raise UsageError(
                f"protocol.split.validation[{number}] has {len(tested)} of the classes that are "
                "tested; take them out, or name the tested ones in protocol.split.test_classes."
            )
        if len(trainval) - len(classes) < 2:
            raise UsageError(
                f"protocol.split.validation[{number}] has {len(classes)} of the {len(trainval)} "
                "classes that are not tested, so that fewer than 2 are left to train on; name "
                "fewer."
            )
    folds = tuple(_make_fold(trainval, classes) for classes in validation)
    return ClassSplits(trainval, test, folds)


def _make_fold(trainval: Sequence[int], validation: Sequence[int]) -> Fold:
    """Return the fold that validates on some trainval classes and trains on the others."""
    return Fold(tuple(sorted({*trainval} - {*validation})), tuple(sorted(validation)))


def _mlrc_validations(total: int, folds: int) -> list[range]:
    """Return each fold's validation classes by the rule ``"mlrc"``, as ranks below ``total``."""
    size = total // folds
    # The block of fold 0 would end at 0; it is the last block instead.
    ends = [fold * total // folds or total for fold in range(folds)]
    return [range(end - size, end) for end in ends]


#: From a rule to the function that returns the validation classes of each fold, as ranks among the
#: trainval classes, given the numbers of trainval classes and of folds.
_RULES: dict[str, Callable[[int, int], Sequence[Sequence[int]]]] = {
    "mlrc": _mlrc_validations,
    "kfold": lambda total, folds: [fold.tolist() for fold in np.array_split(range(total), folds)],
    "halves": lambda total, folds: [range(total // 2, total)],
}


def _check_disjoint(parts: str, first: tuple[int, ...], second: tuple[int, ...]) -> None:
    """Raise ``ValueError`` if two groups of classes, which ``parts`` names, share a class."""
    if shared := set(first) & set(second):
        raise ValueError(f"Split leaks: {parts} share the classes {sorted(shared)[:5]}.")
