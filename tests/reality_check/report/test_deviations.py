from __future__ import annotations

from typing import Any

import pytest

from reality_check.config import Experiment, compose
from reality_check.report.deviations import find_deviations
from reality_check.results import Deviation, MethodResults, TrialRecord

#: What the published protocol itself used: any deviation here is a false alarm.
RIGHT: dict[str, Any] = {
    "name": "right",
    "dataset": {"name": "cub200", "reader": "tensors", "path": "cub.npz"},
    "model": "bn_inception",
    "protocol": "mlrc",
    "methods": ["contrastive", "triplet_margin"],
}


def records(count: int, **changes: Any) -> tuple[TrialRecord, ...]:
    values = {"state": "complete", "value": 0.4, **changes}
    return tuple(TrialRecord(trial_index=trial_index, **values) for trial_index in range(count))


def results(experiment: Experiment, **changes: Any) -> list[MethodResults]:
    values = {
        "search": records(experiment.protocol.search.trials),
        "reproductions": records(experiment.protocol.reproductions),
        "final": records(experiment.protocol.reproductions),
        "searched": ("a", "b"),
        **changes,
    }
    return [
        MethodResults(
            name=method.name,
            loss=method.loss,
            normalize_embeddings=method.normalize_embeddings,
            **values,
        )
        for method in experiment.methods
    ]


def find(
    changes: dict[str, Any] | None = None,
    overrides: tuple[str, ...] = (),
    finished: bool = True,
    **recorded: Any,
) -> list[Deviation]:
    experiment = compose({**RIGHT, **(changes or {})}, overrides)
    return find_deviations(experiment, results(experiment, **recorded), finished)


@pytest.mark.parametrize(
    ("protocol", "data", "changes"),
    [
        ("mlrc", "cub200", {}),
        ("mlrc_cars196", "cars196", {"methods": ["contrastive", "cars196/nt_xent"]}),
        ("mlrc_sop", "stanford_online_products", {"methods": ["contrastive", "sop/nt_xent"]}),
        ("mlrc_batch256", "cub200", {"methods": ["contrastive", "batch256/nt_xent"]}),
        ("appendix_d", "cub200", {"methods": ["appendix_d/contrastive", "appendix_d/grad_ml"]}),
        ("appendix_d_sop", "stanford_online_products", {"methods": ["appendix_d_sop/arcface"]}),
    ],
)
def test_the_protocol_itself_has_no_deviation(
    protocol: str, data: str, changes: dict[str, Any]
) -> None:
    dataset = {"name": data, "reader": "tensors", "path": "x.npz"}
    model = {"appendix_d": "resnet50_appendix_d", "appendix_d_sop": "bn_inception_appendix_d"}
    right = {"protocol": protocol, "dataset": dataset, "model": model.get(protocol, "bn_inception")}
    assert find(right | changes) == []


@pytest.mark.parametrize(
    ("protocol", "method", "words"),
    [
        ("mlrc", "sop/nt_xent", ["temperature", "configs/methods/nt_xent.yaml"]),
        ("mlrc_sop", "nt_xent", ["temperature", "configs/methods/sop/nt_xent.yaml"]),
        ("appendix_d", "cosface", ["phase2", "configs/methods/appendix_d/cosface.yaml"]),
        ("mlrc", "quick/cosface", ["arguments.margin", "configs/methods/cosface.yaml"]),
    ],
)
def test_search_ranges_are_compared_with_those_of_the_protocols_data_set(
    protocol: str, method: str, words: list[str]
) -> None:
    found = {d.topic: d.text for d in find({"protocol": protocol, "methods": [method]})}
    for word in words:
        assert word in found[f"method {method.rpartition('/')[2]}"]


def test_how_image_files_are_decoded_is_compared() -> None:
    raw = {"dataset": {"base": "cub200", "size": 128, "resize": "square"}}
    assert [(d.topic, d.text) for d in find(raw)] == [
        ("images", "resize square (mlrc: short_side), size 128 (mlrc: 256).")
    ]
    assert find({"dataset": {"base": "cub200", "path": "elsewhere"}}) == []


def test_metrics_on_request_are_no_deviation() -> None:
    assert find(overrides=("protocol.final_metrics=[recall_at_2, NMI]", "protocol.gallery=3")) == []


