from __future__ import annotations

import pytest

from reality_check.config import compose
from reality_check.config.metrics import (
    by_corruption,
    check_name,
    clean,
    corrupted,
    depends_on_geometry,
    is_binary,
    is_fraction,
    is_ranked,
    recall_depth,
    title,
)
from reality_check.utils.errors import UsageError

RAW = {
    "name": "asking",
    "dataset": "glyphs",
    "model": "conv4",
    "protocol": "quick_one_search",
    "methods": ["contrastive"],
}


@pytest.mark.parametrize(
    ("name", "printed"),
    [
        ("recall_at_1", "R@1"),
        ("recall_at_1000", "R@1000"),
        ("mean_average_precision", "MAP"),
        ("mean_reciprocal_rank", "MRR"),
        ("NMI", "NMI"),
        ("separability", "separability (ratio)"),
        ("separability_raw", "separability, raw (ratio)"),
        ("trainval_separability", "separability (ratio) on trainval"),
        ("verification_accuracy", "verification"),
        ("verification_LFW_se", "verification LFW se"),
        ("AvgDTP", "AvgDTP"),
        ("binary_recall_at_8", "binary R@8"),
        ("binary_precision_at_1", "binary P@1"),
        ("binary_mean_average_precision_at_r", "binary MAP@R"),
        ("dropout_precision_at_1", "P@1 (dropout)"),
        ("salt_and_pepper_mean_average_precision_at_r", "MAP@R (salt and pepper)"),
        ("affine_shear_recall_at_4", "R@4 (affine shear)"),
    ],
)
def test_names_and_titles(name: str, printed: str) -> None:
    check_name(name)
    assert title(name) == printed
    assert is_binary(name) == printed.startswith("binary")
    assert is_fraction(name) == ("ratio" not in printed and name != "AvgDTP")
    assert is_ranked(name) == (name not in ("AvgDTP", "verification_LFW_se"))


def test_the_depth_of_a_recall() -> None:
    assert recall_depth("recall_at_10") == recall_depth("binary_recall_at_10") == 10
    for other in (
        "recall_at_0",
        "recall_at_01",
        "recall_at_",
        "recall_at_-1",
        "NMI",
        "recall_at_K",
    ):
        assert recall_depth(other) is None


@pytest.mark.parametrize(
    ("name", "suggestion"),
    [
        ("nmi", "NMI"),
        ("f1", "F1"),
        ("recall@4", "recall_at_4"),
        ("Recall_at_10", "recall_at_10"),
        ("recall_at_0", "recall_at_1"),
        ("binary_recal_at_2", "binary_recall_at_2"),
        ("mean_avarage_precision", "mean_average_precision"),
        ("seperability", "separability"),
        ("trainval_seperability_raw", "trainval_separability_raw"),
        ("gausian_noise_precision_at_1", "gaussian_noise_precision_at_1"),
        ("dropout_NMI", "dropout_r_precision"),
        ("jigsaw_binary_precision_at_1", "jigsaw_precision_at_1"),
    ],
)
def test_an_unknown_name_is_answered_by_the_nearest(name: str, suggestion: str) -> None:
    with pytest.raises(ValueError, match="there is no metric") as caught:
        check_name(name)
    assert repr(name) in str(caught.value)
    assert f"Did you mean {suggestion!r}?" in str(caught.value)


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        ("[recall_at_2, nmi]", ["no metric 'nmi'", "recall_at_K", "Did you mean 'NMI'?"]),
        ("[verification_LFW]", ["'verification_LFW'", "write pairs: {LFW: {file: PATH}}"]),
        ("[precision_at_1]", ["'precision_at_1'", "always measured", "leave it out"]),
        ("[NMI, AMI, NMI]", ["'NMI' is listed twice"]),
        ("NMI", ["must be a valid list", "'NMI'"]),
        ("[3]", ["string", "3"]),
    ],
)
def test_a_wrong_list_is_refused_at_load_time_with_its_path(given: str, parts: list[str]) -> None:
    with pytest.raises(UsageError) as caught:
        compose(RAW, [f"protocol.final_metrics={given}"])
    message = str(caught.value)
    assert "protocol.final_metrics" in message
    assert "\n" not in message
    assert not message.endswith(("?.", ".."))
    for part in parts:
        assert part in message


def test_shipped_protocols_ask_for_none() -> None:
    for protocol in ("mlrc", "appendix_d", "quick"):
        assert compose({**RAW, "protocol": protocol}).protocol.final_metrics == []


def test_metrics_on_corrupted_images_are_told_from_the_others() -> None:
    names = [
        "NMI",
        "jigsaw_r_precision",
        "recall_at_2",
        "cutout_recall_at_2",
        "jigsaw_precision_at_1",
    ]
    assert clean(names) == ["NMI", "recall_at_2"]
    assert by_corruption(names) == {
        "jigsaw": ["r_precision", "precision_at_1"],
        "cutout": ["recall_at_2"],
    }
    assert corrupted("cutout_recall_at_0") is corrupted("cutout_NMI") is corrupted("cutout") is None


def test_traces_are_no_fractions_and_of_one_geometry() -> None:
    for name in ("trace_between_raw", "trainval_trace_within_raw"):
        check_name(name)
        assert not is_fraction(name)
        assert not depends_on_geometry(name)
    assert depends_on_geometry("trainval_separability")
    assert clean(["NMI", "trainval_separability"]) == ["NMI"]
    with pytest.raises(ValueError, match="no metric 'trainval_NMI'"):
        check_name("trainval_NMI")
