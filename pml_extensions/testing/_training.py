"""Checks of a loss in training: gradients, copies, checkpoints, trainers, compilation."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import torch
from pytorch_metric_learning import trainers
from torch import Tensor

from pml_extensions.testing._case import LossCase, call, gradients, parameter_gradients


class TrainingChecks(LossCase):
    """Gradients are correct and accumulate, and a resumed loss equals the saved one."""

    def test_gradient_of_embeddings_is_the_derivative(self) -> None:
        """Backward agrees with finite differences in float64.

        Wrong result if it fails: the network is trained with a wrong gradient.
        """
        x, labels = self.batch(torch.float64, n=2 * self.num_classes)
        initial_loss = self.seeded_loss().double()
        # Each call gets a copy, because some losses change with each batch.
        torch.autograd.gradcheck(
            lambda e: call(copy.deepcopy(initial_loss), e, labels),
            (x,),
            fast_mode=self.fast_gradcheck,
        )

    def test_second_derivatives_are_right_or_refused(self) -> None:
        """The derivative of a gradient penalty agrees with finite differences, or raises an error.

        ``once_differentiable`` does not raise an error if the incoming gradient is a constant.

        Wrong result if it fails: a gradient penalty is trained with a wrong gradient.
        """
        x, labels = self.batch(torch.float64, n=2 * self.num_classes)
        initial_loss = self.seeded_loss().double()

        def penalty(e: Tensor, create_graph: bool = False) -> Any:
            loss = copy.deepcopy(initial_loss)
            leaves = (e, *loss.parameters())
            grads = torch.autograd.grad(
                call(loss, e, labels), leaves, create_graph=create_graph, allow_unused=True
            )
            # The sine makes the penalty a nonlinear function of the gradients.
            return sum(g.to_dense().sin().sum() for g in grads if g is not None)

        # From x - step to x + step, the penalty must change by the derivative times 2 step.
        step = 1e-6 * x.detach().roll(1)
        try:
            value = penalty(x, True)
            # A penalty without gradient would silently be a constant in a sum of losses.
            slope = torch.autograd.grad(value, x)[0] if value.requires_grad else 0 * x
        except RuntimeError:
            return
        change = penalty(x + step) - penalty(x - step)
        torch.testing.assert_close((2 * slope * step).sum(), change, rtol=1e-4, atol=1e-12)

    def test_backward_twice_gives_twice_the_gradient(self) -> None:
        """A second backward pass through the same graph gives the same gradient again.

        Wrong result if it fails: a second backward pass gives another gradient.
        """
        x, labels = self.batch()
        expected = gradients(self.seeded_loss(), x, labels)
        loss = self.seeded_loss()
        value = call(loss, x, labels)
        value.backward(retain_graph=True)
        value.backward()
        assert x.grad is not None
        doubled = {"embeddings": x.grad, **parameter_gradients(loss)}
        self.same(doubled, {name: 2 * expected[name] for name in doubled})

    def test_gradients_accumulate_over_batches(self) -> None:
        """Two batches before a step give the sum of their gradients.

        Wrong result if it fails: accumulated gradients are not the sum of the batch gradients.
        """
        x, labels = self.batch()
        batches = ((x.detach(), labels), (x.detach() * 0.5 + 0.1, labels.roll(1)))
        separate, accumulated = self.scaled_loss(), self.scaled_loss()
        sums: dict[str, Tensor] = {}
        for batch in batches:
            separate.zero_grad()
            call(separate, *batch).backward()
            call(accumulated, *batch).backward()
            for name, gradient in parameter_gradients(separate).items():
                sums[name] = sums[name] + gradient if name in sums else gradient
        self.same(parameter_gradients(accumulated), sums)

    def test_evaluation_changes_nothing(self) -> None:
        """Evaluating the loss in ``eval`` mode under ``no_grad`` does not change its state.

        Wrong result if it fails: computing the validation loss changes the training.
        """
        x, labels = self.batch()
        loss = self.seeded_loss().eval()
        before = {name: tensor.clone() for name, tensor in loss.state_dict().items()}
        with torch.no_grad():
            first, again = call(loss, x, labels), call(loss, x, labels)
        assert first.isfinite()
        torch.testing.assert_close(again, first, rtol=0, atol=0)
        torch.testing.assert_close(dict(loss.state_dict()), before, rtol=0, atol=0)

    def test_copies_compute_the_same(self) -> None:
        """Copies by ``copy.deepcopy`` and pickle give the same value and gradients.

        Broken convention if it fails: the loss cannot be copied or sent to another process.
        """
        x, labels = self.batch()
        loss = self.seeded_loss()
        gradients(loss, x, labels)
        others = (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss)))
        expected = gradients(loss, x, labels)
        for other in others:
            self.same(gradients(other, x, labels), expected)

    def test_a_checkpoint_resumes_the_loss(self, tmp_path: Path) -> None:
        """A new loss with the loaded state dictionary gives the same value and gradients.

        Wrong result if it fails: resumed training continues with another loss.
        """
        x, labels = self.batch()
        loss = self.trained_loss()
        torch.save(loss.state_dict(), tmp_path / "loss.pt")
        torch.manual_seed(3)
        resumed = self.make_loss().to(self.device)
        resumed.load_state_dict(torch.load(tmp_path / "loss.pt", weights_only=True))
        self.same(gradients(resumed, x, labels), gradients(loss, x, labels))

    def trained_loss(self) -> Any:
        """Return a loss after one step of its optimizer."""
        x, labels = self.batch()
        model = self.scaled_loss()
        optimizer = self.make_optimizer(model.parameters())
        call(model, x.detach(), labels).backward()
        optimizer.step()
        return model.loss

    def test_a_pml_trainer_trains_an_epoch(self) -> None:
        """PML's ``MetricLossOnly`` trains the network and each parameter of the loss.

        Applies only to losses with ``sub_loss_names``.

        Wrong result if it fails: a parameter is not trained, or PML's trainers fail.
        """
        x, labels = self.batch(n=40)
        models = torch.nn.ModuleDict(
            {
                "trunk": torch.nn.Linear(self.embedding_size, self.embedding_size),
                "metric_loss": self.seeded_loss(),
            }
        ).to(self.device)
        before = {name: p.detach().clone() for name, p in models.named_parameters()}
        trainer = trainers.MetricLossOnly(
            models={"trunk": models["trunk"]},
            optimizers={
                f"{name}_optimizer": self.make_optimizer(model.parameters())
                for name, model in models.items()
                if list(model.parameters())
            },
            batch_size=20,
            loss_funcs={"metric_loss": models["metric_loss"]},
            dataset=torch.utils.data.TensorDataset(x.detach(), labels),
            data_device=torch.device(self.device),
            dataloader_num_workers=0,
        )
        trainer.train(num_epochs=1)
        for name, parameter in models.named_parameters():
            assert parameter.isfinite().all(), f"{name} is not finite"
            assert not parameter.equal(before[name]), f"{name} was not trained"

    def test_compiling_changes_nothing(self) -> None:
        """``torch.compile(fullgraph=True)`` keeps value and gradients, also after ``set_phase``.

        Broken convention if it fails: torch.compile(fullgraph=True) cannot be used.
        """
        x, labels = self.batch()
        loss = self.seeded_loss()
        # All losses share PML's forward, whose recompilations dynamo limits.
        torch._dynamo.reset()
        compiled: Any = torch.compile(
            copy.deepcopy(loss), fullgraph=True, backend=self.compile_backend
        )
        # The compiler treats a float as a constant until it changes, and then as an input.
        intermediate = {name: 0.9 * value for name, value in self.phase.items()}
        for phase in ({}, intermediate, self.phase):
            if phase:
                loss.set_phase(**phase)
                compiled.set_phase(**phase)
            actual = gradients(compiled, x, labels)
            expected = gradients(loss, x, labels)
            self.same({name.removeprefix("_orig_mod."): g for name, g in actual.items()}, expected)
