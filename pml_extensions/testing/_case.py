"""The base class of all contracts: the loss under test, test batches, and opting out of checks."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import pytest
import torch
from pytorch_metric_learning import reducers
from torch import Tensor

from pml_extensions.testing._ranking import described, register_plugin

#: PML's loss dictionary: name of a sub-loss -> its losses, indices and reduction type, by name.
Raw = dict[str, dict[str, Any]]


class LossCase:
    """The loss under test. Its attributes are explained in :class:`LossContract`."""

    num_classes: ClassVar[int] = 5
    embedding_size: ClassVar[int] = 7
    device: ClassVar[str] = "cpu"
    rtol: ClassVar[float | None] = None
    atol: ClassVar[float | None] = None
    low_precision_rtol: ClassVar[float] = 0.0
    labels_required: ClassVar[bool] = True
    supports_ref_emb: ClassVar[bool] = False
    compile_backend: ClassVar[str] = "inductor"
    fast_gradcheck: ClassVar[bool] = False
    phase: ClassVar[Mapping[str, float]] = {}
    exempt: ClassVar[Mapping[str, str]] = {}
    known_failures: ClassVar[Mapping[str, str]] = {}

    def make_loss(self, **kwargs: Any) -> Any:
        """Return a new loss.

        Args:
            **kwargs: Arguments to pass to the loss's constructor, such as PML's ``reducer``,
                ``embedding_regularizer`` or ``weight_init_func``.
        """
        raise NotImplementedError("make_loss(self, **kwargs) must return a new loss.")

    def make_optimizer(self, parameters: Iterable[torch.nn.Parameter]) -> torch.optim.Optimizer:
        """Return the optimizer for checks that train; override it for sparse gradients."""
        return torch.optim.Adam(parameters, lr=0.01)

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Raise TypeError if ``exempt`` or ``known_failures`` names a check that does not exist."""
        super().__init_subclass__(**kwargs)
        checks = [name for name in dir(cls) if name.startswith("test_")]
        for name in (*cls.exempt, *cls.known_failures):
            if name.partition("[")[0] not in checks:
                close = difflib.get_close_matches(name, checks, n=1) or sorted(checks)
                raise TypeError(
                    f"{cls.__name__} opts out of {name!r}, but there is no such check; "
                    f"did you mean {close[0]!r}?"
                )

    @pytest.fixture(autouse=True)
    def _opt_out(self, request: pytest.FixtureRequest) -> None:
        """Skip the check, or expect it to fail, according to its docstring and the class."""
        register_plugin(request.config)
        doc = described(type(self), request.node.name)
        required = re.search(r"Applies only to losses with ``(\w+)``", doc)
        if required and not hasattr(self.make_loss(), required[1]):
            pytest.skip(f"does not apply to a loss without {required[1]}")
        # The single case, and all cases of the check.
        for name in (request.node.name, request.node.name.partition("[")[0]):
            if name in self.exempt:
                pytest.skip(self.exempt[name])
            if name in self.known_failures:
                reason = self.known_failures[name]
                request.applymarker(pytest.mark.xfail(reason=reason, strict=True))

    def seeded_loss(self, **kwargs: Any) -> Any:
        """Return a new loss on the device, initialised with the same seed each time."""
        torch.manual_seed(0)
        return self.make_loss(**kwargs).to(self.device)

    def batch(self, dtype: torch.dtype = torch.float32, n: int = 20) -> tuple[Tensor, Tensor]:
        """Return ``n`` embeddings, the same in every call, and their labels 0, 1, ..., 0, 1, ..."""
        generator = torch.Generator().manual_seed(1)
        x = torch.randn(n, self.embedding_size, generator=generator, dtype=torch.float64)
        labels = torch.arange(n) % self.num_classes
        return x.to(self.device, dtype).requires_grad_(), labels.to(self.device)

    def scaled_loss(self, **kwargs: Any) -> ScaledLoss:
        """Return a new loss with a minimal network."""
        return ScaledLoss(self.seeded_loss(**kwargs), self.embedding_size).to(self.device)

    def value(self, x: Tensor, labels: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """Return the value of a new loss constructed with ``kwargs``."""
        return call(self.seeded_loss(**kwargs), x, labels, *args)

    def raw(self, x: Tensor, labels: Tensor, *args: Any) -> Raw:
        """Return PML's loss dictionary, before any reducer."""
        return call(self.seeded_loss(reducer=reducers.DoNothingReducer()), x, labels, *args)

    def same(self, actual: Any, expected: Any, message: str | None = None) -> None:
        """Assert that both are equal within the tolerances; ``message`` precedes the error."""
        torch.testing.assert_close(
            actual,
            expected,
            rtol=self.rtol,
            atol=self.atol,
            check_dtype=False,
            msg=None if message is None else lambda error: f"{message}: {error}",
        )


def call(loss: Any, *args: Any, **kwargs: Any) -> Any:
    """Call a loss with the same global seed each time."""
    torch.manual_seed(1)
    return loss(*args, **kwargs)


def gradients(
    loss: Any, x: Tensor, labels: Tensor, *args: Any, autocast: bool = False
) -> dict[str, Tensor]:
    """Return by name the loss value and its gradients for the embeddings and parameters."""
    loss.zero_grad(set_to_none=True)
    leaf = x.detach().clone().requires_grad_()
    # The backward pass runs outside of autocast, as PyTorch recommends.
    with torch.autocast(x.device.type, dtype=torch.bfloat16, enabled=autocast):
        value = call(loss, leaf, labels, *args)
    value.backward()
    assert leaf.grad is not None, "the embeddings get no gradient"
    return {"value": value.detach(), "embeddings": leaf.grad, **parameter_gradients(loss)}


def parameter_gradients(module: torch.nn.Module) -> dict[str, Tensor]:
    """Return dense copies of the gradients of all parameters that have one, by name."""
    grads = {name: p.grad for name, p in module.named_parameters() if p.grad is not None}
    return {name: (g.to_dense() if g.is_sparse else g.clone()) for name, g in grads.items()}


class ScaledLoss(torch.nn.Module):
    """A loss behind a minimal network, which multiplies each embedding dimension by a weight."""

    def __init__(self, loss: Any, embedding_size: int) -> None:
        super().__init__()
        self.loss = loss
        self.weight = torch.nn.Parameter(torch.ones(embedding_size))

    def forward(self, x: Tensor, labels: Tensor, dtype: torch.dtype = torch.float32) -> Any:
        return self.loss((x * self.weight).to(dtype), labels)
