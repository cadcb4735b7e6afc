from __future__ import annotations

import re
import unicodedata
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from reality_check.config.datasets import TensorsData
from reality_check.data import ImageSet, TensorSet, load_dataset
from reality_check.data.sanity import copies, similar_names

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
    assert similar_names([name, "another", other]) == [(name, other)] * (name != other)


@given(st.sets(st.tuples(st.text("xyz", max_size=2), st.integers(1, 99)), max_size=8))
def test_different_names_do_not_look_alike(drawn: set[tuple[str, int]]) -> None:
    names = [f"{word}-{number}" for word, number in drawn]
    assert similar_names([*names, "0", "10", "100", "A", "a", "1.5", "1.05"]) == []


ROWS = np.random.default_rng(0).random((6, 8, 8, 3))


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        (np.full((6, 8, 8), 1, np.uint8), "6 of 6 sampled images.*no value above 1 of 255"),
        (np.full((6, 8, 8), 9, np.uint8) * np.uint8([[[1]], [[20]]] * 3), "3 of 6 .* above 9 of"),
        (np.full((6, 8, 8), 9, np.uint8) * np.uint8([[[1]]] + [[[20]]] * 5), None),
        (255 * ROWS, r"float32 of shape \(8, 8, 3\) with values from 0\.\d+ to 25\d\.\d+, which"),
        ((4095 * ROWS[..., 0]).astype(np.uint16), "int32 of shape .* to 40"),
        ((255 * ROWS).astype(np.uint8).transpose(0, 3, 1, 2), "uint8 of shape .*3, 8, 8"),
        (1000 * ROWS[:, 0, 0], None),  # vectors have any range
    ],
)
def test_values_in_an_unexpected_range_are_said(
    tmp_path: Path, samples: np.ndarray, said: str | None
) -> None:
    np.savez(tmp_path / "toy.npz", x=samples, y=["01", "1", "b"] * 2)
    config = TensorsData(name="toy", reader="tensors", path=str(tmp_path / "toy.npz"))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        load_dataset(config)
    names, *others = (str(one.message) for one in caught)
    assert "'01' and '1'" in names
    assert len(others) == (said is not None)
    assert all(re.search(said or "", text) for text in others)


def test_outputs_of_a_network_have_any_range(tmp_path: Path) -> None:
    recorded = {"source": "{}", "made_of": '{"data_fingerprint": "x"}'}  # by `embed --until`
    np.savez(tmp_path / "toy.npz", x=1000 * ROWS, y=["a", "b"] * 3, **recorded)
    config = TensorsData(name="toy", reader="tensors", path=str(tmp_path / "toy.npz"))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        load_dataset(config)


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5)), min_size=1, max_size=12))
def test_copies_are_those_of_a_plain_loop(drawn: list[tuple[int, int]]) -> None:
    drawn += [(label, 10 + label) for label in range(4)]  # every class has a sample
    labels, values = map(np.array, zip(*drawn, strict=True))
    samples = np.broadcast_to(values[:, None, None, None], (len(drawn), 2, 2, 1))
    tested = {2, 3}
    classes = [{label for label, other in drawn if other == value} for _, value in drawn]
    count = sum(len(found) > 1 for found in classes)
    crossing = sum(bool(found & tested and found - tested) for found in classes)
    for data in (
        ImageSet(samples.astype(np.uint8), labels, tuple("abcd"), "toy"),  # type: ignore[arg-type]
        TensorSet(samples.astype(np.float32), labels, tuple("abcd"), "toy"),  # type: ignore[arg-type]
    ):
        expected = [str(number) for number in (count, len(drawn), crossing) if count]
        assert re.findall(r"\d+", copies(data, sorted(tested))) == expected
