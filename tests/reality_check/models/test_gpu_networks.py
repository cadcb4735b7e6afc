"""Networks on a GPU: the numbers of a CPU, and the layout of half precision."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from support.waits import waits_counted

from reality_check.config import Model
from reality_check.models.network import build_network
from reality_check.models.weight_files import read_state

pytestmark = pytest.mark.gpu
NETWORKS: dict[str, tuple[dict[str, Any], int]] = {
    "bn_inception": ({"trunk": "bn_inception"}, 64),
    "resnet18": ({"trunk": "torchvision:resnet18"}, 32),
    "vit": ({"trunk": "timm:test_vit", "arguments": {"img_size": 32}}, 32),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_learn_as_on_a_cpu(name: str, timm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    options, side = NETWORKS[name]
    model = Model.model_validate({"name": "x", **options})
    images = torch.randn(2, 3, side, side, generator=torch.Generator().manual_seed(0))
    actual = {}
    for device in ("cpu", "cuda"):
        network = build_network(model, (side, side, 3), 8, seed=0).to(device).eval()
        embeddings = network(images.to(device))
        embeddings.square().sum().backward()
        norms = [p.grad.norm() for p in network.parameters() if p.grad is not None]
        actual[device] = embeddings.detach().cpu(), torch.stack(norms).cpu()
    torch.testing.assert_close(actual["cuda"], actual["cpu"], rtol=1e-3, atol=1e-4)


def test_a_network_steps_in_channels_last_and_half_precision(timm: Any) -> None:
    model = Model.model_validate({"name": "x", "trunk": "torchvision:resnet18"})
    network: Any = build_network(model, (32, 32, 3), 8, seed=0).cuda()
    network.to(memory_format=torch.channels_last)
    images = torch.randn(4, 3, 32, 32, device="cuda").contiguous(memory_format=torch.channels_last)
    with waits_counted() as waits, torch.autocast("cuda", torch.bfloat16):
        embeddings = network(images)
    embeddings.float().sum().backward()
    assert not waits
    assert embeddings.dtype == torch.bfloat16
    assert all(p.grad is None or p.grad.isfinite().all() for p in network.parameters())


def test_weights_saved_on_a_gpu_are_read_into_host_memory(tmp_path: Path) -> None:
    file = tmp_path / "weights.pth"
    torch.save({"weight": torch.ones(3, device="cuda")}, file)
    assert {tensor.device.type for tensor in read_state(file, "trunk x").values()} == {"cpu"}
