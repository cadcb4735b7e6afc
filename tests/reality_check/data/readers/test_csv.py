from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from reality_check.config.datasets import CsvData
from reality_check.data import load_dataset
from reality_check.data.readers.csv import list_csv
from reality_check.utils.errors import UsageError


def write(folder: Path, text: str, encoding: str = "utf-8") -> Path:
    file = folder / "birds.csv"
    file.write_bytes(text.encode(encoding))
    return file


def test_the_files_order_and_sorted_classes(tmp_path: Path) -> None:
    files = list_csv(write(tmp_path, "path,label\nx/b.jpg,wren\na.jpg,owl\nx/a.jpg,wren\n"))
    assert files.paths == ("x/b.jpg", "a.jpg", "x/a.jpg")
    assert files.class_names == ("owl", "wren")
    assert files.labels.tolist() == [1, 0, 1]
    assert files.labels.dtype == np.int64
    assert (files.name, files.root) == ("birds", tmp_path)
    assert (files.test_classes, files.queries) == (None, None)


def test_numbers_are_sorted_as_numbers(tmp_path: Path) -> None:
    files = list_csv(write(tmp_path, "path,label\na,10\nb,9\nc,2\nd,10\n"))
    assert files.class_names == ("2", "9", "10")
    assert files.labels.tolist() == [2, 1, 0, 2]
    mixed = list_csv(write(tmp_path, "path,label\na,10\nb,9\nc,2x\n"))
    assert mixed.class_names == ("10", "2x", "9")


def test_what_spreadsheets_write(tmp_path: Path) -> None:
    """A byte order mark, CRLF, quotes, blanks, more columns in another order, no last line end."""
    lines = ("label, id ,path", '"owl, snowy",1,a b.jpg', 'Käuzchen,2,"c ""d"".jpg"', "", " x ,3,e")
    text = "\ufeff" + "\r\n".join(lines)
    files = list_csv(write(tmp_path, text))
    assert files.paths == ("a b.jpg", 'c "d".jpg', "e")
    assert files.class_names == ("Käuzchen", "owl, snowy", "x")


def test_test_classes(tmp_path: Path) -> None:
    text = "path,label,split\na,owl,test\nb,wren,train\nc,owl,test\nd,auk,test\n"
    files = list_csv(write(tmp_path, text))
    assert files.class_names == ("auk", "owl", "wren")
    assert (files.test_classes, files.queries) == ((0, 1), None)


def test_query_and_gallery(tmp_path: Path) -> None:
    text = "path,label,split\na,2,query\nb,1,train\nc,2,gallery\nd,3,gallery\ne,1,train\n"
    files = list_csv(write(tmp_path, text))
    assert files.test_classes == (1, 2)
    assert files.queries is not None
    assert files.queries.tolist() == [True, False, False, False, False]


def test_only_training_images(tmp_path: Path) -> None:
    files = list_csv(write(tmp_path, "path,label,split\na,2,train\nb,1,train\n"))
    assert (files.test_classes, files.queries) == (None, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", r"names the columns \(none\).*path,label"),
        ("file,label\na,b\n", "'file', 'label', but it must have 'path'"),
        ("path,labels\na,b\n", "'path', 'labels', but it must have 'path' and 'label'"),
        ("path;label\na;b\n", "'path;label'"),
        ("path,label\n", "lists no images"),
        ("path,label\na,1\nb\n", "Line 3 .* has not 2 columns"),
        ("path,label\na,1\nb,owl, snowy\n", "Line 3 .* has not 2 columns.*double quotes"),
        ("path,label\na,1\nb,  \n", "Line 3 .* no path or no label"),
        ("path,label\n,1\n", "Line 2 .* no path or no label"),
        ("path,label\na,1\n/etc/b,1\n", "Line 3 .*'/etc/b', but paths must be relative"),
        ("path,label\n../b,1\n", "Line 2 .* relative"),
        ("path,label,label\na,1,2\n", "names the column 'label' twice"),
        ("path,label,split\na,1,trian\n", "Line 2 .* 'trian'.*Did you mean 'train'"),
        ("path,label,split\na,1,\n", "Line 2 .* the split ''"),
        ("path,label,split\na,1,train\nb,1,test\n", "class '1' of .* in the test and others"),
        ("path,label,split\na,1,test\nb,1,query\n", "'test' together with 'query'"),
        ("path,label,split\na,1,query\nb,2,gallery\n", "query of the class '1'.*never be found"),
        ("path,label,split\na,1,gallery\nb,2,gallery\n", "gallery but no query"),
        ('path,label\n"a,1\n', "cannot be read as a CSV file"),
    ],
)
def test_wrong_files_are_refused_in_one_sentence(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        list_csv(write(tmp_path, text))
    assert "\n" not in str(caught.value)


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="There is no file"):
        list_csv(tmp_path / "absent.csv")
    with pytest.raises(UsageError, match="save it as UTF-8"):
        list_csv(write(tmp_path, "path,label\na,Käuzchen\n", "latin-1"))


def test_load_dataset(tmp_path: Path) -> None:
    for number in range(4):
        Image.new("L", (8, 10), 50 * number).save(tmp_path / f"{number}.png")
    lines = "".join(f"{number}.png,{'ab'[number % 2]}\n" for number in range(4))
    file = write(tmp_path, f"path,label\n{lines}")
    config = CsvData(name="x", reader="csv", path=str(file), size=8, channels=1)
    data = load_dataset(config)
    assert data.image_shape == (10, 8, 1)
    assert [int(data.images.image(row)[0, 0, 0]) for row in range(4)] == [0, 50, 100, 150]
    (tmp_path / "2.png").unlink()
    with pytest.raises(UsageError, match=r"lists '2\.png', but there is no such file"):
        load_dataset(config)
