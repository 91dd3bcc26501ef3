"""A user's own data: what a function returns."""

import sys

import pytest

from fedsol.config.tables import DataSettings
from fedsol.data.own import load_own
from fedsol.errors import InputError


def own(source: str, **settings):
    return load_own(DataSettings(name=source, **settings))


@pytest.fixture
def own_function(tmp_path, monkeypatch):
    """Write a function into my_data.py in the current folder; its reference as a module and as a file."""

    def write(body: str) -> list[str]:
        code = (
            "import numpy as np, torch\nfrom fedsol import Augmentation, Dataset, Split\n"
            + f"def make():\n    {body}\n"
        )
        (tmp_path / "my_data.py").write_text(code)
        return ["my_data:make", "my_data.py:make", f"{tmp_path}/my_data.py:make"]

    monkeypatch.chdir(tmp_path)
    before = set(sys.modules)
    yield write
    for name in set(sys.modules) - before:
        del sys.modules[name]


def test_a_function_returns_a_dict(own_function) -> None:
    body = "x, y = np.zeros((4, 5, 5), np.uint8), [0, 1, 0, 1]; return dict(x_train=x, y_train=y)"
    for source in own_function(body):
        dataset = own(source, test_fraction=0.5)
        assert (len(dataset.train), len(dataset.test)) == (2, 2)
    body = "x, y = torch.ones(4, 5), torch.tensor([0, 1, 0, 1]); return dict(x_train=x, y_train=y, x_test=x, y_test=y)"
    sys.modules.pop("my_data")
    assert own(own_function(body)[0]).input_shape == (5,)


GOOD_SPLIT = "s = Split(torch.zeros(4, 1, 5, 5, dtype=torch.uint8), torch.tensor([0, 1, 0, 1])); "


def test_a_function_returns_a_dataset(own_function) -> None:
    sources = own_function(GOOD_SPLIT + "return Dataset('mine', s, s, 2, (0.5,), (0.5,), channels=1)")
    dataset = own(sources[0])
    assert (dataset.name, dataset.mean, dataset.channels) == ("mine", (0.5,), 1)
    with pytest.raises(InputError, match=r"data.test_fraction: must not be set, as 'my_data:make' has a test set"):
        own(sources[0], test_fraction=0.1)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return 3", r"must be a fedsol.Dataset, .* or a dict of arrays \(got a int\)"),
        ("raise ValueError('no file')", "raised ValueError: no file"),
        ("return dict(x_train=np.zeros((2, 3)), y_train=[{}, {}])", "y_train: must be an array of numbers or strings"),
        (GOOD_SPLIT + "return Dataset('m', s, s, 1, (0.5,), (0.5,), channels=1)", "train.labels must be 0 to 0"),
        (
            GOOD_SPLIT + "return Dataset('m', s, s, 2, (0.5,) * 3, (0.5,))",
            "mean must have one number for each of 1 channels",
        ),
        (
            GOOD_SPLIT + "t = Split(s.inputs.int(), s.labels); return Dataset('m', t, s, 2, (0.5,), (0.5,))",
            "train.inputs must be .*got torch.int32",
        ),
        (
            GOOD_SPLIT + "t = Split(s.inputs, s.labels[:3]); return Dataset('m', s, t, 2, (0.5,), (0.5,))",
            "test.inputs has 4 samples but its labels have 3",
        ),
        (
            GOOD_SPLIT + "t = Split(s.inputs, s.labels, s.labels[:1]); return Dataset('m', t, s, 2, (0.5,), (0.5,))",
            "train.clients must have shape",
        ),
        (GOOD_SPLIT + "return Dataset('m', s, s, 2, (0.5,), (0.0,), channels=1)", "std must be greater than 0"),
        (GOOD_SPLIT + "return Dataset('m', s, s, 2, (0.5,), (0.5,), channels=0)", "channels must be 1"),
        (
            GOOD_SPLIT + "return Dataset('m', s, s, 2, (0.5,), (0.5,), Augmentation(pad=5, pad_mode='reflect'), 1)",
            "data.augmentation.pad: must be less than 5",
        ),
        (
            GOOD_SPLIT + "return Dataset('m', s, s, 2, (0.5,), (0.5,), Augmentation(pad=-1), 1)",
            "pad and cutout must be 0 or more",
        ),
    ],
)
def test_what_a_function_returns_is_checked(body, message, own_function) -> None:
    source = own_function(body)[0]
    with pytest.raises(InputError, match=message):
        own(source)


def test_what_is_named_must_be_a_function(own_function) -> None:
    own_function("return 1")
    with pytest.raises(InputError, match=r"'my_data:np' must be a function \(got a module\)"):
        own("my_data:np")


def test_an_error_in_fedsols_own_words_is_passed_on(own_function) -> None:
    reference, *_ = own_function("import fedsol; raise fedsol.InputError('no scanner is connected')")
    with pytest.raises(InputError, match=r"^no scanner is connected$"):
        own(reference)
