"""`fedsol export`: a trained model as one file, and its model card."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from fedsol.cli.console import say, show_warnings
from fedsol.cli.options import say_code
from fedsol.errors import InputError

if TYPE_CHECKING:
    from fedsol.config.experiment import Experiment
    from fedsol.federation.trained import TrainedModel
    from fedsol.runs.run import Run

Which = Literal["final", "best"]
ModelArgument = Annotated[
    Path, typer.Argument(metavar="RUN", help="A run directory, or a model that fedsol saved (.safetensors).")
]
WhichOption = Annotated[Which, typer.Option("--which", help="final, or best (by validation).")]


def export(
    model: ModelArgument,
    out: Annotated[Path, typer.Option("--out", "-o", help="model.onnx, model.pt2 or model.safetensors.")],
    which: WhichOption = "final",
) -> None:
    """Write a trained model as one file that takes raw inputs, with a model card beside it."""
    from fedsol.inference.export import check_format
    from fedsol.inference.export import export as write
    from fedsol.studies.estimate import show_bytes

    show_warnings()
    check_format(out)
    file, card = write(_open_file(model, which), out) if _is_file(model) else _open_run(model).export(out, which)
    say(f"{file}: {show_bytes(file.stat().st_size)}; model card: {card}")


def open_model(path: Path, which: Which) -> "TrainedModel":
    """Return the model of a run directory or of a file, and say which code of others it runs."""
    return _open_file(path, which) if _is_file(path) else _open_run(path).trained(which)


def _is_file(path: Path) -> bool:
    return path.suffix == ".safetensors" or path.is_file()


def _open_file(path: Path, which: Which) -> "TrainedModel":
    from fedsol.federation.trained import TrainedModel

    if which != "final":
        raise InputError(f"--which: must be 'final' for a saved model (got {which!r})")
    trained = TrainedModel.load(path)
    _say_code(path, trained.experiment)
    return trained


def _open_run(path: Path) -> "Run":
    from fedsol.runs.run import Run

    run = Run.load(path)
    _say_code(path, run.experiment)
    return run


def _say_code(path: Path, experiment: "Experiment") -> None:
    say_code(path, experiment.model_dump(include={"data", "model", "task"}))
