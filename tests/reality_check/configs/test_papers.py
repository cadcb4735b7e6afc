"""The experiments of the papers' tables: each loads and trains in all its phases."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from support.experiments import shipped

from reality_check.cli.main import main
from reality_check.config import Experiment, Method, Model, Training, compose
from reality_check.config.compose import read_experiment
from reality_check.config.metrics import metric_of
from reality_check.config.published_scores import PAPERS
from reality_check.config.yaml_text import dump_yaml, parse_yaml
from reality_check.data import ImageSet
from reality_check.report.deviations import find_deviations
from reality_check.training.fold import FoldTask
from reality_check.training.methods import fill_method, middle_params, search_space
from reality_check.training.trainer import Trainer
from reality_check.utils.config_files import paper_files

CPU = torch.device("cpu")
#: What was trained for another experiment of this process.
TRAINED: set[str] = set()
FILES = paper_files()
ALL = ("cub200", "cars196", "sop")
#: Every table and figure that is repeated, with its data sets.
EXPECTED = {
    "000_sgsl": {
        "table1": ALL,
        "table2": ("in_shop",),
        "table3": ("cub200", "cars196", "in_shop"),
        "table4": ("cars196",),
        "table5": (*ALL, "in_shop"),
        "table6": ("cars196",),
        "figure4": ("cars196",),
    },
    "001_normalized_softmax": {
        "table1": ALL,
        "table2": ALL,
        "table3": ALL,
        "table4": ("cub200",),
        "table5": ("cub200",),
        "table6": ("sop", "in_shop"),
        "table7": ("cars196", "cub200"),
        "figure2": ("cars196", "cub200"),
        "figure3": ("cub200",),
        "figure4": ("sop",),
    },
    "002_grad_ml": {"table3": ALL, "table5": ("cub200",), "table6": ("cub200",)},
    "003_heated_up_softmax": {
        "table1": ("cars196",),
        "table2": ("cub200",),
        "table3": ("sop",),
        "table4": ("in_shop",),
        "table5": ("cars196",),
    },
    "004_warped_softmax": {
        "table1": ALL,
        "table1_crop256": ALL,
        "table2": ALL,
        "table3": ("cub200",),
        "table4": ("cub200",),
        "table5": ("ms1mv2",),
        "table6": ("cub200",),
        "table7": ("cars196",),
        "table8": ("sop",),
        "figure6": ("cub200",),
        "figure7": ("cub200",),
        "figure8": ("cars196",),
    },
}
#: Those that have no classes to validate on.
ALL_EPOCHS = {
    "papers/001_normalized_softmax/table4_cub200",
    "papers/004_warped_softmax/table5_ms1mv2",
}
#: Training classes of the data sets.
CLASSES = {
    "cub200": 100,
    "cars196": 98,
    "stanford_online_products": 11_318,
    "in_shop": 3_997,
    "ms1mv2": 85_742,
}
#: Those that tune on folds as Appendix D does.
TUNED = {f"papers/004_warped_softmax/table{n}" for n in ("6_cub200", "7_cars196", "8_sop")}


def variants() -> list[tuple[str, str | None]]:
    """Every experiment in each of its variants."""
    found = []
    for name, file in FILES.items():
        found += [(name, key) for key in read_experiment(file).get("variants", {None: {}})]
    return found


def load(name: str, variant: str | None) -> Experiment:
    return shipped(name, *([] if variant is None else [f"variant={variant}"]))


@pytest.fixture(scope="module")
def images() -> ImageSet:
    """80 classes of 13 small colour images: enough for each of the batches."""
    pixels = np.random.default_rng(0).integers(0, 256, (80 * 13, 16, 16, 3), dtype=np.uint8)
    labels = np.repeat(np.arange(80), 13)
    return ImageSet(pixels, labels, tuple(map(str, range(80))), "noise")


def stand_in(model: Model) -> Model:
    """The model with a small trunk from scratch; its head stays."""
    trunk = {"trunk": "conv4", "arguments": {"width": 8}, "weights": "none"}
    return model.model_copy(update={**trunk, "last_stride": 2, "remove_last_bn_relu": "no"})


def small(training: Training) -> Training:
    """The training on images of 16 x 16, in float32."""
    plain = training.model_dump()
    plain["augmentation"] |= {"crop_size": 16, "resize": None}
    return Training.model_validate(plain | {"autocast": "none"})


def parameters(run: Trainer) -> dict[str, torch.Tensor]:
    parts = {"trunk": run.network.trunk, "embedder": run.network.embedder, "loss": run.loss}
    return {
        part: torch.cat([torch.zeros(1), *(p.detach().flatten() for p in module.parameters())])
        for part, module in parts.items()
    }


def task_of(experiment: Experiment, method: Method) -> FoldTask:
    settings = fill_method(method, experiment.protocol, middle_params(method, experiment.protocol))
    training = small(experiment.training_of(method))
    model, size = stand_in(experiment.model_of(method)), training.embedding_size
    return FoldTask(
        settings, model, training, size, network_seed=1, loss_seed=2, fixed_epochs=(1, 1)
    )


def without_numbers(value: Any) -> Any:
    """The same, but that numbers other than zero are equal."""
    if isinstance(value, dict):
        return {key: without_numbers(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [without_numbers(item) for item in value]
    return bool(value) if isinstance(value, int | float) else value


def steps_of(task: FoldTask) -> str:
    """What its steps do, whatever the numbers: ``test_preflight.py`` tries each loss by itself."""
    settings = dataclasses.replace(task.settings, name="", params={})
    parts = (dataclasses.asdict(settings), task.model.model_dump(), task.training.model_dump())
    plain = [without_numbers({**part, "name": ""}) for part in parts]
    return json.dumps(plain, sort_keys=True, default=str)


def train(task: FoldTask, images: ImageSet, folder: Path) -> Iterator[Any]:
    """Two iterations of the first phase, one of the second; all parameters before and after."""
    settings, training = task.settings, task.training
    run = Trainer(task, images, None, folder, CPU)
    run.build()
    before = parameters(run)
    value = run.train_steps(2)
    yield value, before, parameters(run)
    if settings.second_phase is not None:
        run.module.enter_second_phase(settings.second_phase)
        run.progress.position.spent = training.phase_epochs(two_phases=True)[0]
        before = parameters(run)
        yield run.train_steps(1), before, parameters(run)


@pytest.mark.filterwarnings("ignore:the warp's theory holds", "ignore:label_smoothing")
@pytest.mark.parametrize(("name", "variant"), variants())
def test_it_loads_and_trains_in_all_its_phases(
    name: str, variant: str | None, images: ImageSet, tmp_path: Path
) -> None:
    experiment = load(name, variant)
    if variant in (None, "official"):
        assert compose(parse_yaml(dump_yaml(experiment.plain()))) == experiment
    for method in experiment.methods:
        task = task_of(experiment, method)
        if steps_of(task) in TRAINED:
            continue
        TRAINED.add(steps_of(task))
        frozen = task.training.freeze_trunk_epochs > 0
        for phase, (value, before, after) in enumerate(train(task, images, tmp_path)):
            assert np.isfinite(value), method.name
            assert all(bool(torch.isfinite(part).all()) for part in after.values()), method.name
            for part in after:
                changed = not torch.equal(before[part], after[part])
                waits = part == "trunk" and frozen and phase == 0
                assert changed == (len(after[part]) > 1 and not waits), (method.name, part)


@pytest.mark.parametrize(("name", "variant"), variants())
def test_images_resized_to_a_square_keep_their_borders(name: str, variant: str | None) -> None:
    """Papers 000, 001, 003 and the print of 004 squash; of 000, CUB in the code keeps its shape."""
    experiment = load(name, variant)
    assert experiment.dataset.resize != "square"
    squashed = "normalized_softmax" in name or "heated_up" in name
    squashed |= "000_sgsl" in name and (variant == "paper" or "cars" in name or "sop" in name)
    squashed |= "004" in name and variant == "paper"
    side = experiment.dataset.size
    for method in experiment.methods:
        resize = experiment.training_of(method).augmentation.resize
        if "000_sgsl" in name and "in_shop" in name:
            assert resize in (None, (side, side))  # the images are squares already
        else:
            assert resize == ((side, side) if squashed else None), method.name


def test_every_table_has_its_experiments() -> None:
    expected = {
        f"papers/{paper}/{item}_{data}"
        for paper, items in EXPECTED.items()
        for item, sets in items.items()
        for data in sets
    }
    assert set(FILES) == expected
    assert set(EXPECTED) == set(PAPERS)


@pytest.fixture(scope="module")
def experiments() -> dict[str, Experiment]:
    return {name: load(name, None) for name in FILES}


def test_figures_are_percentages_that_grow_with_the_depth(
    experiments: dict[str, Experiment],
) -> None:
    count = 0
    for name, experiment in experiments.items():
        assert experiment.published_results is not None
        asked = {*experiment.protocol.final_metrics, "recall_at_1", "precision_at_1", "r_precision"}
        asked |= {"mean_average_precision_at_r"}
        for methods in experiment.published_results.results.values():
            for method, figures in methods.items():
                assert set(figures) <= asked, (name, method, "not measured")
                assert all(0 < figure[0] < 100 for figure in figures.values()), (name, method)
                for binary in (False, True):
                    curve = [
                        (depth, figure[0])
                        for metric, figure in figures.items()
                        if (depth := metric_of(metric).depth)
                        and metric.startswith("binary_") == binary
                    ]
                    values = [value for _, value in sorted(curve)]
                    assert values == sorted(values), (name, method)
                count += len(figures)
    assert count > 700


def test_nothing_is_searched_and_the_official_split_is_used(
    experiments: dict[str, Experiment],
) -> None:
    for name, experiment in experiments.items():
        protocol = experiment.protocol
        searched = [m for m in experiment.methods if search_space(m, protocol)]
        if name in TUNED:
            assert len(searched) == len(experiment.methods)
            assert protocol.reference.startswith("appendix_d")
            continue
        assert not searched, name
        assert (protocol.reference, protocol.name) == ("as_published", "as_published")
        assert protocol.split.test_classes == "official"
        assert protocol.selects_on == ("last" if name in ALL_EPOCHS else "validation"), name
        assert protocol.training.patience is None


def test_batches_fit_the_classes_that_they_are_drawn_from(
    experiments: dict[str, Experiment],
) -> None:
    for name, experiment in experiments.items():
        available = CLASSES[experiment.dataset.name]
        if experiment.protocol.selects_on == "validation":
            available //= 2
        for method in experiment.methods:
            each = method.samples_per_class
            batch = experiment.training_of(method).batch_size
            assert each is None or batch // each <= available, (name, method.name)


def test_as_they_ship_only_their_gaps_deviate(experiments: dict[str, Experiment]) -> None:
    own = {"models", "training", "phases", "geometry", "searched parameters"}
    for name, experiment in experiments.items():
        assert experiment.published_results is not None
        found = find_deviations(experiment, [], True)
        gaps = [d.text for d in found if d.topic == "not as in the paper"]
        assert gaps == ([] if name in TUNED else experiment.published_results.gaps), name
        assert {d.topic for d in found} <= {"not as in the paper", *own}, name
        assert not any(d.serious for d in found)


def test_what_a_user_changes_deviates_from_the_file_and_not_where_the_data_lie() -> None:
    name = "papers/000_sgsl/table6_cars196"
    same = ["dataset.path=elsewhere", "protocol.reproductions=2", "seed=3"]
    found = {d.topic: d.text for d in find_deviations(shipped(name, *same), [], True)}
    assert "reproductions 2" in found.pop("protocol")
    assert set(found) == {"not as in the paper"}
    changes = [
        "protocol.selects_on=test",
        "protocol.training.batch_size=128",
        "methods.beta_1.arguments.gamma=10",
        "model.head=sgsl_paper",
        "dataset.size=128",
    ]
    found = {d.topic: d.text for d in find_deviations(shipped(name, *changes), [], True)}
    assert "batch_size 128 (as shipped: 64)" in found["training"]
    assert "beta_1.arguments.gamma 10 (as shipped: 30)" in found["methods"]
    assert "head sgsl_paper" in found["model"]
    assert "size 128" in found["dataset"]
    assert "selects_on test (as shipped: validation)" in found["protocol"]
    assert "selection on the test classes" in found
    glyphs = find_deviations(shipped(name, "dataset=glyphs"), [], True)
    other = {d.topic: (d.text, d.serious) for d in glyphs}
    assert other["data set"] == (
        "The data set is glyphs; the published figures are of cars196 and cannot be compared with "
        "these.",
        True,
    )
    assert "dataset" not in other
    paper = shipped(name, "variant=paper")
    assert "training" not in {d.topic for d in find_deviations(paper, [], True)}


def test_show_lists_them_and_shows_one(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["show", "papers/000_sgsl/table1_cub200", "protocol.selects_on=test"]) == 0
    head = [line for line in capsys.readouterr().out.splitlines() if line.startswith("#")]
    assert head[:3] == [
        "# 000_sgsl_table1_cub200: 2 methods on cub200, model resnet50_sgsl, protocol as_published",
        "# 10 trainings, each at most 100 epochs of a pass over the data in batches of 64",
        "# a method: 5 networks on all classes, SELECTED ON THE TEST CLASSES",
    ]
    assert main(["show", "papers/000_sgsl/table1_cub20"]) == 2
    assert "mean 'papers/000_sgsl/table1_cub200'?" in capsys.readouterr().err
