"""The lists of LFW, AgeDB-30 and CFP-FP, CALFW and CPLFW: which pair is in which fold."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from reality_check.config.protocol import PairList
from reality_check.data import TensorSet
from reality_check.data.pairs import read_pairs
from reality_check.data.tensors import Tensors
from reality_check.utils.errors import UsageError

#: Two images of each person; those of each fold: one person, then the first images of two.
NAMES = [f"faces/P_{p}/P_{p}_{i:04d}.jpg" for p in range(10) for i in (1, 2)]
SAME = [(NAMES[2 * p], NAMES[2 * p + 1]) for p in range(10)]
APART = [(NAMES[2 * p], NAMES[2 * p - 2]) for p in range(10)]


def lfw() -> str:
    pairs = [f"P_{p}\t1\t2\nP_{p}\t1\tP_{(p - 1) % 10}\t1\n" for p in range(10)]
    return "10\t1\n" + "".join(pairs)


def agedb() -> str:
    pairs = zip(SAME, APART, strict=True)
    return "".join(f"{a} {b} 1\r\n\n{c} {d} 0\r\n" for (a, b), (c, d) in pairs)


def calfw() -> str:
    same = [f"{name} {fold}\n" for fold, pair in enumerate(SAME, 1) for name in pair]
    return "\ufeff" + "".join([*same, *(f"{name} 0\n" for pair in APART for name in pair)])


def read(content: str | bytes, folder: Path, images: str = "", names: list[str] = NAMES) -> object:
    file = folder / "pairs.txt"
    file.write_bytes(content if isinstance(content, bytes) else content.encode())
    pixels, labels = np.zeros((len(names), 8), np.float32), np.zeros(len(names), np.int64)
    tensors = Tensors.from_array(pixels, "these")
    test = TensorSet(tensors, labels, ("all",), "faces", sample_names=np.array(names))
    lists = {"LFW": PairList(file=str(file), images=images)}
    first, second, same = read_pairs(lists, test)["LFW"]
    return [
        (names[a], names[b], bool(one))
        for a, b, one in zip(first.tolist(), second.tolist(), same, strict=True)
    ]


@pytest.mark.parametrize(("content", "images"), [(lfw(), "faces/"), (agedb(), ""), (calfw(), "")])
def test_every_format_gives_the_same_folds(content: str, images: str, tmp_path: Path) -> None:
    expected = []
    for fold in range(10):
        expected += [(*SAME[fold], True), (*APART[fold], False)]
    assert read(content, tmp_path, images) == expected


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (lfw(), "'P_0/P_0_0001', but test images have names such as 'faces/P_0/P_0_0001'"),
        (lfw().replace("P_9\t1\t2\n", ""), "its first line does not announce its 19 pairs"),
        (agedb().replace(f"{SAME[0][0]} {SAME[0][1]} 1", ""), "9 pairs of one class and 10 of two"),
        (agedb().replace(" 1\r", " yes\r"), "cannot be read after 0 pairs: .*'yes'"),
        (calfw()[: calfw().rindex("faces")], "cannot be read after 20 pairs|after 19 pairs"),
        (agedb().encode("utf-16"), "cannot be read after 0 pairs: .*utf-8"),
        ("", "announce its 0 pairs"),
        ("one two three four\n", "cannot be read after 0 pairs"),
    ],
)
def test_one_sentence_for_a_bad_list(content: str | bytes, words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        read(content, tmp_path)
    assert "\n" not in str(caught.value)


def test_two_images_of_one_name_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="two test images are named 'faces/P_0/P_0_0001'"):
        read(lfw(), tmp_path, names=[*NAMES, NAMES[0].replace("jpg", "png"), "b"])
