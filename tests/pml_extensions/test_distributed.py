"""Two real processes against one with the full batch: values, gradients, buffers, three steps."""

from __future__ import annotations

import copy
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from pytorch_metric_learning import losses as pml_losses
from pytorch_metric_learning.utils import distributed as pml_distributed
from support import distributed_steps as STEPS
from support.pace import slowness
from support.paths import DOCS
from support.preloaded import Started
from torch.distributed.run import main as torchrun
from torch.testing._internal.distributed.fake_pg import FakeStore

from pml_extensions.distributed import DistributedLossWrapper
from pml_extensions.losses import CrossBatchMemory, GradMLLoss, NormalizedSoftmaxLoss

pytestmark = pytest.mark.xdist_group("distributed")


Case = tuple[str, str]
EXACT = [case for case in STEPS.cases() if case[1] in ("wrapper", "ddp_of_wrapper")] + [
    (name, "ddp") for name in STEPS.PER_SAMPLE
]


def has_proxies(make: Any) -> bool:
    return any(True for _ in make().parameters())


def name_of(case: Case) -> str:
    return "-".join(case)


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[Case, list[dict[str, Any]]]]:
    """What each of the two ranks found, for all cases."""
    folder = tmp_path_factory.mktemp("ranks")
    environment = {**os.environ, "GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1"}
    processes = [
        Started(
            folder,
            folder / f"log{rank}",
            str(rank),
            str(folder),
            program=STEPS.be_rank,
            spares=0,
            environment=environment,
        )
        for rank in range(STEPS.WORLD_SIZE)
    ]
    try:
        for process in processes:
            assert process.wait(150 * slowness()) == 0, process.said() + process.complaints()
    finally:
        for process in processes:
            process.kill()
    return [torch.load(folder / f"rank{rank}.pt", weights_only=True) for rank in range(2)]


@pytest.mark.slow
@pytest.mark.parametrize("case", EXACT, ids=name_of)
def test_gradients_are_those_of_one_process(ranks: Any, case: Case) -> None:
    expected = STEPS.run(case[0])
    for rank in ranks:
        for actual, step in zip(rank[case], expected, strict=True):
            torch.testing.assert_close(actual["gradients"], step["gradients"])
            torch.testing.assert_close(actual["buffers"], step["buffers"])
            assert actual["sparse"] == step["sparse"]


@pytest.mark.slow
@pytest.mark.parametrize("case", [c for c in EXACT if c[1] != "ddp"], ids=name_of)
def test_the_value_is_that_of_one_process(ranks: Any, case: Case) -> None:
    expected = [step["value"] for step in STEPS.run(case[0])]
    for rank in ranks:
        torch.testing.assert_close([step["value"] for step in rank[case]], expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, make in STEPS.LOSSES.items() if has_proxies(make)])
def test_ranks_do_not_drift_apart(ranks: Any, name: str) -> None:
    first, second = (rank[name, "wrapper"] for rank in ranks)
    torch.testing.assert_close(first, second, rtol=0, atol=0)


@pytest.mark.slow
@pytest.mark.parametrize("name", STEPS.PER_SAMPLE)
def test_ddp_gives_the_mean_of_the_values(ranks: Any, name: str) -> None:
    expected = torch.stack([step["value"] for step in STEPS.run(name)])
    values = torch.tensor([[step["value"] for step in rank[name, "ddp"]] for rank in ranks])
    torch.testing.assert_close(values.mean(dim=0).double(), expected)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["heated_up_bn", "hist", "pml_proxy_anchor"])
def test_ddp_alone_is_not_exact_for_losses_of_the_batch(ranks: Any, name: str) -> None:
    expected = STEPS.run(name)[0]["gradients"]["network.weight"]
    actual = ranks[0][name, "ddp"][0]["gradients"]["network.weight"]
    assert (actual - expected).norm() > 0.05 * expected.norm()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["normalized_softmax", "hist", "pml_proxy_anchor"])
def test_pml_multiplies_gradients_of_proxies_by_the_number_of_ranks(ranks: Any, name: str) -> None:
    expected = STEPS.run(name)[0]
    actual = ranks[0][name, "pml_wrapper"][0]
    torch.testing.assert_close(actual["value"], 2 * expected["value"])
    for parameter, gradient in expected["gradients"].items():
        factor = 1 if parameter.startswith("network") else 2
        torch.testing.assert_close(actual["gradients"][parameter], factor * gradient)


