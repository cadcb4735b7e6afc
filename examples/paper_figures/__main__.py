"""The command: ``python -m examples.paper_figures [NAME ...]``, from the root of the repository."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from examples.paper_figures.style import write_figure
from examples.paper_figures.training import Diverged, Settings
from reality_check import UsageError

#: Modules of this package, each a figure; the paper and the figure's number there.
FIGURES = {
    "stop_gradient_softmax_sphere": "Stop-Gradient Softmax Loss, Fig. 3",
    "normalized_softmax_dimensions": "NormSoftmax, Fig. 2",
    "normalized_softmax_class_sampling": "NormSoftmax, Fig. 4",
    "grad_ml_update": "GradML, Fig. 1",
    "heated_up_softmax_gradients": "Heated-Up Softmax Embedding, Fig. 2",
    "heated_up_softmax_embeddings": "Heated-Up Softmax Embedding, Fig. 3",
    "heated_up_softmax_norms": "Heated-Up Softmax Embedding, Fig. 4",
    "warped_softmax_landscape": "Realigned Softmax Warping, Fig. 3",
    "warped_softmax_four_proxies": "Realigned Softmax Warping, Fig. 5",
    "warped_softmax_distances": "Realigned Softmax Warping, Fig. 9",
    "warped_softmax_embeddings": "Realigned Softmax Warping, Fig. 10",
}
_DETAILS = """\
Writes NAME.png (or .pdf), NAME.csv with the plotted numbers and NAME.txt with what was run. Some
figures are computed from formulas. Others train small networks on MNIST or Omniglot in the folder
REALITY_CHECK_DATA, which takes minutes on one core; finished trainings are kept in DIR/runs.

names:
"""


def main(arguments: Sequence[str] | None = None) -> None:
    """Draw the figures that the command line names."""
    names = "".join(f"  {name:35}{source}\n" for name, source in FIGURES.items())
    parser = argparse.ArgumentParser(
        "python -m examples.paper_figures",
        description="Draw figures of the papers.",
        epilog=_DETAILS + names,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="figures; all if none is named")
    parser.add_argument("--out", type=Path, default=Path("figures"), metavar="DIR")
    parser.add_argument("--format", choices=("png", "pdf"), default="png")
    budget = parser.add_mutually_exclusive_group()
    budget.add_argument(
        "--quick", action="store_const", dest="budget", const="quick", default="default",
        help="a preview in seconds: tiny trainings on made-up images",
    )  # fmt: skip
    budget.add_argument(
        "--full", action="store_const", dest="budget", const="full",
        help="all images and the paper's number of epochs: takes hours without a GPU",
    )  # fmt: skip
    options = parser.parse_args(arguments)
    for name in options.names:
        if name not in FIGURES:
            parser.error(f"there is no figure {name!r}; the figures are {', '.join(FIGURES)}")
    for name in options.names or FIGURES:
        module = import_module(f"examples.paper_figures.{name}")
        try:
            data = module.compute(Settings(options.budget, options.out))
            for path in write_figure(options.out / name, data, module.draw, options.format):
                print(f"wrote {path}")
        except (UsageError, Diverged, OSError) as error:
            parser.error(f"{name}: {error}")


if __name__ == "__main__":
    main()
