"""AccuracyCalculator against PML's own, values by hand, scikit-learn; in PML's testers, trainers.

Among them are the cases of PML's tests of its calculator and testers, but those of a GPU.
"""

from __future__ import annotations

import copy
import logging
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import faiss
import numpy as np
import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from pytorch_metric_learning import losses, testers, trainers
from pytorch_metric_learning.distances import CosineSimilarity
from pytorch_metric_learning.utils import accuracy_calculator as pml
from pytorch_metric_learning.utils import common_functions as c_f
from pytorch_metric_learning.utils import logging_presets
from pytorch_metric_learning.utils.inference import CustomKNN, FaissKMeans, FaissKNN
from sklearn import metrics as sklearn_metrics
from support.examples import examples
from torch import Tensor

from pml_extensions.evaluation import AccuracyCalculator, _ranking

COUNTED = (
    "mean_average_precision",
    "mean_average_precision_at_r",
    "mean_reciprocal_rank",
    "precision_at_1",
    "r_precision",
)
CPU = torch.device("cpu")
MODES: list[dict[str, bool]] = [{}, {"avg_of_avgs": True}, {"return_per_class": True}]
Data = tuple[Tensor, Tensor]


def ours(*data: Any, **kwargs: Any) -> dict[str, Any]:
    kwargs = {"include": COUNTED, "device": CPU} | kwargs
    return AccuracyCalculator(**kwargs).get_accuracy(*data)


def pmls(*data: Any, **kwargs: Any) -> dict[str, Any]:
    kwargs = {"include": COUNTED, "device": CPU} | kwargs
    result: dict[str, Any] = pml.AccuracyCalculator(**kwargs).get_accuracy(*data)
    return result


def assert_same(result: dict[str, Any], expected: dict[str, Any], tolerance: float = 1e-9) -> None:
    assert list(result) == list(expected)
    for name, values in expected.items():
        assert isinstance(result[name], list) == isinstance(values, list), name
        # PML averages reciprocal ranks in float32.
        atol = max(tolerance, 1e-6) if name == "mean_reciprocal_rank" else tolerance
        np.testing.assert_allclose(
            result[name], values, rtol=0, atol=atol, equal_nan=True, err_msg=name
        )


@pytest.fixture(scope="module", params=["counted", "sorted"])
def way(request: pytest.FixtureRequest) -> Iterator[None]:
    """Run a test in both ways, between which the size of the data otherwise chooses."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "counted":
            for device in ("", "_ON_CPU"):
                patch.setattr(_ranking, f"_MAX_SORTED_REFERENCES{device}", 0)
            patch.setattr(_ranking, "_MAX_SORTED_GALLERY_ON_CPU", 0)
            patch.setattr(_ranking, "_SORTED_SHARE", 0)
            patch.setattr(_ranking, "_LARGEST_COUNTED_CLASS", 1000)
        yield


in_both_ways = pytest.mark.usefixtures("way")


def no_search(self: FaissKNN, *args: Any, **kwargs: Any) -> Any:
    raise AssertionError("searched for neighbours")


points = st.lists(
    st.tuples(st.integers(-1, 2), st.integers(-2, 1), st.integers(0, 4)), min_size=1, max_size=14
)


def split(rows: list[tuple[int, int, int]]) -> Data:
    table = torch.tensor(rows)
    return table[:, :2].float(), table[:, 2]


def situation(name: str, x: Tensor, y: Tensor, others: Data) -> tuple[Any, ...]:
    both = torch.cat([x, others[0]]), torch.cat([y, others[1]])
    return {
        "alone": (x, y),
        "itself": (x, y, x.clone(), y.clone(), True),
        "itself, to be found": (x, y, x, y, False),
        "gallery": (x, y, *others),
        "in front of a gallery": (x, y, *both, True),
    }[name]


SITUATIONS = ("alone", "itself", "itself, to be found", "gallery", "in front of a gallery")


@in_both_ways
@examples(100)
@given(
    queries=points,
    others=points,
    name=st.sampled_from(SITUATIONS),
    k=st.sampled_from([None, "max_bin_count", 1, 2, 5]),
    mode=st.sampled_from(MODES),
)
def test_any_small_set_equals_pml(
    queries: list[Any], others: list[Any], name: str, k: Any, mode: dict[str, bool]
) -> None:
    data = situation(name, *split(queries), split(others))
    found = len(data[0 if len(data) == 2 else 2]) - int(len(data) == 2 or data[-1] is True)
    # Here PML takes the last reference for all that are missing.
    assume(not isinstance(k, int) or k <= found)
    # And here it stops with an error.
    is_hopeless = name == "gallery" and not set(data[1].tolist()) & set(data[3].tolist())
    assume(not (is_hopeless and k == "max_bin_count"))
    assert_same(ours(*data, k=k, **mode), pmls(*data, k=k, **mode))


def clustered(seed: int, sizes: list[int], spread: float, dimensions: int = 16) -> Data:
    """Return shuffled classes of these sizes around centres ``spread`` apart."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    y = y[torch.randperm(len(y), generator=generator)]
    centres = spread * torch.randn(len(sizes), dimensions, generator=generator)
    x = centres[y] + torch.randn(len(y), dimensions, generator=generator)
    return torch.nn.functional.normalize(x), y


