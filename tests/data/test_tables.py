"""CSV and Parquet files, and data frames: columns as numbers, categories and targets."""

import gzip

import numpy as np
import pandas as pd
import pytest
import torch

from fedsol.config.experiment import Experiment
from fedsol.config.tables import DataSettings
from fedsol.data import tables
from fedsol.data.arrays import Source
from fedsol.data.catalog import load_dataset
from fedsol.data.columns import encode
from fedsol.data.types import Category, Columns, Number
from fedsol.errors import InputError

ROWS = """age,sex,hospital,ill,pressure
30,f,north,yes,1.5
50,m,north,no,2.5
40,f,south,yes,3.5
60,m,south,no,4.5
"""


@pytest.fixture
def csv(tmp_path):
    def write(text: str = ROWS, name: str = "rows.csv") -> str:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path / name)

    return write


def load(source: str, kind: str = "classification", **settings):
    settings = {"target": "ill", "client": "hospital", "test_fraction": 0.5, **settings}
    return load_dataset(DataSettings(name=source, **settings), kind)


def refused(source: str, kind: str = "classification", **settings) -> str:
    with pytest.raises(InputError) as error:
        load(source, kind, **settings)
    return str(error.value).replace(source, "FILE")


def test_a_table_with_numbers_categories_and_clients(csv):
    dataset = load(csv())
    # Sorted by class: rows 2, 4 (no), 1, 3 (yes); the second and the fourth of these are the test set.
    assert dataset.train.labels.tolist() == [1, 0]  # rows 1 and 2
    assert dataset.class_names == ("no", "yes")
    assert dataset.train.clients.tolist() == [0, 0]
    assert dataset.client_names == ("north",)
    assert dataset.columns == Columns(
        (Number("age", 40.0, 10.0), Number("pressure", 2.0, 0.5)), (Category("sex", ("f", "m")),)
    )
    assert dataset.train.inputs["numbers"].tolist() == [[-1, -1], [1, 1]]
    assert dataset.train.inputs["categories"].tolist() == [[1], [2]]
    assert dataset.test.inputs["numbers"].tolist() == [[0, 3], [2, 5]]
    assert dataset.test.inputs["numbers"].dtype == torch.float32
    assert (dataset.name, dataset.classes) == ("rows", 2)


def test_without_categories_inputs_are_one_tensor(csv):
    dataset = load(csv(), features=["pressure", "age"])
    assert dataset.train.inputs.tolist() == [[-1, -1], [1, 1]]
    assert [number.name for number in dataset.columns.numbers] == ["pressure", "age"]
    assert dataset.input_shape == (2,)


def test_numbers_may_be_categories(csv):
    dataset = load(csv(), features=["age"], categorical=["age"])
    assert dataset.columns == Columns((), (Category("age", ("30", "50")),))
    assert dataset.test.inputs["categories"].tolist() == [[0], [0]]  # 40 and 60 are not among the training rows
    assert dataset.test.inputs["numbers"].shape == (2, 0)


def test_regression_and_several_labels(csv):
    dataset = load(csv(), "regression", target=["pressure", "age"], features=["sex"])
    assert dataset.class_names == ("pressure", "age")
    assert dataset.classes == 2
    restored = dataset.train.labels * torch.tensor(dataset.target_std) + torch.tensor(dataset.target_mean)
    assert restored.tolist() == [[1.5, 30], [3.5, 40]]  # chosen by their place: rows 2 and 4 are the test set
    text = "a,x,y\n" + "1,0,1\n2,1,1\n3,1,0\n4,0,0\n"
    dataset = load(csv(text), "multilabel", target=["x", "y"], client=None)
    assert dataset.train.labels.tolist() == [[0, 1], [1, 0]]
    assert dataset.class_names == ("x", "y")


def test_a_file_of_test_rows(csv):
    other = csv("ill,pressure,age,sex\nno,3,40,x\n", "other.csv")
    dataset = load(csv(), test=other, test_fraction=None)
    assert len(dataset.train) == 4
    assert dataset.train.clients.tolist() == [0, 0, 1, 1]
    assert dataset.test.labels.tolist() == [0]
    assert dataset.test.inputs["categories"].tolist() == [[0]]  # 'x' is not among the training rows
    assert dataset.test.inputs["numbers"][0, 1].item() == 0  # the mean of all pressures is 3


