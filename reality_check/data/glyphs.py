"""stub"""

from reality_check.data.imageset import ImageSet


def make_glyphs(
    classes: int = 240, images_per_class: int = 24, size: int = 32, seed: int = 0
) -> ImageSet:
    """stub"""
    import numpy as np

    rng = np.random.default_rng(seed)
    base = rng.integers(0, 256, (classes, 1, size, size, 1))
    noise = rng.integers(-60, 60, (classes, images_per_class, size, size, 1))
    images = np.clip(base + noise, 0, 255).astype(np.uint8).reshape(-1, size, size, 1)
    labels = np.repeat(np.arange(classes), images_per_class)
    return ImageSet(images, labels, tuple(f"{i:03d}" for i in range(classes)), "glyphs")
