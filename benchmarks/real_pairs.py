"""Equal losses, and a loss beside its weakened variants, through the whole program.

    python benchmarks/real_pairs.py equal digits
    python benchmarks/real_pairs.py equal glyphs
    python benchmarks/real_pairs.py equal features.npz
    python benchmarks/real_pairs.py weakened vectors

``equal``: two losses, each with a control that has draws of its own and one that shares the draws
of its method, with several seeds. Printed: how many of these pairs of equal losses are called
different (p < 0.05, without Holm's correction), by the test that reports use and by Welch's.

``weakened``: normalized softmax beside itself with temperatures that are too high or too low, on
made-up vectors (2,000 of 64 numbers). Printed: the differences, and how often each is found.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections import defaultdict
from pathlib import Path

import numpy as np

import reality_check as rc
from reality_check.config.metrics import PRIMARY
from reality_check.report.summary import Summary
from reality_check.statistics import Difference, estimate_difference

QUICK = "quick/normalized_softmax"
EQUAL = ("normalized_softmax", "contrastive")
#: Ranges of temperatures: a good one, and three that are worse.
BEST = "good"
RANGES = {BEST: (0.1, 1.0), "high": (0.3, 3.0), "higher": (1.0, 10.0), "low": (0.02, 0.2)}
LEVEL = 0.05


def vectors(path: Path, classes: int = 200, size: int = 10, width: int = 64) -> None:
    """Write normal clusters that differ in half of the dimensions; the others are noise."""
    generator = np.random.default_rng(0)
    signal = np.arange(width) < width // 2
    y = np.repeat(np.arange(classes), size)
    centres = generator.normal(size=(classes, width)) * signal
    x = centres[y] + generator.normal(size=(len(y), width)) * np.where(signal, 1.0, 2.0)
    np.savez(path, x=x.astype(np.float32), y=y)


def digits(path: Path) -> None:
    """Write scikit-learn's digits as vectors of 64 pixels."""
    from sklearn.datasets import load_digits

    x, y = load_digits(return_X_y=True)
    np.savez(path, x=x.astype(np.float32), y=y)


def experiment(data: str, folder: Path, seed: int) -> dict[str, object]:
    """The settings that all comparisons on these data have."""
    if data == "glyphs":  # a quarter of the epochs of quick: 20 minutes a seed, not 40
        short = {"base": "quick", "training": {"max_epochs": 2}}
        return {"dataset": "glyphs", "model": "conv4", "protocol": short, "seed": seed}
    path = Path(data).resolve()
    if data in ("vectors", "digits"):
        path = folder / f"{data}.npz"
        if not path.exists():
            {"vectors": vectors, "digits": digits}[data](path)
    training = {"max_epochs": 5}
    if data == "digits":  # five classes to train and validate on
        training["batch_size"] = 8
    protocol = {"base": "features_quick", "training": training}
    return {"dataset": str(path), "model": "identity", "protocol": protocol, "seed": seed}


def finished(settings: dict[str, object], out: Path) -> Summary:
    """Run an experiment, and return its summary."""
    path = out.with_suffix(".yaml")
    path.write_text(json.dumps(settings))  # which is YAML too
    return Summary(rc.run(rc.load_experiment(path), out, workers=1))


def found(difference: Difference) -> bool:
    """Whether the two are called different."""
    return difference.p_value is not None and difference.p_value < LEVEL


def equal(data: str, folder: Path, seeds: range) -> None:
    """Compare losses with themselves."""
    counts: dict[str, dict[str, int]] = defaultdict(lambda: defaultdict(int))
    kinds = ("own", "shared")
    controls = [{"of": name, "draws": draws} for name in EQUAL for draws in kinds]
    for seed in seeds:
        methods = [{"base": f"quick/{name}", "samples_per_class": 4} for name in EQUAL]
        settings = experiment(data, folder, seed) | {"methods": methods, "controls": controls}
        summary = finished(settings, folder / f"equal_{Path(data).stem}_{seed}")
        category = summary.categories[0]
        estimates = summary.estimates(category)
        for control, shown in summary.control_differences(category).items():
            of = summary.controls[control]
            welch = estimate_difference(estimates[control], estimates[of])
            kind = "shared" if "shared" in control else "own"
            for test, difference in (("reports", shown), ("Welch", welch)):
                counts[kind][test] += found(difference)
            counts[kind]["pairs"] += 1
            print(
                f"seed {seed}: {control} {100 * shown.mean:+.2f} "
                f"± {100 * (shown.half_width or 0):.2f}, p {shown.p_value:.3f}, "
                f"Welch ± {100 * (welch.half_width or 0):.2f}",
                flush=True,
            )
    for kind, tally in counts.items():
        print(f"{data}, {kind} draws: " + ", ".join(f"{k} {n}" for k, n in tally.items()))


def weakened(data: str, folder: Path, seeds: range) -> None:
    """Compare a loss with variants of itself that are worse."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    gaps: dict[str, list[float]] = defaultdict(list)
    for seed in seeds:
        methods = [
            {
                "base": QUICK,
                "name": name,
                "arguments": {"temperature": {"low": low, "high": high, "log": True}},
            }
            for name, (low, high) in RANGES.items()
        ]
        settings = experiment(data, folder, seed) | {"methods": methods}
        summary = finished(settings, folder / f"weakened_{seed}")
        category = summary.categories[0]
        estimates = summary.estimates(category)
        first = estimates[BEST]
        for name in list(RANGES)[1:]:
            shared = summary.shared_draws(*((category, PRIMARY, m) for m in (BEST, name)))
            joint = estimate_difference(first, estimates[name], shared)
            welch = estimate_difference(first, estimates[name])
            gaps[name].append(100 * joint.mean)
            for place, difference in enumerate((joint, welch)):
                counts[name][place] += found(difference) and difference.mean > 0
            widths = (100 * (d.half_width or 0.0) for d in (joint, welch))
            text = f"above {name} by {100 * joint.mean:+.2f} " + "± {:.2f}, Welch ± {:.2f}"
            print(f"seed {seed}: {text.format(*widths)}", flush=True)
    for name, (joint_count, welch_count) in counts.items():
        print(
            f"{name}: {np.mean(gaps[name]):+.2f} points, found {joint_count} of {len(seeds)}, "
            f"by Welch's test {welch_count}"
        )


def main() -> None:
    """Run the comparisons and print the counts."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("equal", "weakened"))
    parser.add_argument("data", help="vectors, digits, glyphs, or an .npz file of features")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="where the runs go and are resumed")
    options = parser.parse_args()
    start = time.perf_counter()
    folder = options.out or Path(tempfile.mkdtemp())
    folder.mkdir(parents=True, exist_ok=True)
    task = {"equal": equal, "weakened": weakened}[options.what]
    task(options.data, folder, range(options.seeds))
    print(f"{time.perf_counter() - start:.0f} s; runs in {folder}")


if __name__ == "__main__":
    main()