@pytest.mark.parametrize("separator", [";", "\t", "|"])
def test_separators_are_found(csv, separator):
    assert load(csv(ROWS.replace(",", separator))).columns == load(csv()).columns
    spaced = csv(ROWS.replace(",", "~"))
    assert load(spaced, separator="~").columns == load(csv()).columns


def test_other_forms_of_files(csv, tmp_path):
    plain = load(csv())
    with gzip.open(tmp_path / "rows.csv.gz", "wt", encoding="utf-8-sig") as file:  # as spreadsheets write UTF-8
        file.write(ROWS)
    frame = pd.read_csv(tmp_path / "rows.csv")
    frame.to_parquet(tmp_path / "rows.parquet", index=False)
    for name in ("rows.csv.gz", "rows.parquet"):
        dataset = load(str(tmp_path / name))
        assert dataset.columns == plain.columns
        assert torch.equal(dataset.train.inputs["numbers"], plain.train.inputs["numbers"])


def test_whole_numbers_of_any_kind_are_classes_and_clients(csv):
    text = "x,place,label\n1,7,1.0\n2,7,3\n3,9,1\n4,9,3\n"
    dataset = load(csv(text), target="label", client="place")
    assert dataset.class_names == ("1", "3")
    assert dataset.client_names == ("7",)  # rows 3 and 4 are the test set
    rows = "x,place,y\n" + "".join(f"{row},{row // 10},{row * 7 % 20}\n" for row in range(20))
    halves = load(csv(rows), "regression", target="y", client="place")
    assert halves.train.clients.bincount().tolist() == [5, 5]  # of each client's ten rows, every second by its target
    text = "x,label\n1,True\n2,False\n3,True\n4,False\n"
    assert load(csv(text), target="label", client=None).class_names == ("False", "True")


def test_a_class_of_one_row_stays_in_the_training_set(csv):
    rows = "x,ill\n1,no\n2,no\n3,no\n4,no\n5,rare\n6,yes\n7,yes\n8,yes\n"
    dataset = load(csv(rows), client=None, test_fraction=0.5)  # every second row, so the fifth is not chosen
    assert dataset.classes == 3
    rows = "x,ill\n1,no\n2,no\n3,no\n4,rare\n5,yes\n6,yes\n"
    dataset = load(csv(rows), client=None, test_fraction=0.5)  # the second, fourth and sixth, but for the class 'rare'
    assert (dataset.class_names, len(dataset.train), len(dataset.test)) == (("no", "rare", "yes"), 4, 2)


def test_missing_values(csv):
    text = ROWS.replace("30,f", ",f").replace("40,f", "40,") + "10,,east,yes,7\n20,,east,no,9\n"
    message = refused(csv(text))
    assert message == (
        "FILE: column 'age' has 1 missing value, the first in row 1; fill them, or set data.missing to 'mean' or "
        "'median'"
    )
    assert refused(csv(text), features=["sex"]).startswith(
        "FILE: column 'sex' has 3 missing values, the first in row 3;"
    )
    other = csv("age,sex,pressure,ill\n,,3,yes\n", "other.csv")
    dataset = load(csv(text), missing="mean", test=other, test_fraction=None)
    age = dataset.columns.numbers[0]
    assert age.fill == 36.0  # of 50, 40, 60, 10 and 20
    assert dataset.train.inputs["numbers"][0, 0] == (36.0 - age.mean) / age.std
    assert dataset.train.inputs["categories"][:, 0].tolist() == [1, 2, 0, 2, 0, 0]
    assert dataset.test.inputs["categories"].tolist() == [[0]]
    dataset = load(csv(text), missing="median", features=["age"], test=other, test_fraction=None)
    assert dataset.columns.numbers[0].fill == 40.0


