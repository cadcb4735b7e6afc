"""One thread for all tests: the networks are so small that more would only wait for each other."""

from __future__ import annotations

import torch

torch.set_num_threads(1)
