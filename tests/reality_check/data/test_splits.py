"""The worked numbers of the published protocol, and properties over many class counts."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.examples import examples

from reality_check.config.protocol import Split
from reality_check.data import ClassSplits, Fold, ImageSet, class_splits, split_dataset
from reality_check.utils.errors import UsageError

# classes, trainval, test, first and last validation class per fold, train classes per fold
MLRC = {
    "CUB200": (200, 100, 100, [(75, 99), (0, 24), (25, 49), (50, 74)], 75),
    "Cars196": (196, 98, 98, [(74, 97), (0, 23), (25, 48), (49, 72)], 74),
    "SOP": (22634, 11317, 11317, [(8488, 11316), (0, 2828), (2829, 5657), (5658, 8486)], 8488),
}
KFOLD_SIZES = {
    "CUB200": (200, [25, 25, 25, 25]),
    "Cars196": (196, [25, 25, 24, 24]),
    "SOP": (22634, [2830, 2829, 2829, 2829]),
}
NEVER_VALIDATED = {"CUB200": [], "Cars196": [24, 73], "SOP": [8487]}


@pytest.mark.parametrize("name", MLRC)
def test_mlrc_rule_gives_the_published_folds(name: str) -> None:
    classes, trainval, test, ranges, train = MLRC[name]
    splits = class_splits(classes, 4, "mlrc")
    assert splits.trainval == tuple(range(trainval))
    assert splits.test == tuple(range(trainval, classes))
    assert len(splits.test) == test
    for fold, (first, last) in zip(splits.folds, ranges, strict=True):
        assert fold.validation == tuple(range(first, last + 1))
        assert len(fold.train) == train
    validated = {label for fold in splits.folds for label in fold.validation}
    assert sorted(set(splits.trainval) - validated) == NEVER_VALIDATED[name]


@pytest.mark.parametrize("name", KFOLD_SIZES)
def test_kfold_rule_gives_scikit_learns_blocks(name: str) -> None:
    classes, sizes = KFOLD_SIZES[name]
    splits = class_splits(classes, 4, "kfold")
    assert [len(fold.validation) for fold in splits.folds] == sizes
    joined = [label for fold in splits.folds for label in fold.validation]
    assert tuple(joined) == splits.trainval


def original_mlrc(classes: int) -> list[tuple[set[int], set[int]]]:
    """The published rule for 4 folds, as its steps are written down (even counts)."""
    trainval = int(0.5 * classes)
    size = int(classes * 0.125)
    train_size = classes - size - int(0.5 * classes)
    folds = []
    for part in range(4):
        start = int(part / 4 * trainval)
        ring = [(start + step) % trainval for step in range(train_size + size)]
        folds.append((set(ring[:train_size]), set(ring[train_size:])))
    return folds


@examples(40)
@given(st.integers(8, 300).map(lambda half: 2 * half))
def test_even_counts_equal_the_original_rule(classes: int) -> None:
    splits = class_splits(classes, 4, "mlrc")
    assert [(set(f.train), set(f.validation)) for f in splits.folds] == original_mlrc(classes)


@examples(60)
@given(st.integers(2, 12), st.integers(0, 100), st.sampled_from(["mlrc", "kfold"]))
def test_properties(folds: int, extra: int, rule: str) -> None:
    classes = 4 * folds + extra
    splits = class_splits(classes, folds, rule)  # type: ignore[arg-type]
    assert splits.trainval + splits.test == tuple(range(classes))
    assert len(splits.test) - len(splits.trainval) == classes % 2
    assert len(splits.folds) == folds
    seen: set[int] = set()
    for fold in splits.folds:
        assert sorted(fold.train + fold.validation) == list(splits.trainval)
        assert list(fold.train) == sorted(fold.train)
        low, high = fold.validation[0], fold.validation[-1]
        assert fold.validation == tuple(range(low, high + 1))
        assert len(fold.validation) >= 2
        assert not seen & set(fold.validation)
        seen |= set(fold.validation)
    never = len(splits.trainval) % folds if rule == "mlrc" else 0
    assert len(seen) == len(splits.trainval) - never


def test_odd_counts_leave_no_class_in_two_parts() -> None:
    splits = class_splits(197, 4, "mlrc")  # the original rule leaks a class here
    assert (len(splits.trainval), len(splits.test)) == (98, 99)
    assert all(len(fold.train) == 74 for fold in splits.folds)


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ((15, 4, "mlrc"), "7 training and 8 test classes.*at least 8 and 2"),
        ((4, 2, "kfold"), "at least 4"),
        ((100, 1, "mlrc"), "at least 2"),
        ((100, 4, "mlcr"), "Did you mean 'mlrc'"),
    ],
)
def test_refuses(arguments: tuple[int, int, str], text: str) -> None:
    with pytest.raises(UsageError, match=text):
        class_splits(*arguments)  # type: ignore[arg-type]


def test_the_published_rule_with_four_folds_is_what_nothing_named_means() -> None:
    assert class_splits(196) == class_splits(196, 4, "mlrc") != class_splits(196, 4, "kfold")


@pytest.mark.parametrize(("classes", "folds", "rule"), [(16, 4, "mlrc"), (8, 1, "halves")])
def test_the_fewest_classes_validate_on_two(classes: int, folds: int, rule: str) -> None:
    splits = class_splits(classes, folds, rule)  # type: ignore[arg-type]
    assert [len(fold.validation) for fold in splits.folds] == [2] * folds


@pytest.mark.parametrize(
    ("trainval", "test", "folds", "text"),
    [
        ((0, 1, 2), (2, 3), (), "trainval and test share .*2"),
        ((0, 1), (2,), (Fold((0, 1), (1,)),), "train and validation of fold 0"),
        ((0, 1, 2), (3,), (Fold((0,), (1,)),), "do not make up"),
        ((0, 1), (2,), (Fold((0,), (1,)), Fold((0,), (1,))), "folds 0 and 1"),
        ((0, 1), (2,), (Fold((0, 1), ()),), "no classes"),
    ],
)
def test_no_leaking_split_can_be_built(
    trainval: tuple[int, ...], test: tuple[int, ...], folds: tuple[Fold, ...], text: str
) -> None:
    with pytest.raises(ValueError, match=text):
        ClassSplits(trainval, test, folds)


# -- the data set's own split ------------------------------------------------------------------


def labelled(test: tuple[int, ...] | None, queries: bool = False) -> ImageSet:
    labels = np.repeat(np.arange(12), 2)
    asked = np.tile([True, False], 12) if queries else None
    names = tuple(map(str, range(12)))
    images = np.zeros((24, 2, 2, 1), np.uint8)
    return ImageSet(images, labels, names, "toy", test_classes=test, queries=asked)


@dataclass
class Options:
    test_classes: Any = "half"
    rule: Any = "mlrc"
    folds: int = 2
    validation: Any = None


def test_official_test_classes_need_not_be_the_second_half() -> None:
    splits = split_dataset(labelled((0, 5, 11)), Options("official"))
    assert splits.test == (0, 5, 11)
    assert splits.trainval == (1, 2, 3, 4, 6, 7, 8, 9, 10)
    # Nine classes, blocks of four by position: fold 0 validates on the last ones.
    assert splits.folds[0].validation == (7, 8, 9, 10)
    assert splits.folds[1].validation == (1, 2, 3, 4)
    assert split_dataset(labelled((0, 5, 11)), Options("half")) == class_splits(12, 2)


def test_test_classes_may_come_in_any_order() -> None:
    assert class_splits(12, 2, "mlrc", (5, 0, 11)) == class_splits(12, 2, "mlrc", (0, 5, 11))


def test_official_split_of_the_second_half_is_the_half() -> None:
    assert split_dataset(labelled(tuple(range(6, 12))), Options("official")) == class_splits(12, 2)


@pytest.mark.parametrize("options", [Options("official", "halves", 1), Options("official")])
def test_the_fewest_official_classes_validate_on_two(options: Options) -> None:
    splits = split_dataset(labelled(tuple(range(4, 12))), options)
    assert [len(fold.validation) for fold in splits.folds] == [2] * options.folds
    assert split_dataset(labelled((0, 1)), options).test == (0, 1)
    with pytest.raises(UsageError, match=r"3 training and .* need at least 4 and 2"):
        split_dataset(labelled(tuple(range(3, 12))), options)


@pytest.mark.parametrize(
    ("test", "queries", "options", "text"),
    [
        (None, False, Options("official"), "no split of its own.*half"),
        ((10, 11), True, Options("half"), "queries and a gallery.*official"),
        (tuple(range(2, 12)), False, Options("official"), "2 training and 10 test classes"),
        ((11,), False, Options("official"), "11 training and 1 test classes"),
    ],
)
def test_a_split_that_cannot_be(
    test: tuple[int, ...] | None, queries: bool, options: Options, text: str
) -> None:
    with pytest.raises(UsageError, match=text):
        split_dataset(labelled(test, queries), options)


# -- classes by name ---------------------------------------------------------------------------


def test_folds_of_ones_own_train_on_all_others_that_are_not_tested() -> None:
    named = Options(["0", "11"], "own", validation=[["1", "3"], ["2", "10", "9"]])
    splits = split_dataset(labelled(None), named)
    assert splits.test == (0, 11)
    assert splits.trainval == tuple(range(1, 11))
    assert [fold.validation for fold in splits.folds] == [(1, 3), (2, 9, 10)]
    assert splits.folds[0].train == (2, 4, 5, 6, 7, 8, 9, 10)
    half = split_dataset(labelled(None), Options("half", "own", validation=[["1", "3"]]))
    assert half.test == tuple(range(6, 12))
    assert half.folds == (Fold((0, 2, 4, 5), (1, 3)),)
    official = Options("official", "own", validation=[["1", "3"]])
    assert split_dataset(labelled((7, 8)), official).trainval == (0, 1, 2, 3, 4, 5, 6, 9, 10, 11)


def test_tested_classes_may_be_named_and_the_folds_left_to_a_rule() -> None:
    splits = split_dataset(labelled(None), Options(["0", "5", "11"]))
    assert splits == split_dataset(labelled((0, 5, 11)), Options("official"))


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (Options("half", "own", validation=[["1", "12"]]), r"validation\[0\] has the class '12'"),
        (Options(["1", "x"]), "test_classes has the class 'x'"),
        (Options("half", "own", validation=[["1", "6"]]), "1 of the classes that are tested"),
        (Options("half", "own", validation=[list("01234")]), "fewer than 2 are left"),
    ],
)
def test_names_that_make_no_split(options: Options, text: str) -> None:
    with pytest.raises(UsageError, match=text):
        split_dataset(labelled(None), options)


def test_a_protocol_reads_its_split_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "folds.yaml"
    file.write_text("test_classes: [0, 11]\nvalidation:\n- [1, 3]\n- [nine, ten]\n")
    split = Split.model_validate(str(file))
    assert (split.rule, split.folds, split.test_classes) == ("own", 2, ["0", "11"])
    assert split.validation == [["1", "3"], ["nine", "ten"]]
    assert Split(**split.model_dump()) == split
    with pytest.raises(ValueError, match="is listed twice"):
        Split(validation=[["1", "2"], ["2", "3"]])
    with pytest.raises(ValueError, match="needs validation"):
        Split(rule="own")
    with pytest.raises(ValueError, match=r"missing\.yaml"):
        Split.model_validate("missing.yaml")