@pytest.mark.parametrize(
    ("overrides", "words"),
    [
        (["protocol.search.trials=6"], ["trials", "6", "50"]),
        (["protocol.search.sampler=random"], ["sampler", "random", "gp"]),
        (["protocol.search.kind=repeated"], ["kind repeated (mlrc: one)", "repeats 5 (mlrc: 1)"]),
        (["protocol.reproductions=3"], ["reproductions", "3", "10"]),
        (["protocol.split.rule=kfold"], ["rule", "kfold", "mlrc"]),
        (["protocol.split.folds=5"], ["folds", "5", "4"]),
        (["protocol.training.patience=3"], ["patience", "3", "9"]),
        (["protocol.training.patience=null"], ["patience", "none", "9"]),
        (["protocol.training.max_epochs=10"], ["max_epochs", "10", "1000"]),
        (["protocol.training.freeze_batchnorm=false"], ["freeze_batchnorm", "no", "yes"]),
        (["protocol.training.embedding_size=64"], ["embedding_size", "64", "128"]),
        (["protocol.training.optimizers.trunk.lr=0.01"], ["trunk", "lr", "0.01", "1e-06"]),
        (
            ["protocol.training.optimizers.loss.lr={low: 0.001, high: 0.1, log: true}"],
            ["loss", "lr", "0.001", "0.1", "1e-06"],
        ),
        (["protocol.training.augmentation.rotation=10"], ["rotation", "10", "0"]),
        (["protocol.training.gradient_clip=10"], ["gradient_clip", "10", "none"]),
        (["protocol.training.phases=two"], ["phases", "two", "method"]),
        (["protocol.training.autocast=bf16"], ["autocast", "bf16", "none"]),
        (["protocol.training.tf32=true"], ["tf32", "yes", "no"]),
        (["protocol.categories=[aggregate]"], ["categories", "aggregate", "ensemble"]),
    ],
)
def test_every_rule_that_is_changed_is_named_with_both_values(
    overrides: list[str], words: list[str]
) -> None:
    found = find(overrides=tuple(overrides))
    assert len(found) == 1
    text = f"{found[0].topic}: {found[0].text}"
    for word in words:
        assert word in text
    assert "mlrc" in text


def test_what_a_search_at_random_does_not_use_is_no_rule() -> None:
    (found,) = find(overrides=("protocol.search.sampler=qmc", "protocol.search.startup_trials=3"))
    assert found.text == "sampler qmc (mlrc: gp)."
    (found,) = find(overrides=("protocol.search={kind: subsets, retrain_best: 20}",))
    assert found.text == (
        "budget 10 (mlrc: none), kind subsets (mlrc: one), retrain_best 20 (mlrc: none), sampler "
        "random (mlrc: gp)."
    )
    counted = ("methods.0.trials=6", "protocol.search.trials_per_parameter=3")
    assert not [d for d in find(overrides=counted) if d.topic.startswith("method ")]


def test_what_makes_steps_on_a_gpu_faster_is_no_rule() -> None:
    assert find(overrides=("protocol.training.gpu.cuda_graph=false",)) == find(overrides=())


def test_what_a_random_crop_would_be_like_is_no_rule_where_there_is_none() -> None:
    part = "protocol.training.augmentation."
    off, shape = f"{part}resized_crop_scale=null", f"{part}resized_crop_ratio=[0.5, 2]"
    (deviation,) = find(overrides=(off, shape))
    assert deviation.text.startswith("resized_crop_scale none (mlrc: 0.16 and 1)")
    assert "ratio" not in deviation.text
    (deviation,) = find(overrides=(shape,))
    assert deviation.text == "resized_crop_ratio 0.5 and 2 (mlrc: 0.75 and 1.33)."


def test_a_protocol_of_another_name_is_still_compared_with_its_reference() -> None:
    same = {"protocol": {"base": "mlrc", "name": "ours"}}
    assert find(same) == []
    short = {"protocol": {"base": "mlrc", "name": "ours", "search": {"trials": 5}}}
    assert [d.topic for d in find(short)] == ["search"]


def test_model_data_set_and_note_are_named() -> None:
    found = find({"dataset": "glyphs", "model": "conv4"}, ("protocol.note=A small budget.",))
    topics = {d.topic: d.text for d in found}
    assert topics["protocol"] == "A small budget."
    assert "trunk conv4 (mlrc: bn_inception)" in topics["model"]
    assert "weights none (mlrc: imagenet)" in topics["model"]
    assert "glyphs" in topics["data set"]
    assert "cub200" in topics["data set"]


@pytest.mark.parametrize(
    ("overrides", "word"),
    [
        (["methods.contrastive.arguments.pos_margin=0.5"], "arguments.pos_margin"),
        (["methods.contrastive.arguments.pos_margin.low=0"], "arguments.pos_margin"),
        (["methods.contrastive.learning_rates.trunk=0.1"], "learning_rates.trunk"),
        (["methods.contrastive.samples_per_class=8"], "samples_per_class"),
        (["methods.contrastive.loss_weight_decay=0.1"], "loss_weight_decay"),
        (["methods.contrastive.loss=TripletMarginLoss"], "loss"),
    ],
)
def test_a_shipped_method_with_other_values_is_named(overrides: list[str], word: str) -> None:
    found = find(overrides=tuple(overrides))
    assert len(found) == 1
    assert "contrastive" in found[0].topic
    assert word in found[0].text


