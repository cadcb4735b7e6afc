from __future__ import annotations

import pytest

from reality_check.config import compose
from reality_check.config.described import Description
from reality_check.config.metrics import (
    METRICS,
    by_corruption,
    check_name,
    check_selects,
    find_metric,
    metric_of,
    names_on,
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
    metric = metric_of(name)
    assert metric.title == printed
    assert metric.needs_faiss == (printed.startswith("binary") or name == "NMI")
    assert metric.percent == ("ratio" not in printed and name != "AvgDTP")
    assert (metric.higher_is_better is None) == (name in ("AvgDTP", "verification_LFW_se"))
    assert not metric.is_own


def test_the_depth_of_a_recall() -> None:
    assert metric_of("recall_at_10").depth == metric_of("binary_recall_at_10").depth == 10
    for other in ("recall_at_0", "recall_at_01", "recall_at_", "recall_at_-1", "recall_at_K"):
        assert find_metric(other) is None


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


def test_which_images_a_metric_is_measured_on() -> None:
    names = ["NMI", "jigsaw_r_precision", "recall_at_2", "cutout_recall_at_2"]
    names += ["jigsaw_precision_at_1", "trainval_separability", "verification_LFW", "AvgDTP"]
    assert names_on("test", names) == ["NMI", "recall_at_2"]
    assert names_on("trainval", names) == ["separability"]
    assert names_on("training", names) == ["AvgDTP"]
    assert metric_of("verification_LFW").pairs == "LFW"
    assert by_corruption(names) == {
        "jigsaw": ["r_precision", "precision_at_1"],
        "cutout": ["recall_at_2"],
    }
    for name in ("cutout_recall_at_0", "cutout_NMI", "cutout", "dropout_cutout_precision_at_1"):
        assert find_metric(name) is None
    with pytest.raises(ValueError, match="no metric 'trainval_NMI'"):
        check_name("trainval_NMI")


def test_what_is_of_raw_embeddings_or_of_codes_is_measured_once() -> None:
    once = {"trace_between_raw", "trainval_trace_within_raw", "AvgDTP", "binary_recall_at_2", "m.f"}
    for name in (*once, "trainval_separability", "NMI", "recall_at_2", *METRICS):
        assert metric_of(name).both_geometries == (name not in once)


def test_only_what_validation_classes_can_be_measured_by_selects() -> None:
    for name in (*METRICS, "mean_reciprocal_rank", "recall_at_4", "my_metrics.spread"):
        assert check_selects(name) == name
    for name in ("NMI", "binary_recall_at_2", "dropout_precision_at_1", "separability"):
        with pytest.raises(ValueError, match="nothing can be selected by"):
            check_selects(name)


def test_what_a_run_recorded_of_an_own_metric_is_printed() -> None:
    described = {"m.f": Description("latency", "ms", False), "of_a_package": Description("x")}
    metric = metric_of("m.f", described)
    assert (metric.title, metric.sign, metric.is_own) == ("latency (ms)", -1, True)
    assert metric_of("of_a_package", described).is_own
    assert metric_of("m.f").title == "f"
    assert metric_of("recall_at_2_raw").percent
    assert metric_of("separability_normalized").title == "separability (ratio)"
    assert metric_of("of_a_later_version").title == "of_a_later_version"
