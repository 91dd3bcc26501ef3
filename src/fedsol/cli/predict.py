"""`fedsol predict` and `fedsol evaluate`: use a trained model on other data."""

import json
from pathlib import Path
from typing import Annotated

import typer

from fedsol.cli.console import say, say_table, show_warnings
from fedsol.cli.export import ModelArgument, WhichOption, open_model
from fedsol.cli.options import JsonOption
from fedsol.errors import InputError


def predict(
    model: ModelArgument,
    data: Annotated[Path, typer.Argument(help="What to predict: a table, an .npz file, a folder of images, an image.")],
    out: Annotated[Path, typer.Option("--out", "-o", help="A table (.csv), or all arrays (.npz).")] = Path(
        "predictions.csv"
    ),
    which: WhichOption = "final",
) -> None:
    """Predict labels for a file or folder with a trained model; write a table with probabilities."""
    from fedsol.config.tables import unknown_name
    from fedsol.core.files import write_output
    from fedsol.inference.predictions import predict as ask

    show_warnings()
    if out.suffix not in (".csv", ".npz"):
        raise unknown_name("-o", out.suffix or out.name, (".csv", ".npz"))
    if out.exists() and data.exists() and out.samefile(data):
        raise InputError(f"-o: must not be the data itself (got {str(out)!r})")
    predictions = ask(open_model(model, which), data)
    write_output(out, predictions.to_npz() if out.suffix == ".npz" else predictions.to_csv())
    say(f"{out}: {len(predictions)} predictions")


def evaluate(
    model: ModelArgument,
    data: Annotated[
        Path | None,
        typer.Option("--data", help="Labeled data: a table, an .npz file or a folder (default: the run's test set)."),
    ] = None,
    which: WhichOption = "final",
    as_json: JsonOption = False,
) -> None:
    """Evaluate a trained model on labeled data: the metrics, in total and by class."""
    from fedsol.inference.evaluation import evaluate_on

    show_warnings()
    trained = open_model(model, which)
    metrics = evaluate_on(trained, data)
    if as_json:
        print(json.dumps(metrics, indent=2))
        return
    numbers = {key: value for key, value in metrics.items() if not isinstance(value, dict | list)}
    say_table(["metric", "value"], [[key, "–" if value is None else f"{value:.6g}"] for key, value in numbers.items()])
    if by_class := metrics.get("class_accuracy"):
        rows = [[name, "–" if share is None else f"{100 * share:.2f}"] for name, share in by_class.items()]
        say_table(["label" if trained.objective.kind == "multilabel" else "class", "accuracy"], rows, caption="in %")
    if confusion := metrics.get("confusion"):
        names = [*metrics["class_accuracy"]]
        rows = [[name, *map(str, counts)] for name, counts in zip(names, confusion, strict=True)]
        say_table(["class", *names], rows, caption="row: true class, column: predicted class")