BAD = [
    ({"target": "age"}, ROWS.replace("30", "inf"), "FILE: data.target: 'age' has real numbers, such as inf; set task."),
    ({"target": "il"}, ROWS, "data.target: unknown value 'il'; did you mean 'ill'? Allowed: age, hospital, ill, "),
    (
        {"target": None},
        ROWS,
        "data.target: is missing; set it to the column to predict, one of age, sex, hospital, ill",
    ),
    ({"features": ["agee"]}, ROWS, "data.features: unknown value 'agee'; did you mean 'age'? Allowed: age, "),
    ({"features": ["age", "age"]}, ROWS, "data.features: 'age' must occur once"),
    ({"features": ["age", "ill"]}, ROWS, "data.features: 'ill' must not be among them: it is data.target"),
    ({"features": ["hospital"]}, ROWS, "data.features: 'hospital' must not be among them: it is data.client"),
    ({"client": "clinic"}, ROWS, "data.client: unknown value 'clinic'; allowed: age, hospital, ill, pressure, sex"),
    ({"categorical": ["age"], "features": ["sex"]}, ROWS, "data.categorical: 'age' must be a feature"),
    ({"test_fraction": None}, ROWS, "FILE: has no test rows; set data.test to a file with them, or data.test_fraction"),
    ({"test": "no.csv", "test_fraction": None}, ROWS, "no.csv: no such file"),
    (
        {"target": "pressure"},
        ROWS,
        "FILE: data.target: 'pressure' has real numbers, such as 1.5; set task.kind = 'regr",
    ),
    (
        {"target": ["ill", "sex"]},
        ROWS,
        "data.target: must be one column for task.kind = 'classification' (got 2); sever",
    ),
    (
        {},
        ROWS.replace("yes", "", 1),
        "FILE: data.target: 'ill' has 1 missing value, the first in row 1; every row must",
    ),
    (
        {},
        ROWS.replace("south", ""),
        "FILE: data.client: 'hospital' has 2 missing values, the first in row 3; every row",
    ),
    ({}, ROWS.replace("pressure", "age"), "FILE: the column 'age' occurs 2 times; give each another name"),
    ({}, "", "FILE: is empty"),
    ({}, "age,ill,hospital\n", "FILE: has columns but no rows"),
    (
        {},
        ROWS.replace(",", "~"),
        "FILE: has one column, 'age~sex~hospital~ill~pressure'; set data.separator to the char",
    ),
    ({}, "ill,hospital,x\na,b,\nb,b,\n", "FILE: column 'x' has no values; leave it out of data.features"),
    ({}, ROWS.replace("30,", "inf,"), "FILE: column 'age' must be finite (got 1 infinite, the first in row 1)"),
    (
        {},
        ROWS.replace("30,", "?,"),
        "FILE: column 'age' has text among its numbers, '?' in row 1; leave it empty if it",
    ),
    (
        {},
        ROWS.replace("age", "").replace("30", "0"),
        "FILE: column 1 has no name (an index that was saved with the tabl",
    ),
    (
        {"features": ["x"]},
        "x;ill;hospital\n1,5;a;b\n2,5;b;b\n",
        "FILE: column 'x' has numbers with decimal commas, such",
    ),
    (
        {},
        "1,2,3\n4,5,6\n",
        "data.target: unknown value 'ill'; the first row must have the names of the columns (got 1, 2",
    ),
    ({"target": "ill", "client": None}, "ill,ill2\n1,1\n", "data.test_fraction: must leave samples for both training"),
    ({}, "a,ill,hospital\n1,2,3,4\n", "FILE: cannot be read as CSV: its rows have more values than the first row"),
    ({}, "a,ill,hospital\n1,2,3\n1,2,3,4\n", "FILE: cannot be read as CSV: Expected 3 fields in line 3, saw 4"),
]


@pytest.mark.parametrize(("settings", "text", "message"), BAD)
def test_bad_tables_are_one_message(csv, settings, text, message):
    assert refused(csv(text), **settings).startswith(message)


@pytest.mark.parametrize("date", ["2024-01-31", "2024-01-31 10:00", "31.1.2024", "1/31/24", "10:30"])
def test_dates_are_refused(csv, date):
    message = refused(csv(ROWS.replace(",f,", f",{date},").replace(",m,", f",{date},")))
    assert message.startswith(f"FILE: column 'sex' has dates or times, such as {date!r}; convert them to numbers")