def test_the_gate_opens_at_the_second_step() -> None:
    # Otherwise the cases above would not show that ranks agree on it.
    values = [step["buffers"]["loss.joined"].item() for step in STEPS.run("sgsl_latch")]
    assert values == [False, True, True]


def be_torchrun(words: tuple[str, ...]) -> int:
    """Take the part of ``torchrun``, whose processes are forked."""
    torchrun(["--standalone", "--nproc-per-node=2", "-m", *words])
    return 0


@pytest.mark.slow
def test_the_script_of_the_docs_runs_under_torchrun(tmp_path: Path) -> None:
    page = (DOCS / "distributed.md").read_text(encoding="utf-8")
    script = tmp_path / "train_on_two.py"
    script.write_text(page.partition("```python\n")[2].partition("```")[0], encoding="utf-8")
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    process = Started(
        tmp_path,
        tmp_path / "log",
        script.stem,
        program=be_torchrun,
        spares=2,
        environment=environment,
    )
    process.wait(150 * slowness())
    # Not the exit status: gloo may abort after the end (PyTorch's issue 190489).
    losses = [float(line.split()[-1]) for line in process.said().splitlines() if "loss" in line]
    assert len(losses) == 3, process.said() + process.complaints()
    assert losses[-1] < losses[0]


def test_it_is_pml_s_wrapper_with_its_keys() -> None:
    loss = NormalizedSoftmaxLoss(5, 7)
    ours, theirs = DistributedLossWrapper(loss), pml_distributed.DistributedLossWrapper(loss)
    assert isinstance(ours, pml_distributed.DistributedLossWrapper)
    assert ours.state_dict().keys() == theirs.state_dict().keys()
    other = DistributedLossWrapper(NormalizedSoftmaxLoss(5, 7))
    other.load_state_dict(theirs.state_dict())
    x, labels = torch.randn(4, 7), torch.arange(4)
    for wrapper in (other, copy.deepcopy(ours)):
        torch.testing.assert_close(wrapper(x, labels), loss(x, labels))


def test_one_process_needs_no_group() -> None:
    x, labels = torch.randn(8, 6, requires_grad=True), torch.arange(8) % 2
    loss = pml_losses.ContrastiveLoss()
    pairs = tuple(torch.tensor(i) for i in ([0], [2], [0], [1]))
    ref = torch.randn(3, 6)
    expected = loss(x, labels, pairs, ref, labels[:3])
    assert DistributedLossWrapper(loss)(x, labels, pairs, ref, labels[:3]) == expected
    memory = DistributedLossWrapper(CrossBatchMemory(GradMLLoss(), 6, memory_size=20))
    plain = CrossBatchMemory(GradMLLoss(), 6, memory_size=20)
    for _ in range(2):
        assert memory(x, labels) == plain(x, labels)


def test_the_efficient_mode_of_pml_is_refused_by_the_loss() -> None:
    x, labels = torch.randn(4, 6, requires_grad=True) * 2, torch.tensor([0, 0, 1, 1])
    wrapper = pml_distributed.DistributedLossWrapper(GradMLLoss(), efficient=True)
    torch.distributed.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        with pytest.raises(ValueError, match="loses the gradient of pairs across ranks"):
            wrapper(x, labels)
        GradMLLoss()(x, labels, ref_emb=torch.cat((x.detach(), x)), ref_labels=labels.repeat(2))
    finally:
        torch.distributed.destroy_process_group()


def test_what_is_not_exact_is_refused() -> None:
    with pytest.raises(ValueError, match="efficient=True"):
        DistributedLossWrapper(GradMLLoss(), efficient=True)
    with pytest.raises(TypeError, match="must extend"):
        DistributedLossWrapper(torch.nn.Linear(2, 2))
    wrapper = DistributedLossWrapper(CrossBatchMemory(GradMLLoss(), 6, memory_size=20))
    with pytest.raises(ValueError, match="no ref_emb"):
        wrapper(torch.randn(4, 6), torch.arange(4), ref_emb=torch.randn(4, 6))
