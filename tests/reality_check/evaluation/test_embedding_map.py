"""Maps of test images: which images, that they keep neighbours, files, and their section."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from support.campaigns import WorkedCampaign
from support.experiments import CAMPAIGN

from reality_check.cli.main import main
from reality_check.config import compose
from reality_check.config.metrics import Stage
from reality_check.data import ImageSet, load_dataset
from reality_check.evaluation.embedding_map import IMAGES, MAP_FILE, read_map, sample_rows, tsne
from reality_check.launch.rescore import draw_maps
from reality_check.models.network import build_network
from reality_check.report.collect import collect
from reality_check.report.figures.map_figure import map_figure, marked_classes
from reality_check.report.sections.pictures import maps_section
from reality_check.report.summary import Summary
from reality_check.results import EmbeddingMap, ExperimentResults, MethodResults
from reality_check.studies.campaign import Campaign
from reality_check.studies.output_folder import fold_folder, lock_experiment
from reality_check.studies.trial import TrialResult
from reality_check.training.fold_checkpoints import MODEL
from reality_check.training.prepared_experiment import PreparedExperiment
from reality_check.utils import checkpoints
from reality_check.utils.errors import UsageError

EXPERIMENT = CAMPAIGN | {"dataset": {"base": "glyphs", "classes": 8, "images_per_class": 5}}


# -- which images, and where ---------------------------------------------------------------------


def test_the_sample_is_bounded_even_and_always_the_same(
    make_images: Callable[..., ImageSet],
) -> None:
    few = make_images(3, 4)
    assert sample_rows(few).tolist() == list(range(12)), "all where there are not too many"
    rows = sample_rows(few, 6)
    assert np.bincount(few.labels[rows]).tolist() == [2, 2, 2]
    assert len(set(rows.tolist())) == 6
    assert rows.tolist() == sample_rows(few, 6).tolist()
    assert IMAGES == 2000


def test_neighbours_stay_neighbours_and_the_map_is_always_the_same() -> None:
    generator = torch.Generator().manual_seed(0)
    centres = 20 * torch.randn(3, 8, generator=generator)
    labels = torch.arange(60) % 3
    vectors = centres[labels] + torch.randn(60, 8, generator=generator)
    points = tsne(vectors)
    assert points.shape == (60, 2)
    assert points.dtype == np.float32
    gaps = np.linalg.norm(points[:, None] - points[None], axis=2) + 1e9 * np.eye(60)
    assert (labels.numpy()[gaps.argmin(axis=1)] == labels.numpy()).all()
    assert (tsne(vectors) == points).all()


def test_too_few_images_make_no_map() -> None:
    with pytest.raises(UsageError, match="at least 3 test images, but there are 2"):
        tsne(torch.zeros(2, 4))


@pytest.mark.parametrize("spread", [0.0, 1e-44, 1e-25])
def test_embeddings_that_coincide_are_one_point(spread: float) -> None:
    assert not tsne(3.0 * (spread == 0) + spread * torch.randn(30, 4)).any()


# -- of an output folder -------------------------------------------------------------------------


@pytest.fixture
def campaign(tmp_path: Path) -> WorkedCampaign:
    """One method whose first reproduction diverged and whose second left untrained networks."""
    experiment = compose(EXPERIMENT)
    code = {"dataset": load_dataset(experiment.dataset).fingerprint()}
    experiment = experiment.model_copy(update={"code": code})
    lock_experiment(experiment, tmp_path)
    made = WorkedCampaign(experiment, tmp_path)
    made.note_data()
    method = experiment.methods[0]
    for stage in (Stage.SEARCH, Stage.REPRODUCTIONS):
        study = made.study(method, stage)
        assert study is not None
        count = 1 if stage == "search" else 2
        for number in range(count):
            lost = {"diverged": "nan"} if stage == "reproductions" and number == 0 else {}
            notes = {"fold_epochs": [3, 3], "follow_up_epochs": [0, 0], "scores": {}, **lost}
            study.work_once(lambda attempt, found=notes: TrialResult(0.5, found))  # type: ignore[misc]
    for fold in range(2):
        network = build_network(experiment.model, made.prepared.dataset.image_shape, 4, seed=fold)  # type: ignore[arg-type]
        path = fold_folder(tmp_path, method.name, Stage.REPRODUCTIONS, 1, fold) / MODEL
        path.parent.mkdir(parents=True)
        checkpoints.save(path, network.state_dict())
    return made


def test_the_first_sound_reproduction_is_drawn_and_kept(campaign: WorkedCampaign) -> None:
    told: list[str] = []
    assert draw_maps(campaign, campaign.prepared, told.append) == []
    assert told == ["contrastive: map of 20 test images"]
    path = campaign.out_dir / "contrastive" / MAP_FILE
    assert path.stat().st_size < 4000
    shown = read_map(path)
    assert shown is not None
    assert (shown.stage, shown.reproduction) == ("reproductions", 1)
    assert shown.perplexity == pytest.approx(19 / 3)
    assert shown.labels.tolist() == campaign.prepared.test_set.labels.tolist()
    assert shown.class_names == campaign.prepared.test_set.class_names
    content = path.read_bytes()
    draw_maps(campaign, campaign.prepared)
    assert path.read_bytes() == content
    (method,) = collect(campaign).methods
    assert method.map is not None
    assert (method.map.points == shown.points).all()


def test_what_cannot_be_drawn_is_said(
    campaign: WorkedCampaign, capsys: pytest.CaptureFixture[str]
) -> None:
    (fold_folder(campaign.out_dir, "contrastive", Stage.REPRODUCTIONS, 1, 1) / MODEL).unlink()
    (problem,) = draw_maps(campaign, campaign.prepared)
    assert problem.startswith("contrastive: its network ")
    assert problem.endswith("is gone, so it has no map.")
    assert main(["score", str(campaign.out_dir), "--map"]) == 1
    assert "so it has no map" in capsys.readouterr().err


def test_other_images_are_refused(campaign: WorkedCampaign) -> None:
    code = {"dataset": "another"}
    other = Campaign(campaign.experiment.model_copy(update={"code": code}), campaign.out_dir)
    with pytest.raises(UsageError, match=r"are not those that the networks of .* were trained on"):
        draw_maps(other, PreparedExperiment(other.experiment))
    assert not (campaign.out_dir / "contrastive" / MAP_FILE).exists()


def test_a_damaged_map_counts_as_none(tmp_path: Path) -> None:
    path = tmp_path / MAP_FILE
    assert read_map(path) is None
    path.write_bytes(b"half of a")
    assert read_map(path) is None


# -- in the report -------------------------------------------------------------------------------


def made_up(classes: int = 9) -> EmbeddingMap:
    labels = np.repeat(np.arange(classes), 4)
    points = np.random.default_rng(0).normal(size=(len(labels), 2)).astype(np.float32)
    names = tuple(f"${i}$" for i in range(classes))
    return EmbeddingMap(points, labels, names, "reproductions", 0, 30.0)


def test_a_few_classes_are_marked_by_shape_and_colour() -> None:
    assert marked_classes(np.repeat(np.arange(9), 4)) == [0, 2, 3, 5, 6, 8]
    assert marked_classes(np.array([4, 4, 7])) == [4, 7]
    figure = map_figure({"a": made_up(), "b": made_up()})
    assert len(figure.axes) == 2 + 1
    named = figure.axes[-1].get_legend()
    assert named is not None
    assert [text.get_text() for text in named.get_texts()] == [f"${n}$" for n in (0, 2, 3, 5, 6, 8)]
    lines = figure.axes[0].lines
    assert len(lines[0].get_xdata()) == 36  # type: ignore[arg-type]
    looks = {(line.get_marker(), line.get_color()) for line in lines[1:]}
    assert len(looks) == 6
    assert len({shape for shape, _ in looks}) == len({colour for _, colour in looks}) == 6


def test_the_section_warns_and_is_only_there_with_maps() -> None:
    whole = ExperimentResults("e", "mlrc", "mlrc", True, (MethodResults("a", "L"),), ())
    assert maps_section(Summary(whole)) is None
    method = dataclasses.replace(whole.methods[0], map=made_up())
    section = maps_section(Summary(dataclasses.replace(whole, methods=(method,))))
    assert section is not None
    (figure,) = section.figures
    assert "36 test images" in figure.caption
    assert "$0$, $2$, $3$, $5$, $6$ and $8$" in figure.alt
    assert len(figure.files["svg"]) < 200_000