def test_bad_targets_and_identifiers(csv):
    assert refused(csv(), "regression").startswith(
        "FILE: data.target: column 'ill' must be numbers (got 'yes' in row 1)"
    )
    assert refused(csv(), "multilabel", target=["age"]).startswith(
        "FILE: data.target: 'age' must be 0 or 1 for task.kind = 'multilabel' (got 30 in row 1)"
    )
    assert refused(csv(), "segmentation") == (
        "task.kind: 'segmentation' does not fit a table; allowed: classification, multilabel, regression"
    )
    many = "name,x,ill\n" + "".join(f"id{row},{row},{row % 2}\n" for row in range(40))
    assert refused(csv(many), client=None).startswith("FILE: column 'name' has 40 different texts in 40 rows, too many")
    assert refused(csv(many), client=None, target="x", features=["ill"]).startswith(
        "FILE: data.target: 'x' has 40 different values in 40"
    )
    assert load(csv(many), client=None, categorical=["name"]).test.inputs["categories"].unique().tolist() == [0]


def test_bad_test_files(csv):
    for text, message in [
        ("age,sex,pressure,ill\n1,f,2,maybe\n", "OTHER: the test label maybe does not occur among the training labels"),
        ("age,sex,ill\n1,f,yes\n", "OTHER: has no column 'pressure'; it has age, sex, ill"),
        ("age,sex,pressure,ill\nold,f,2,yes\n", "OTHER: column 'age' must be numbers (got 'old' in row 1)"),
        ("age,sex,pressure,ill\n1,,2,yes\n", "OTHER: column 'sex' has 1 missing value, the first in row 1; fill them,"),
    ]:
        other = csv(text, "other.csv")
        assert refused(csv(), test=other, test_fraction=None).replace(other, "OTHER").startswith(message)
    assert refused(csv(), test=other) == "data.test_fraction: must not be set, as there are test rows (got 0.5)"


def test_files_of_other_encodings_and_formats(tmp_path):
    (tmp_path / "rows.csv").write_bytes(ROWS.replace("north", "Köln").encode("latin-1"))
    assert refused(str(tmp_path / "rows.csv")).startswith("FILE: must be text in UTF-8: invalid")
    (tmp_path / "rows.parquet").write_text(ROWS)
    assert refused(str(tmp_path / "rows.parquet")).startswith("FILE: cannot be read as a Parquet file: ")
    assert refused(str(tmp_path / "rows.parquet"), separator=";").startswith(
        "data.separator: only applies to CSV files"
    )
    frame = pd.DataFrame({"when": pd.to_datetime(["2024-01-01"] * 4), "ill": [0, 1, 0, 1], "hospital": 1})
    frame.to_parquet(tmp_path / "rows.parquet")
    assert "column 'when' has dates or times" in refused(str(tmp_path / "rows.parquet"))
    frame.assign(when=[[1], [2], [3], [4]]).to_parquet(tmp_path / "rows.parquet")
    assert "column 'when' has values of type ndarray; must be numbers or text" in refused(
        str(tmp_path / "rows.parquet")
    )


def test_settings_of_tables_are_refused_for_other_data(tmp_path):
    np.savez(tmp_path / "own.npz", x_train=np.zeros((4, 2)), y_train=np.arange(4) % 2)
    for name, what in (
        (str(tmp_path / "own.npz"), "has arrays"),
        (str(tmp_path), "is a folder"),
        ("digits", "has images"),
    ):
        with pytest.raises(InputError, match=f"^data.target: only applies to tables, and .* {what}"):
            load_dataset(DataSettings(name=name, target="x"))


def test_large_tables_are_stored_once_and_memory_mapped(csv, tmp_path, monkeypatch):
    small = load(csv())
    assert not (tmp_path / ".fedsol-cache").exists()
    monkeypatch.setattr(tables, "LARGE_FILE", 1)
    first = load(csv())
    (folder,) = (tmp_path / ".fedsol-cache").iterdir()
    monkeypatch.setattr(tables, "read_frame", None)  # is not called again
    for dataset in (first, load(str(tmp_path / "rows.csv"))):
        assert dataset.columns == small.columns
        assert (dataset.class_names, dataset.client_names) == (small.class_names, small.client_names)
        for name in ("numbers", "categories"):
            assert torch.equal(dataset.train.inputs[name], small.train.inputs[name])
            assert torch.equal(dataset.test.inputs[name], small.test.inputs[name])
        assert torch.equal(dataset.train.labels, small.train.labels)
        assert torch.equal(dataset.train.clients, small.train.clients)
        assert dataset.test.clients is None
    monkeypatch.undo()
    monkeypatch.setattr(tables, "LARGE_FILE", 1)
    load(str(tmp_path / "rows.csv"), features=["age"])
    assert len([*(tmp_path / ".fedsol-cache").iterdir()]) == 2  # other columns are stored apart
    (folder / "train.labels.npy").write_bytes(b"")
    assert "the cache is damaged" in refused(str(tmp_path / "rows.csv"))


