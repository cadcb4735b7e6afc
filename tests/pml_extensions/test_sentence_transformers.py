"""A training that is resumed ends where an uninterrupted one does, proxies included."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from pml_extensions.losses import NormalizedSoftmaxLoss

# Imported in the tests: every process that collects them would take seconds for it.
pytestmark = [
    pytest.mark.xdist_group("integrations"),
    pytest.mark.slow,
    pytest.mark.skipif(
        find_spec("sentence_transformers") is None, reason="sentence-transformers is not installed"
    ),
]
WORDS = [f"word{number}" for number in range(20)]


def trainer_in(folder: Path, **columns: list[str]) -> tuple[Any, torch.nn.Module]:
    """A trainer of a tiny model, whose state is that of every other, and its loss."""
    import sentence_transformers
    from datasets import Dataset
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding
    from tokenizers import Tokenizer, models, pre_tokenizers

    from pml_extensions.sentence_transformers import MetricLossTrainer

    tokenizer = Tokenizer(models.WordLevel({word: n for n, word in enumerate(["?", *WORDS])}, "?"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    torch.manual_seed(0)
    embedding = StaticEmbedding(tokenizer, embedding_dim=8)
    model = sentence_transformers.SentenceTransformer(modules=[embedding], device="cpu")
    texts = [f"{WORDS[n]} {WORDS[7 * n % 20]}" for n in range(20)]
    trainer = MetricLossTrainer(
        model,
        sentence_transformers.SentenceTransformerTrainingArguments(
            str(folder),
            num_train_epochs=2,
            save_strategy="epoch",
            learning_rate_mapping={r"^loss\.": 0.1},
            use_cpu=True,
            report_to="none",
            disable_tqdm=True,
        ),
        Dataset.from_dict({"text": texts, **columns, "label": [n % 4 for n in range(20)]}),
        loss=NormalizedSoftmaxLoss(4, 8),
    )
    trainer.model.model_card_data.generate_widget_examples = False
    return trainer, trainer.loss.loss.loss


def states(trainer: Any, loss: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {**trainer.model.state_dict(), **loss.state_dict()}


def test_a_resumed_training_equals_an_uninterrupted_one(tmp_path: Path) -> None:
    trainer, loss = trainer_in(tmp_path)
    fresh = loss.proxies.detach().clone()
    trainer.train()
    expected = states(trainer, loss)
    (half,) = (path for path in tmp_path.glob("checkpoint-*") if path.name == "checkpoint-3")
    kept = torch.load(half / "loss.pt", weights_only=True)["loss.loss.proxies"]
    assert not torch.equal(kept, fresh)
    assert not torch.equal(kept, expected["proxies"])

    resumed, its_loss = trainer_in(tmp_path)
    resumed.train(resume_from_checkpoint=str(half))
    torch.testing.assert_close(states(resumed, its_loss), expected, rtol=0, atol=0)
    assert {group["lr"] for group in resumed.optimizer.state_dict()["param_groups"]} == {0}
    assert resumed.optimizer.param_groups[-1]["initial_lr"] == 0.1

    bare = shutil.copytree(half, tmp_path / "bare")
    (bare / "loss.pt").unlink()
    with pytest.raises(FileNotFoundError, match=r"has no loss\.pt.* fresh proxies; resume from"):
        trainer_in(tmp_path)[0].train(resume_from_checkpoint=str(bare))


def test_two_columns_of_texts_are_refused(tmp_path: Path) -> None:
    trainer, _ = trainer_in(tmp_path, other=WORDS)
    with pytest.raises(ValueError, match="but the data set has 2 of texts and labels"):
        trainer.train()
