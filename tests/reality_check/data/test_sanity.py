from __future__ import annotations

import re
import unicodedata
import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reality_check.data import ImageSet, TensorSet, load_dataset
from reality_check.data.sanity import copies, look_alikes

#: What makes another string of a name, but not another name.
DISGUISES = {
    "NFC": lambda name: unicodedata.normalize("NFC", name),
    "NFD": lambda name: unicodedata.normalize("NFD", name),
    "case": str.swapcase,
    "blanks": lambda name: " " + name.replace(" ", "\u00a0 ") + "\t",
    "invisible": lambda name: "\ufeff" + "\u200b".join(name),
    "zeros": lambda name: re.sub(r"(?<!\d)(?=\d)", "00", name),
    "wide": lambda name: name.replace("7", "\uff17"),
}
NAMES = st.text("abz\u00e9\u00c5\u03c3\u0436\u6f22 7", min_size=2, max_size=8).map(str.strip)


@given(NAMES.filter(lambda name: len(name) > 1), st.sampled_from(sorted(DISGUISES)))
def test_a_name_in_disguise_looks_like_itself(name: str, disguise: str) -> None:
    other = DISGUISES[disguise](name)
    assert look_alikes([name, "another", other]) == [(name, other)] * (name != other)


@given(st.sets(st.tuples(st.text("xyz", max_size=2), st.integers(1, 99)), max_size=8))
def test_different_names_do_not_look_alike(drawn: set[tuple[str, int]]) -> None:
    names = [f"{word}-{number}" for word, number in drawn]
    assert look_alikes([*names, "0", "10", "100", "A", "a", "1.5", "1.05"]) == []


def npz(path: Path, **arrays: Any) -> SimpleNamespace:
    np.savez(path, **arrays)
    return SimpleNamespace(reader="tensors", path=str(path), name="toy")


ROWS = np.random.default_rng(0).random((6, 8, 8, 3))


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        (np.full((6, 8, 8), 1, np.uint8), "6 of 6 images.*no value above 1 of 255"),
        (np.full((6, 8, 8), 9, np.uint8) * np.uint8([[[1]], [[20]]] * 3), "3 of 6 .* above 9 of"),
        (np.full((6, 8, 8), 9, np.uint8) * np.uint8([[[1]]] + [[[20]]] * 5), None),
        (255 * ROWS, r"float32 of shape \(8, 8, 3\) with values from 0\.\d+ to 25\d\.\d+, which"),
        ((4095 * ROWS[..., 0]).astype(np.uint16), "int32 of shape .* to 40"),
        ((255 * ROWS).astype(np.uint8).transpose(0, 3, 1, 2), "uint8 of shape .*3, 8, 8"),
        ((255 * ROWS).astype(np.uint8), None),
        (ROWS * 4 - 2, None),
        (1000 * ROWS[:, 0, 0], None),  # vectors have any range
    ],
)
def test_values_in_an_unexpected_range_are_said(
    tmp_path: Path, samples: np.ndarray, said: str | None
) -> None:
    config = npz(tmp_path / "toy.npz", x=samples, y=np.array(["01", "1", "b"] * 2))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        load_dataset(config)
    assert "'01' and '1'" in str(caught[0].message)
    assert len(caught) == 1 + (said is not None)
    if said is not None:
        with pytest.warns(UserWarning, match=said):
            load_dataset(config)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), min_size=1, max_size=12))
def test_copies_are_those_of_a_plain_loop(drawn: list[tuple[int, int]]) -> None:
    drawn += [(label, 10 + label) for label in range(4)]  # every class has a sample
    labels, values = map(np.array, zip(*drawn, strict=True))
    samples = np.broadcast_to(values[:, None, None, None], (len(drawn), 2, 2, 1))
    tested = {2, 3}
    both = [[other for other, same in drawn if same == value] for _, value in drawn]
    count = sum(len(set(classes)) > 1 for classes in both)
    crossing = sum(len({label in tested for label in classes}) > 1 for classes in both)
    names = tuple("abcd")
    for data in (
        ImageSet(samples.astype(np.uint8), labels, names, "toy"),  # type: ignore[arg-type]
        TensorSet(samples.astype(np.float32), labels, names, "toy"),  # type: ignore[arg-type]
    ):
        said = copies(data, sorted(tested))
        assert bool(said) == bool(count)
        assert not said or said.startswith(f"{count} of {len(drawn)} {data.noun}s")
        assert not said or f", {crossing} of them in training and in test" in said
