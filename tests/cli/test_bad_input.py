"""Bad input as a user meets it: exit code 2, one message that names field and value, no traceback."""

import pytest

from tests.support.cli import TINY, fedsol


def refused(*arguments):
    """Return the message of a command that must refuse its input."""
    result = fedsol(*arguments)
    assert result.exit_code == 2, (result.exit_code, result.output, result.exception)
    assert "Traceback" not in result.stderr
    return result.stderr


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        (
            "client.batch_size=9223372036854775808",
            "client.batch_size: must be a whole number of at most 64 bits (got 922",
        ),
        (
            "client.batch_size=9223372036854775807",
            "client.batch_size: must be less than or equal to 1000000000 (got 922",
        ),
        ("data.augmentation.pad=1000000000000", "data.augmentation.pad: must be less than or equal to 16384"),
        ("data.augmentation.cutout=1000000000000", "data.augmentation.cutout: must be less than or equal to 16384"),
        ("model.options.hidden=1000000000000", "model.options.hidden: must be an integer from 1 to 1000000"),
        ("client.optimizer_options.x=0x" + "f" * 5000, "client.optimizer_options.x: must be a whole number of at most"),
        (f"seed={'9' * 5000}", "--set seed: the value is too long or nested too deeply (got 999"),
        (f"data.private.mean={'[' * 5000}", "--set data.private.mean: the value is too long or nested too deeply"),
        ("rounds=1000000001", "rounds: must be less than or equal to 1000000000"),
    ],
)
@pytest.mark.parametrize("command", ["run", "estimate"])
def test_numbers_beyond_all_bounds_are_refused(command, setting, message):
    assert message in refused(command, *TINY, "--set", setting)


@pytest.mark.parametrize("text", [f"seed = {'9' * 5000}", f"seed = {'[' * 5000}", f"x = {{{'a.' * 3000}b = 1}}"])
def test_absurd_toml_is_one_message(tmp_path, text):
    (tmp_path / "big.toml").write_text(text)
    assert "big.toml: " in refused("run", tmp_path / "big.toml")


@pytest.mark.parametrize(
    "settings",
    [
        ("model.name=mlp", "model.options.hidden=1000000"),
        ("model.name=slvit", "model.options.dim_head=1000000", "model.options.heads=1000", "model.options.dim=1000000"),
    ],
)
def test_a_model_that_cannot_be_allocated_is_refused_with_its_size(settings):
    message = refused("run", *TINY, *(part for setting in settings for part in ("--set", setting)))
    assert "model.name: " in message
    assert " GB of memory, and this machine has " in message


def test_images_that_cannot_be_allocated_are_refused_with_their_size():
    pads = ("--set", "data.augmentation.pad=16384", "--set", "client.batch_size=1000")
    assert "data.augmentation.pad: a batch of" in refused("run", *TINY, *pads)
    private = ("--set", "data.name=private", "--set", "data.private.classes=2", "--clients", "2", "--examples", "5")
    shape = "data.private.shape=[1000000000, 1000000000, 1000000000]"
    assert "data.private.shape: " in refused("estimate", *private, "--set", shape)
    assert "imagenet100" in refused("estimate", "--set", "data.name=imagenet100", "--set", "data.image_size=16384")


@pytest.mark.parametrize("option", ["--rounds", "--clients", "--examples", "--per-round"])
def test_estimates_bound_their_counts(option):
    assert option in refused("estimate", option, "10000000000000000000000")


def test_a_billion_rounds_can_be_estimated():
    assert fedsol("estimate", *TINY, "--rounds", "1000000000").exit_code == 0