DATA = {
    "random": clustered(1, [15] * 20, 0.0),
    "clustered": clustered(2, [15] * 20, 1.0),
    "skewed": clustered(3, [120] + [5] * 30, 0.7),
    "singletons": clustered(4, [1] * 60 + [2] * 20 + [9] * 10, 0.7),
}


@in_both_ways
@pytest.mark.parametrize("k", [None, "max_bin_count", 1, 7])
@pytest.mark.parametrize("mode", MODES, ids=["queries", "classes", "per class"])
@pytest.mark.parametrize("kind", DATA)
def test_equals_pml_in_float32(kind: str, mode: dict[str, bool], k: Any) -> None:
    data = DATA[kind]
    assert_same(ours(*data, k=k, **mode), pmls(*data, k=k, **mode), 1e-5)


@in_both_ways
@pytest.mark.parametrize("kind", DATA)
@pytest.mark.parametrize("name", SITUATIONS)
def test_every_kind_of_reference_equals_pml(kind: str, name: str) -> None:
    x, y = DATA[kind]
    data = situation(name, x[:100], y[:100], (x[100:], y[100:]))
    for k in (None, "max_bin_count"):
        assert_same(ours(*data, k=k), pmls(*data, k=k), 1e-5)


@in_both_ways
@pytest.mark.parametrize("sizes", [[25] * 6, [60, 40] + [2] * 30 + [1] * 10])
def test_equals_pml_on_integers(sizes: list[int]) -> None:
    x, y = clustered(5, sizes, 1.0, 3)
    x = (3 * x).round()
    for k in (None, "max_bin_count", 10):
        # faiss keeps ties in order of index only where it looks for few neighbours.
        if k == 10 or len(x) < 100:
            assert_same(ours(x, y, k=k), pmls(x, y, k=k))
    spaced = 64 * x + torch.arange(len(x)).unsqueeze(1)
    assert_same(ours(spaced.double(), y), pmls(spaced, y))


def line(*values: float) -> Tensor:
    return torch.tensor([(value, 0.0) for value in values])


def test_clusters_are_scored_as_in_pml_and_scikit_learn() -> None:
    x, y = DATA["clustered"]
    both = {"include": ("NMI", "AMI")}
    assert ours(x, y, **both) == pmls(x, y, **both)
    kmeans = FaissKMeans(niter=5, seed=3)
    result = ours(x, y, **both, kmeans_func=kmeans)
    clusters = kmeans(x, 20).numpy()
    nmi = sklearn_metrics.normalized_mutual_info_score(y.numpy(), clusters)
    ami = sklearn_metrics.adjusted_mutual_info_score(y.numpy(), clusters)
    assert result == pytest.approx({"AMI": ami, "NMI": nmi}, abs=1e-12)


