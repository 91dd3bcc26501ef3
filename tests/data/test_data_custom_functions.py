"""A user's own data: what a function returns."""

import sys

import pytest

from fedsol.data.own import load_custom
from fedsol.errors import InputError


@pytest.fixture
def own_function(tmp_path, monkeypatch):
    """Write a function into my_data.py in the current folder; its reference as a module and as a file."""

    def write(body: str) -> list[str]:
        code = (
            f"import numpy as np\nimport torch\nfrom fedsol.data.types import Dataset, Split\ndef make():\n    {body}\n"
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
        dataset = load_custom(source, test_fraction=0.5)
        assert (len(dataset.train), len(dataset.test)) == (2, 2)
    body = "x, y = torch.ones(4, 5), torch.tensor([0, 1, 0, 1]); return dict(x_train=x, y_train=y, x_test=x, y_test=y)"
    sys.modules.pop("my_data")
    assert load_custom(own_function(body)[0]).input_shape == (5,)


GOOD_SPLIT = "s = Split(torch.zeros(4, 1, 5, 5, dtype=torch.uint8), torch.tensor([0, 1, 0, 1])); "


def test_a_function_returns_a_dataset(own_function) -> None:
    sources = own_function(GOOD_SPLIT + "return Dataset('mine', s, s, 2, (0.5,), (0.5,), channels=1)")
    dataset = load_custom(sources[0])
    assert (dataset.name, dataset.mean, dataset.channels) == ("mine", (0.5,), 1)
    with pytest.raises(InputError, match="mean: cannot be set: 'my_data:make' returns a Dataset"):
        load_custom(sources[0], mean=[0.1])


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return 3", "returned a int; it must return a fedsol Dataset or a dict"),
        ("raise ValueError('no file')", "raised ValueError: no file"),
        ("return dict(x_train=np.zeros((2, 3)), y_train=[{}, {}])", "y_train is object"),
        (GOOD_SPLIT + "return Dataset('m', s, s, 1, (0.5,), (0.5,), channels=1)", "train.labels must be 0 to 0"),
        (GOOD_SPLIT + "return Dataset('m', s, s, 2, (0.5,) * 3, (0.5,))", "mean: .* has 3 numbers"),
        (
            GOOD_SPLIT + "t = Split(s.inputs.int(), s.labels); return Dataset('m', t, s, 2, (0.5,), (0.5,))",
            "train.inputs is torch.int32",
        ),
        (
            GOOD_SPLIT + "t = Split(s.inputs, s.labels[:3]); return Dataset('m', s, t, 2, (0.5,), (0.5,))",
            "test.labels is torch.int64 of shape",
        ),
        (
            GOOD_SPLIT + "t = Split(s.inputs, s.labels, s.labels[:1]); return Dataset('m', t, s, 2, (0.5,), (0.5,))",
            "train.clients must have shape",
        ),
    ],
)
def test_what_a_function_returns_is_checked(body, message, own_function) -> None:
    source = own_function(body)[0]
    with pytest.raises(InputError, match=message):
        load_custom(source)


def test_what_is_named_must_be_a_function(own_function) -> None:
    own_function("return 1")
    with pytest.raises(InputError, match="'my_data:np' is a module, not a function"):
        load_custom("my_data:np")
