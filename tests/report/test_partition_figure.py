"""The picture of a partition."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray
from PIL import Image

from fedsol.data.manifest import Partition, label_counts
from fedsol.data.partition import Dirichlet, dirichlet, iid
from fedsol.errors import InputError
from fedsol.plots.partition import Names, draw_partition, draw_partitions, partition_figure

LABELS = np.repeat(np.arange(10), 100)


def drawn(clients: int) -> Partition:
    return dirichlet(LABELS, clients, np.random.default_rng(0), Dirichlet(0.1, min_size=1))


def counted(partition: Partition, classes: int = 10) -> NDArray[np.int64]:
    return label_counts(LABELS, partition, classes)


def test_counts_by_hand() -> None:
    labels = np.array([0, 2, 2, 1, 0])
    counts = label_counts(labels, [np.array([0, 1, 2]), np.array([4])], classes=4)
    assert counts.tolist() == [[1, 0, 2, 0], [1, 0, 0, 0]]


@pytest.mark.parametrize(
    ("clients", "size"),
    [(1, (1080, 435)), (10, (1080, 645)), (30, (1080, 1425)), (31, (1200, 577)), (300, (1200, 577))],
)
def test_pictures_have_the_expected_size_and_are_not_blank(tmp_path: Path, clients: int, size: tuple[int, int]) -> None:
    path = draw_partition(counted(drawn(clients)), tmp_path / "p.png", f"{clients} clients, 5 $ each $")
    with Image.open(path) as image:
        assert image.format == "PNG"
        assert image.size == size
        assert len(image.convert("RGB").getcolors(maxcolors=1_000_000)) > 50


@pytest.mark.parametrize("clients", [5, 50])
def test_the_same_partition_gives_the_same_bytes(tmp_path: Path, clients: int) -> None:
    paths = [draw_partition(counted(drawn(clients)), tmp_path / name) for name in ("a.png", "b.png")]
    assert paths[0].read_bytes() == paths[1].read_bytes()
    other = draw_partition(counted(iid(LABELS, clients, np.random.default_rng(1))), tmp_path / "c.png")
    assert other.read_bytes() != paths[0].read_bytes()


def test_many_classes_become_a_heat_map(tmp_path: Path) -> None:
    labels = np.repeat(np.arange(100), 10)
    path = draw_partition(label_counts(labels, iid(labels, 5, np.random.default_rng(0)), 100), tmp_path / "p.pdf")
    assert path.read_bytes().startswith(b"%PDF")


def test_bad_input_is_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"labels: must be 0 to 4 \(got 0 to 9\)"):
        draw_partition(counted(drawn(3), 5), tmp_path / "p.png")
    with pytest.raises(InputError, match="no clients"):
        draw_partition(counted([]), tmp_path / "p.png")
    assert not list(tmp_path.iterdir())


def test_names_stand_beside_the_clients_and_in_the_legend() -> None:
    names = Names(("no", "yes"), ("north", "a hospital with a long name"))
    figure = partition_figure(np.array([[3, 1], [0, 2]]), "title", names)
    (axes,) = figure.axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["north", "a hospital with a…"]
    assert [text.get_text() for text in axes.get_legend().texts] == ["0 no", "1 yes"]
    assert Names(("0", "1")).legend(2) == Names().legend(2) == ["0", "1"]  # a name that is the number adds nothing


def test_classes_of_a_heat_map_have_their_names() -> None:
    counts = np.ones((31, 3), dtype=np.int64)
    _, axes, *_ = partition_figure(counts, names=Names(("cat", "dog", "eel"))).axes
    assert [label.get_text() for label in axes.get_yticklabels()] == ["cat", "dog", "eel"]


def test_several_partitions_in_one_picture(tmp_path: Path) -> None:
    labels = np.arange(10)
    halves, whole = [np.arange(5), np.arange(5, 10)], [labels]
    rows = [{"two": halves, "one": whole}, {}, {"again": halves}]
    written = draw_partitions(labels, rows, tmp_path / "one", 10, "three of them")
    assert [path.name for path in written] == ["one.png", "one.pdf"]
    with Image.open(written[0]) as picture:
        assert picture.size == (945, 480)  # 150 pixels for each of 0.9 + 2 x 2.7 by 0.6 + 2 x (0.9 + 2 x 0.2) inches
    assert draw_partitions(labels, rows, tmp_path / "two", 10, "three of them")[0].read_bytes() == (
        written[0].read_bytes()
    )
    with pytest.raises(InputError, match="no partitions"):
        draw_partitions(labels, [{}], tmp_path / "none", 10, "none")
