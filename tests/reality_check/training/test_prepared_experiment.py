from __future__ import annotations

import pytest
import torch

from reality_check.training.prepared_experiment import pick_device
from reality_check.utils.errors import UsageError


def test_a_device_that_is_not_there_is_a_usage_error() -> None:
    assert pick_device("cpu") == torch.device("cpu")
    count = torch.cuda.device_count()
    with pytest.raises(UsageError, match=f"'cuda:{count}'.*{count} CUDA devices"):
        pick_device(f"cuda:{count}")