def test_methods_that_are_treated_unequally_are_named() -> None:
    experiment = compose({**RIGHT, "methods": ["contrastive", "warped_softmax"]})
    one, two = results(experiment)
    fewer = MethodResults(
        name=two.name,
        loss=two.loss,
        search=two.search[:40],
        reproductions=two.reproductions,
        searched=("a", "b", "c"),
        normalize_embeddings=False,
    )
    found = {d.topic: d for d in find_deviations(experiment, [one, fewer], True)}
    assert found["unequal search"].serious
    assert "contrastive 50" in found["unequal search"].text
    assert "warped_softmax 40" in found["unequal search"].text
    assert "contrastive 2" in found["searched parameters"].text
    assert "warped_softmax 3" in found["searched parameters"].text
    assert "two phases: warped_softmax" in found["phases"].text
    assert "one: contrastive" in found["phases"].text
    assert "warped_softmax" in found["geometry"].text
    assert "contrastive" not in found["geometry"].text


def test_one_geometry_for_all_is_no_deviation() -> None:
    raw = ("methods.0.normalize_embeddings=false", "methods.1.normalize_embeddings=false")
    assert "geometry" not in {d.topic for d in find(overrides=raw)}


def test_missing_work_is_named_and_serious_until_all_is_finished() -> None:
    few = records(7)
    (found,) = find(finished=False, search=few, reproductions=())
    assert found.serious
    methods = "contrastive, triplet_margin"
    assert found.text == f"Not finished: {methods} (search 7 of 50, reproductions 0 of 10)."
    lost = records(50, diverged="nan")
    assert "unfinished" not in {d.topic for d in find(finished=False, search=lost, final=())}


def test_running_and_failed_trials_are_no_finished_ones() -> None:
    mixed = (*records(49), *records(1, state="running"))
    texts = [d.text for d in find(finished=False, search=mixed)]
    assert texts == ["Not finished: contrastive, triplet_margin (search 49 of 50)."]


def test_diverged_runs_are_named() -> None:
    bad = records(3, diverged="the loss became nan", value=0.0)
    some = find(search=(*records(47), *bad))
    assert [d.topic for d in some] == ["diverged", "diverged"]
    assert "3 of 50 search trials of contrastive diverged" in some[0].text
    assert not some[0].serious
    early = find(finished=False, search=bad)
    assert not any("Every" in found.text for found in early), "there may be others"
    every = find(search=bad, reproductions=())
    assert "Every search trial of contrastive diverged (the loss became nan)" in every[0].text
    assert every[0].serious
    runs = find(reproductions=records(10, diverged="nan"))
    assert runs[0].serious
    assert "10 reproductions of contrastive diverged" in runs[0].text


def test_trainings_that_end_at_their_best_epoch_are_counted_by_phase() -> None:
    ends = records(10, cut_short=((1,), (), (), ()))
    (short,) = (d for d in find(reproductions=ends) if d.topic == "short training")
    assert short.text.endswith("better: contrastive 10 of 40, triplet_margin 10 of 40.")
    assert not short.serious, "a quarter is not more than a quarter"
    ends = records(10, cut_short=((1, 2), (2,), (), ()))
    (short,) = (d for d in find(reproductions=ends) if d.topic == "short training")
    assert "contrastive 20 of 40 (phase 1: 10, phase 2: 20)" in short.text
    assert short.serious


def test_serious_deviations_come_first() -> None:
    bad = records(10, diverged="nan")
    found = find({"dataset": "glyphs"}, ("protocol.search.trials=50",), reproductions=bad)
    flags = [d.serious for d in found]
    assert flags == sorted(flags, reverse=True)
    assert set(flags) == {True, False}


def test_restarts_and_parallel_search_are_named() -> None:
    twice = records(50, attempts=2)
    texts = {d.topic: d.text for d in find(search=twice)}
    assert "contrastive 50" in texts["restarts"]
    experiment = compose(RIGHT)
    found = find_deviations(experiment, results(experiment), True, ["triplet_margin"])
    assert [d.topic for d in found] == ["parallel search"]
    assert "triplet_margin" in found[0].text


def test_what_some_methods_do_around_the_training_is_named() -> None:
    method = {
        "base": "heated_up_softmax",
        "before_training": {"proxies": "class_means"},
        "schedules": {"alpha": {"kind": "linear", "factor": 0.25}},
        "phase2": None,
    }
    found = {d.topic: d.text for d in find({"methods": ["contrastive", method]})}
    assert found["before training"].endswith("before the first step: heated_up_softmax.")
    assert found["schedules"] == "Values of the loss change gradually: heated_up_softmax."
    assert (
        "change for as long as a training lasts: heated_up_softmax (alpha)"
        in found["open schedules"]
    )
    alone = {d.topic for d in find({"methods": [method]})}
    assert not alone & {"before training", "schedules"}, "all are treated alike"