def test_default_metrics_and_their_order_are_pmls() -> None:
    x, y = DATA["clustered"]
    mine, theirs = AccuracyCalculator(device=CPU), pml.AccuracyCalculator(device=CPU)
    assert_same(mine.get_accuracy(x, y), theirs.get_accuracy(x, y), 1e-5)
    for include, exclude in (
        (("r_precision", "NMI", "precision_at_1"), ()),
        ((), ("AMI", "mean_reciprocal_rank")),
        (("r_precision", "NMI"), ("NMI",)),
        (("no such metric",), ()),
    ):
        choice: dict[str, Any] = {"include": include, "exclude": exclude}
        expected = theirs.get_accuracy(x, y, **choice)
        assert_same(mine.get_accuracy(x, y, **choice), expected, 1e-5)
        assert mine.get_curr_metrics() == theirs.get_curr_metrics() == list(expected)


@in_both_ways
def test_lone_queries_leave_the_mean_and_nothing_else() -> None:
    x, y = line(0, 1, 3, 4), torch.tensor([0, 5, 0, 6])
    expected = {"mean_reciprocal_rank": (1 / 2 + 1 / 3) / 2, "precision_at_1": 0.0}
    assert ours(x, y, include=tuple(expected)) == pytest.approx(expected)


@in_both_ways
@pytest.mark.parametrize("k", [None, "max_bin_count", 3])
@pytest.mark.parametrize("mode", MODES, ids=["queries", "classes", "per class"])
def test_nothing_to_find_is_nan(mode: dict[str, bool], k: Any) -> None:
    x = line(0, 1, 2, 3, 5)
    alone = x, torch.tensor([4, 7, 2, 9, 0])
    assert_same(ours(*alone, k=k, **mode), pmls(*alone, k=k, **mode))
    elsewhere = x, torch.tensor([1, 1, 2, 3, 2]), x, torch.tensor([6, 7, 8, 6, 7])
    expected = [np.nan] * 3 if "return_per_class" in mode else np.nan
    assert_same(ours(*elsewhere, k=k, **mode), dict.fromkeys(COUNTED, expected))


def test_nothing_to_find_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, c_f.LOGGER_NAME):
        ours(line(0, 1), torch.tensor([0, 1]))
    assert "None of the query labels are in the reference set" in caplog.text


def test_k_that_is_too_small_is_said(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING, c_f.LOGGER_NAME):
        ours(*DATA["random"], k=3)
    assert "k (3)" in caplog.text


@in_both_ways
def test_k_beyond_the_references_means_all_of_them() -> None:
    x, y = line(0, 1, 2.5, 4.5, 7), torch.tensor([0, 1, 0, 0, 1])
    for data in ((x, y), (x[:2], y[:2], x, y)):
        assert ours(*data, k=99) == ours(*data)
        assert max(pmls(*data, k=99).values()) > 1


def test_reciprocal_rank_can_be_asked_for_alone() -> None:
    x, y = line(0, 1, 2.5, 4.5, 7, 11), torch.tensor([0, 1, 0, 0, 1, 1])
    alone = {"include": ("mean_reciprocal_rank",)}
    expected = {"mean_reciprocal_rank": (1 / 2 + 1 / 4 + 1 / 2 + 1 + 1 / 2 + 1) / 6}
    assert ours(x, y, **alone) == pytest.approx(expected)
    searched = ours(x, y, **alone, knn_func=FaissKNN(reset_after=False))
    assert searched == pytest.approx(expected)


def test_labels_of_any_type() -> None:
    x, y = DATA["skewed"]
    expected = ours(x, y, return_per_class=True)
    for labels in (y.int(), y.float(), -0.5 + y / 4, y - 1000, y.numpy(), y.numpy().astype("u2")):
        assert ours(x, labels, return_per_class=True) == expected
    is_large = y == 0
    assert_same(ours(x, is_large), pmls(x, is_large), 1e-5)
    # PML compares floats in float32.
    tenth = y.double() / 10
    assert ours(x, tenth, x, tenth.float(), True) == ours(x, y)