def test_encoding_new_rows():
    columns = Columns((Number("age", 40.0, 10.0), Number("dose", 0.0, 2.0, fill=4.0)), (Category("sex", ("f", "m")),))
    frame = pd.DataFrame(
        {"sex": ["m", "d", None], "dose": [None, 2, True], "age": [50, 40, 30], "more": 1}, index=list("abc")
    )
    inputs = encode(frame, columns)
    assert inputs["numbers"].tolist() == [[1, 2], [0, 1], [-1, 0.5]]
    assert inputs["categories"].tolist() == [[2], [0], [0]]
    with pytest.raises(InputError, match=r"^new.csv: has no column 'age'; it has sex, dose, more$"):
        encode(frame.drop(columns="age"), columns, "new.csv")
    with pytest.raises(InputError, match=r"^new.csv: column 'age' has 1 missing value, the first in row 2; fill them"):
        encode(frame.assign(age=[1, None, 2]), columns, "new.csv")
    with pytest.raises(InputError, match=r"^new.csv: column 'age' must be numbers \(got 'x' in row 3\)$"):
        encode(frame.assign(age=["1", "2", "x"]), columns, "new.csv")


def test_a_client_column_makes_the_clients():
    assert DataSettings(client="hospital").partition.kind == "own"
    assert DataSettings(client="hospital", partition={"held_out": 0.2}).partition.model_dump()["kind"] == "own"
    assert DataSettings(client="hospital", partition={"kind": "dirichlet"}).partition.kind == "dirichlet"
    assert DataSettings().partition.kind == "dirichlet"
    experiment = Experiment(data={"client": "hospital", "partition": {"kind": "dirichlet"}})
    assert experiment.override({"rounds": 3}).data.partition.kind == "dirichlet"
    assert Experiment().override({"data.client": "hospital"}).data.partition.kind == "own"
    quick = Experiment(data={"partition": {"kind": "sharding", "clients": 10, "held_out": 0.2}})
    changed = quick.override({"data.client": "hospital"}).data.partition
    assert (changed.kind, changed.clients, changed.held_out) == ("own", None, 0.2)
    assert quick.override({"data.client": "h", "data.partition.kind": "iid"}).data.partition.kind == "iid"
    assert experiment.override({"data.partition.kind": "iid"}).data.partition.kind == "iid"


@pytest.mark.parametrize("value", [3, [], ["a", 1]])
def test_a_target_is_a_name_or_names(value):
    with pytest.raises(InputError, match=r"^data.target: must be the name of a column, or a list of names"):
        Experiment(data={"target": value})


def test_data_frames_of_a_function(csv, tmp_path):
    (tmp_path / "mine.py").write_text(
        "from pathlib import Path\nimport pandas as pd\n"
        "def rows():\n    return pd.read_csv(Path(__file__).parent / 'rows.csv')\n"
        "def parts():\n    return {'train': rows(), 'test': rows()[:1]}\n"
    )
    plain = load(csv())
    assert load(f"{tmp_path}/mine.py:rows").columns == plain.columns
    parts = load(f"{tmp_path}/mine.py:parts", test_fraction=None)
    assert (len(parts.train), len(parts.test)) == (4, 1)
    frame = pd.read_csv(tmp_path / "rows.csv").astype({"age": str})
    with pytest.raises(InputError, match=r"^data: column 'age' has numbers as text, such as '30'; convert"):
        tables.table_dataset(frame, None, DataSettings(target="ill", test_fraction=0.5), Source("data"))
    message = refused(f"{tmp_path}/mine.py:parts")
    assert message == "data.test_fraction: must not be set, as there are test rows (got 0.5)"


def test_without_pyarrow_the_error_says_what_to_install(tmp_path, monkeypatch):
    def missing(path):
        raise ImportError("no pyarrow")

    monkeypatch.setattr(pd, "read_parquet", missing)
    (tmp_path / "rows.parquet").touch()
    assert refused(str(tmp_path / "rows.parquet")) == (
        "FILE: Parquet files require pyarrow, which is not installed; run: pip install 'fedsol[parquet]'"
    )
