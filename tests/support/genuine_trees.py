"""Small data sets in the genuine layouts, written as plainly as the layouts are described."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from PIL import Image

#: (class, image file, mode of the image): genuine names, odd names and odd images.
CUB_CLASSES = {
    1: "001.Black_footed_Albatross",
    2: "002.Laysan_Albatross",
    101: "101.White_Pelican",
    200: "200.Common_Yellowthroat",
}
CUB_IMAGES = (
    (1, "Black_Footed_Albatross_0046_18.jpg", "RGB"),
    (1, "Black Footed Albatross ü 9.jpg", "L"),
    (2, "Laysan_Albatross_0002_1027.jpg", "CMYK"),
    (2, "Laysan_Albatross_0003_1033.jpg", "RGB"),
    (101, "White_Pelican_0001_97604.jpg", "RGB"),
    (101, "White_Pelican_0002_96404.jpg", "L"),
    (200, "Common_Yellowthroat_0003_190521.jpg", "RGB"),
    (200, "Common_Yellowthroat_0049_190708.jpg", "RGB"),
)
CAR_NAMES = ["AM General Hummer SUV 2000", "Ram C/V Cargo Van Minivan 2012"] + [
    f"Make Model {number} 2012" for number in range(3, 197)
]
SOP_CLASSES = {1: "bicycle", 2: "bicycle", 11318: "coffee_maker", 11319: "chair", 22634: "toaster"}
IN_SHOP_LINES = (
    ("img/WOMEN/Dresses/id_00000002/02_1_front.jpg", "id_00000002", "train"),
    ("img/WOMEN/Dresses/id_00000002/02_2_side.jpg", "id_00000002", "train"),
    ("img/WOMEN/Blouses_Shirts/id_00000001/02_1_front.jpg", "id_00000001", "query"),
    ("img/WOMEN/Blouses_Shirts/id_00000001/02_2_side.jpg", "id_00000001", "gallery"),
    ("img/WOMEN/Blouses_Shirts/id_00000001/02_3_back.jpg", "id_00000001", "gallery"),
    ("img/MEN/Denim/id_00000080/01_1_front.jpg", "id_00000080", "train"),
    ("img/MEN/Tees_Tanks/id_00000390/01_1_front.jpg", "id_00000390", "gallery"),
    ("img/MEN/Tees_Tanks/id_00000390/01_7_additional.jpg", "id_00000390", "query"),
)


def photograph(path: Path, level: int, mode: str = "RGB") -> None:
    """Write an image, 16 wide and 12 high, that is grey of one level once it is RGB."""
    path.parent.mkdir(parents=True, exist_ok=True)
    value = {"L": level, "RGB": (level,) * 3, "CMYK": (0, 0, 0, 255 - level)}[mode]
    Image.new(mode, (16, 12), value).save(path, format="JPEG", quality=100)


def level_of(number: int) -> int:
    """The level of the image of that number in the list."""
    return 20 + 20 * number


def lines(file: Path, texts: Iterable[str], end: str = "\n") -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes("".join(text + end for text in texts).encode())


def cub200(root: Path, end: str = "\n") -> Path:
    """``CUB_200_2011/`` with the images of :data:`CUB_IMAGES`."""
    files = [f"{CUB_CLASSES[number]}/{name}" for number, name, _ in CUB_IMAGES]
    for number, (file, (_, _, mode)) in enumerate(zip(files, CUB_IMAGES, strict=True)):
        photograph(root / "images" / file, level_of(number), mode)
    lines(root / "images.txt", (f"{i} {file}" for i, file in enumerate(files, 1)), end)
    labels = (f"{i} {number}" for i, (number, _, _) in enumerate(CUB_IMAGES, 1))
    lines(root / "image_class_labels.txt", labels, end)
    lines(root / "classes.txt", (f"{key} {name}" for key, name in CUB_CLASSES.items()), end)
    lines(root / "train_test_split.txt", (f"{i} {i % 2}" for i in range(1, 9)), end)
    return root


def structs(fields: Sequence[str], rows: Sequence[Sequence[object]]) -> np.ndarray:
    """A MATLAB struct array, (1, N), as in the genuine .mat files."""
    table = np.zeros((1, len(rows)), dtype=[(field, "O") for field in fields])
    for column, row in enumerate(rows):
        table[0, column] = tuple(row)
    return table


def cells(texts: Sequence[str]) -> np.ndarray:
    """A MATLAB cell array of texts, (1, N)."""
    array = np.empty((1, len(texts)), dtype=object)
    array[0, :] = texts
    return array


BOX = ("bbox_x1", "bbox_y1", "bbox_x2", "bbox_y2")


def cars_original(root: Path, classes: Sequence[int]) -> Path:
    """``cars_annos.mat`` and ``car_ims/``."""
    from scipy.io import savemat

    rows: list[tuple[object, ...]] = []
    (root / "car_ims").mkdir(parents=True)
    for number, label in enumerate(classes):
        path = f"car_ims/{number + 1:06d}.jpg"
        rows.append((path, 1, 2, 15, 10, np.uint8(label), np.uint8(number % 2)))
        photograph(root / path, level_of(number))
    annotations = structs(("relative_im_path", *BOX, "class", "test"), rows)
    content = {"annotations": annotations, "class_names": cells(CAR_NAMES)}
    savemat(root / "cars_annos.mat", content)
    return root


def cars_devkit(root: Path, train: Sequence[int], test: Sequence[int]) -> Path:
    """``cars_train/``, ``cars_test/``, ``devkit/`` and the labels of the test images."""
    from scipy.io import savemat

    (root / "devkit").mkdir(parents=True)
    savemat(root / "devkit" / "cars_meta.mat", {"class_names": cells(CAR_NAMES)})
    places = {
        "cars_train": (train, root / "devkit" / "cars_train_annos.mat"),
        "cars_test": (test, root / "cars_test_annos_withlabels.mat"),
    }
    number = 0
    for folder, (classes, file) in places.items():
        rows: list[tuple[object, ...]] = []
        for position, label in enumerate(classes, 1):
            rows.append((1, 2, 15, 10, np.uint8(label), f"{position:05d}.jpg"))
            photograph(root / folder / f"{position:05d}.jpg", level_of(number))
            number += 1
        savemat(file, {"annotations": structs((*BOX, "class", "fname"), rows)})
    without = [row[:4] + row[5:] for row in rows]
    table = structs((*BOX, "fname"), without)
    savemat(root / "devkit" / "cars_test_annos.mat", {"annotations": table})
    return root


def cars_by_class(root: Path, train: Sequence[int], test: Sequence[int]) -> Path:
    """``car_data/car_data/{train,test}/CLASS/`` with CSV lists, as on Kaggle."""
    lines(root / "names.csv", CAR_NAMES)
    number = 0
    for part, classes in (("train", train), ("test", test)):
        rows = []
        for position, label in enumerate(classes, 1):
            folder = CAR_NAMES[label - 1].replace("/", "-")
            file = root / "car_data" / "car_data" / part / folder / f"{position:05d}.jpg"
            photograph(file, level_of(number))
            rows.append(f"{position:05d}.jpg,1,2,15,10,{label}")
            number += 1
        lines(root / f"anno_{part}.csv", rows)
    return root


def online_products(root: Path, end: str = "\n") -> Path:
    """``Ebay_*.txt`` and two images of each of :data:`SOP_CLASSES`."""
    header = "image_id class_id super_class_id path"
    rows = []
    for label, category in SOP_CLASSES.items():
        for view in range(2):
            number = len(rows)
            path = f"{category}_final/{11108512 + label}_{view}.JPG"
            rows.append((label, f"{number + 1} {label} 1 {path}"))
            photograph(root / path, level_of(number))
    train = [text for label, text in rows if label <= 11318]
    test = [text for label, text in rows if label > 11318]
    lines(root / "Ebay_train.txt", [header, *train], end)
    lines(root / "Ebay_test.txt", [header, *test], end)
    lines(root / "Ebay_info.txt", [header, *train, *test], end)
    return root


def in_shop_list(file: Path, rows: Sequence[tuple[str, str, str]]) -> None:
    """``list_eval_partition.txt``, its columns padded with blanks as in the genuine one."""
    padded = (f"{path:<70} {item} {part:<10}" for path, item, part in rows)
    header = [str(len(rows)), "image_name item_id evaluation_status"]
    lines(file, [*header, *padded])


def in_shop(root: Path) -> Path:
    """``Eval/list_eval_partition.txt`` and ``Img/img/`` with :data:`IN_SHOP_LINES`."""
    in_shop_list(root / "Eval" / "list_eval_partition.txt", IN_SHOP_LINES)
    for number, (path, _, _) in enumerate(IN_SHOP_LINES):
        photograph(root / "Img" / path, level_of(number))
    return root