def test_labels_beyond_float32_stay_apart() -> None:
    x, y = line(0, 1, 10, 11), torch.tensor([0, 1, 0, 1])
    large = y + 2**24
    names = {"include": ("AMI", "precision_at_1")}
    assert ours(x, large, **names) == ours(x, y, **names)
    assert pmls(x, large, **names) != pmls(x, y, **names)
    assert ours(x, large, knn_func=CustomKNN(CosineSimilarity()))["precision_at_1"] < 1


def test_embeddings_of_any_type() -> None:
    x, y = split([(i % 4, i % 3, i % 5) for i in range(40)])
    expected = ours(x, y)
    kinds: list[Any] = [x.numpy(), x.int(), x.half(), x.double(), x.requires_grad_(), x.tolist()]
    for embeddings in kinds:
        assert ours(embeddings, y) == expected
    assert ours(x.double(), y, x, y, True) == expected
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert ours(x, y) == expected


def test_reference_need_not_repeat_the_queries_exactly() -> None:
    x, y = DATA["clustered"]
    noisy = x * (1 + 1e-6 * torch.randn(x.shape, generator=torch.Generator().manual_seed(6)))
    assert_same(ours(x, y, noisy, y, True), pmls(x, y, noisy, y, True), 1e-4)


GOOD = torch.eye(4), torch.tensor([0, 0, 1, 1])
BAD = torch.full((4, 4), torch.nan)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ((BAD, GOOD[1]), "query must be finite, but 4 of 4 rows"),
        ((*GOOD, BAD, GOOD[1]), "reference must be finite"),
        ((GOOD[0] / 0, GOOD[1]), "query must be finite"),
        ((GOOD[0], GOOD[1][:3]), "query_labels must have one row for each of 4 of query"),
        ((*GOOD, GOOD[0], GOOD[1][:3]), "reference_labels must have one row for each of 4"),
        ((*GOOD, GOOD[0]), "reference_labels must be a tensor or an array of numbers"),
        ((*GOOD, torch.eye(5), torch.arange(5)), "query has 4 dimensions, but reference 5"),
        ((*GOOD, GOOD[0].flip(0), GOOD[1], True), "the first 4 rows of reference"),
        ((*GOOD, GOOD[0], GOOD[1].flip(0), True), "the first 4 rows of reference"),
        ((*GOOD, GOOD[0][:3], GOOD[1][:3], True), "the first 4 rows of reference"),
        ((GOOD[0], GOOD[1] + 100000, GOOD[0], GOOD[1] + 100001, True), "the first 4 rows"),
        ((GOOD[0], torch.eye(4)), r"query_labels must have shape \(N,\), but got \(4, 4\)"),
        ((torch.ones(4), GOOD[1]), r"query must have shape \(N, D\)"),
        ((torch.ones(0, 4), GOOD[1][:0]), "with N > 0"),
    ],
)
def test_unusable_data_is_refused(data: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        ours(*data)


def test_nan_is_refused_where_pml_searches() -> None:
    for data in ((BAD, GOOD[1]), (*GOOD, BAD, GOOD[1]), (BAD, GOOD[1], *GOOD)):
        with pytest.raises(ValueError, match="must be finite"):
            ours(*data, knn_func=CustomKNN(CosineSimilarity()))


@pytest.mark.parametrize(
    "arguments",
    [
        {"k": 0},
        {"k": -1},
        {"k": 1.5},
        {"k": "all"},
        {"include": ("no such metric",)},
        {"avg_of_avgs": True, "return_per_class": True},
    ],
)
def test_arguments_are_checked_as_in_pml(arguments: dict[str, Any]) -> None:
    for calculator in (AccuracyCalculator, pml.AccuracyCalculator):
        with pytest.raises(ValueError, match=r"must be|mutually"):
            calculator(**arguments)


def test_pmls_default_search_is_not_run(monkeypatch: pytest.MonkeyPatch) -> None:
    expected = ours(*DATA["random"])
    monkeypatch.setattr(FaissKNN, "__call__", no_search)
    assert ours(*DATA["random"]) == expected
    assert ours(*DATA["random"], knn_func=FaissKNN()) == expected


SEARCHES: dict[str, Callable[[], Any]] = {
    "custom": lambda: CustomKNN(CosineSimilarity()),
    "product": lambda: FaissKNN(index_init_fn=faiss.IndexFlatIP),
    "kept": lambda: FaissKNN(reset_after=False),
}


@pytest.mark.parametrize("search", SEARCHES)
def test_a_search_of_ones_own_is_run(search: str) -> None:
    x, y = DATA["skewed"]
    knn = SEARCHES[search]()
    seen = []

    class Spy(type(knn)):  # type: ignore[misc]
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            seen.append(args)
            return super().__call__(*args, **kwargs)

    knn.__class__ = Spy
    for data in ((x, y), (x[:50], y[:50], x[50:], y[50:])):
        for k in ("max_bin_count", 3):
            expected = pmls(*data, k=k, knn_func=SEARCHES[search]())
            assert_same(ours(*data, k=k, knn_func=knn), expected)
    assert len(seen) == 4
    if search == "kept":
        kept = AccuracyCalculator(include=COUNTED, device=CPU, knn_func=SEARCHES[search]())
        kept.get_accuracy(x, y)
        assert kept.knn_func.index.ntotal == len(x)


def test_an_index_that_is_not_made_anew_is_searched() -> None:
    x, y = DATA["clustered"]
    knn = FaissKNN(reset_before=False)
    with pytest.raises(ValueError, match=r"self\.index is None"):
        ours(x, y, knn_func=knn)
    knn.index = faiss.IndexFlatL2(16)
    assert_same(ours(x, y, knn_func=knn), ours(x, y), 1e-5)


def same_first_other_second(a: Tensor, b: Tensor) -> Tensor:
    return (a[..., 0] == b[..., 0]) & (a[..., 1] != b[..., 1])


def near(a: Tensor, b: Tensor) -> Tensor:
    return (a - b).abs() < 2


def test_labels_may_be_compared_otherwise() -> None:
    x, y = DATA["clustered"]
    pairs = torch.stack([y % 7, y % 3], dim=1)
    for labels, compare in ((pairs, same_first_other_second), (y, near), (y / 2, near)):
        for k in (None, "max_bin_count", 4):
            arguments: dict[str, Any] = {"label_comparison_fn": compare, "k": k}
            assert_same(ours(x, labels, **arguments), pmls(x, labels, **arguments))
    with pytest.raises(NotImplementedError):
        AccuracyCalculator(include=("NMI",), label_comparison_fn=near)


class OwnMetrics:
    """Metrics as PML's documentation adds them."""

    def calculate_precision_at_2(self, knn_labels: Any, query_labels: Any, **kwargs: Any) -> Any:
        return pml.precision_at_k(knn_labels, query_labels[:, None], 2, False, False, pml.EQUALITY)

    def calculate_clusters(self, cluster_labels: Any, **kwargs: Any) -> Any:
        return len(cluster_labels.unique())

    def calculate_mean_norm(self, query: Any, **kwargs: Any) -> Any:
        return query.norm(dim=1).mean().item()

    def requires_knn(self) -> Any:
        return [*super().requires_knn(), "precision_at_2"]  # type: ignore[misc]

    def requires_clustering(self) -> Any:
        return [*super().requires_clustering(), "clusters"]  # type: ignore[misc]


class OwnPrecision:
    def calculate_precision_at_1(self, **kwargs: Any) -> Any:
        return -1.0


class OwnK:
    def determine_k(self, *args: Any) -> Any:
        return 2


class OwnResult:
    def _get_accuracy(self, function_dict: Any, **kwargs: Any) -> Any:
        return {name: len(kwargs["knn_labels"]) for name in function_dict}


@pytest.mark.parametrize("mixin", [OwnMetrics, OwnPrecision, OwnK, OwnResult])
def test_subclasses_work_as_those_of_pml(mixin: type) -> None:
    x, y = DATA["singletons"]
    mine: Any = type("Mine", (mixin, AccuracyCalculator), {})
    theirs: Any = type("Theirs", (mixin, pml.AccuracyCalculator), {})
    for data in ((x, y), (x[:90], y[:90], x[90:], y[90:])):
        a, b = (cls(device=CPU, k="max_bin_count") for cls in (mine, theirs))
        assert_same(a.get_accuracy(*data), b.get_accuracy(*data), 1e-5)
        assert a.get_curr_metrics() == b.get_curr_metrics()


def test_a_subclass_metric_alone_is_pmls() -> None:
    cls: Any = type("Mine", (OwnMetrics, AccuracyCalculator), {})
    x, y = DATA["random"]
    expected = sum(
        int(y[i] == y[j]) / 2 / len(x)
        for i, row in enumerate(torch.cdist(x, x).fill_diagonal_(9).topk(2, largest=False).indices)
        for j in row
    )
    result = cls(include=("precision_at_2",), device=CPU).get_accuracy(x, y)
    assert result == pytest.approx({"precision_at_2": float(expected)})


def test_may_be_copied_and_pickled() -> None:
    calculator = AccuracyCalculator(include=COUNTED, device=CPU, k=3)
    expected = calculator.get_accuracy(*DATA["random"])
    copied = copy.deepcopy(calculator)
    pickled = pickle.loads(pickle.dumps(calculator))
    for other in (copied, pickled):
        assert other.get_accuracy(*DATA["random"]) == expected


def test_inputs_are_left_alone() -> None:
    x, y = DATA["random"]
    before = x.clone(), y.clone()
    ours(x, y)
    assert torch.equal(x, before[0])
    assert torch.equal(y, before[1])


def data_sets() -> dict[str, Any]:
    """Return two splits of embeddings with two levels of labels."""
    x, y = DATA["clustered"]
    levels = torch.stack([y, y % 3], dim=1)
    return {
        "train": c_f.EmbeddingDataset(x[:140], levels[:140]),
        "val": c_f.EmbeddingDataset(x[140:], levels[140:]),
    }


@pytest.mark.parametrize("level", [0, "all", [0, 1]])
@pytest.mark.parametrize("tester", ["GlobalEmbeddingSpaceTester", "WithSameParentLabelTester"])
@pytest.mark.parametrize(
    "splits",
    [
        None,
        [("train", ["train", "val"]), ("val", ["train", "val"])],
        [("train", ["train"]), ("val", ["train"])],
    ],
    ids=["self", "combined", "other"],
)
def test_testers_give_the_same(tester: str, level: Any, splits: Any) -> None:
    results = []
    for cls in (AccuracyCalculator, pml.AccuracyCalculator):
        judge = getattr(testers, tester)(
            accuracy_calculator=cls(include=(*COUNTED, "NMI"), k="max_bin_count", device=CPU),
            label_hierarchy_level=level,
            dataloader_num_workers=0,
            batch_size=64,
        )
        results.append(
            judge.test(data_sets(), 3, torch.nn.Identity(), splits_to_eval=copy.deepcopy(splits))
        )
    mine, theirs = results
    assert list(mine) == list(theirs) == ["train", "val"]
    for name in mine:
        assert mine[name].pop("epoch") == theirs[name].pop("epoch") == 3
        assert list(mine[name]) == list(theirs[name])
        assert mine[name] == pytest.approx(theirs[name], abs=1e-5)


@pytest.mark.filterwarnings("ignore:Converting a tensor")
def test_a_trainer_stops_and_saves_by_it(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    torch.manual_seed(0)
    recorder, _, _ = logging_presets.get_record_keeper(str(tmp_path / "csv"), str(tmp_path / "tb"))
    hooks = logging_presets.get_hook_container(
        recorder, primary_metric="mean_average_precision_at_r"
    )
    judge = testers.GlobalEmbeddingSpaceTester(
        end_of_testing_hook=hooks.end_of_testing_hook,
        accuracy_calculator=AccuracyCalculator(
            include=("precision_at_1", "mean_average_precision_at_r"),
            k="max_bin_count",
            device=CPU,
        ),
        data_device=CPU,
        dataloader_num_workers=0,
    )
    model = torch.nn.Linear(16, 8)
    x, y = DATA["clustered"]
    data = c_f.EmbeddingDataset(x, y)
    trainer = trainers.MetricLossOnly(
        models={"trunk": model},
        optimizers={"trunk_optimizer": torch.optim.SGD(model.parameters(), lr=0.1)},
        batch_size=60,
        loss_funcs={"metric_loss": losses.ContrastiveLoss()},
        dataset=data,
        data_device=CPU,
        dataloader_num_workers=0,
        end_of_iteration_hook=hooks.end_of_iteration_hook,
        end_of_epoch_hook=hooks.end_of_epoch_hook(
            judge, {"val": data}, str(tmp_path / "models"), test_interval=1, patience=1
        ),
    )
    trainer.train(num_epochs=2)
    value = judge.all_accuracies["val"]["mean_average_precision_at_r_level0"]
    with torch.no_grad():
        final = torch.nn.functional.normalize(model(x))
    expected = pmls(final, y, include=("mean_average_precision_at_r",), k="max_bin_count")
    assert value == pytest.approx(expected["mean_average_precision_at_r"], abs=1e-5)
    assert list((tmp_path / "models").glob("trunk_best*.pth"))


def by_loops(x: Tensor, y: Tensor, k: int | None, includes_query: bool) -> dict[str, float]:
    """Score embeddings that look for their class among themselves, query by query."""
    scores: dict[str, list[float]] = {name: [] for name in COUNTED}
    distances, labels = torch.cdist(x, x).numpy(), y.numpy()
    for i in range(len(x)):
        order = np.argsort(distances[i], kind="stable")
        if includes_query:
            order = order[order != i]
        own = labels[order] == labels[i]
        if not own.any():
            continue
        relevant, found = own.sum(), own[:k]
        precision = np.cumsum(found) / np.arange(1, len(found) + 1)
        scores["mean_average_precision"].append((precision * found).sum() / relevant)
        within_r = (precision * found)[:relevant]
        scores["mean_average_precision_at_r"].append(within_r.sum() / relevant)
        scores["mean_reciprocal_rank"].append(1 / (1 + found.argmax()) if found.any() else 0.0)
        scores["precision_at_1"].append(float(found[0]))
        # Of what k leaves of the first R.
        scores["r_precision"].append(found[:relevant].mean())
    return {name: float(np.mean(values)) for name, values in scores.items()}


@pytest.mark.parametrize(
    ("k", "classes", "includes_query"),
    [(None, 2, True), (None, 103, False), ("max_bin_count", 11, True), (98, 11, False)],
)
def test_more_neighbours_than_faiss_sorts_on_a_gpu(
    k: Any, classes: int, includes_query: bool
) -> None:
    generator = torch.Generator().manual_seed(classes)
    x = torch.rand(2100, 5, generator=generator, dtype=torch.float64)
    y = torch.randint(classes, (2100,), generator=generator)
    limit = int(y.bincount().max()) - includes_query if k == "max_bin_count" else k
    assert_same(ours(x, y, x, y, includes_query, k=k), by_loops(x, y, limit, includes_query))


def test_the_query_itself_is_left_out_among_copies_of_other_classes() -> None:
    x, y = line(10, 10, 20, 20), torch.tensor([1, 0, 1, 0])
    assert ours(x, y, include=("precision_at_1",)) == {"precision_at_1": 0}
    nowhere, halves = torch.zeros(2000, 2), torch.arange(2000) % 2
    with_k = ours(nowhere, halves, include=("precision_at_1",), k=1)
    assert with_k == ours(nowhere, halves, include=("precision_at_1",))
