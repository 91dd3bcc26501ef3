"""The model card: what a model is, how it was made, and its results, as Markdown."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fedsol.federation.trained import TrainedModel

MOST_ROWS = 200
"""Rows of a table; the rest is counted."""

IN_GRAPHS = "part of an .onnx or .pt2 file; do it yourself with .safetensors"


def model_card(trained: TrainedModel, file: str) -> str:
    """Return the card of an exported model; what is not known about it is left out."""
    facts, experiment = trained.facts, trained.experiment
    names = dict(enumerate(trained.data.client_names))
    method = f"{experiment.algorithm['name']}{_when(facts, names)}"
    parts = [
        f"# {file}",
        f"{experiment.model.name} for {trained.data.name}, trained by {method}.",
        "## Inputs and outputs",
        _bullets(_form(trained)),
        "## How it was made",
        _bullets(_origin(trained)),
    ]
    if metrics := facts.get("metrics"):
        where = facts.get("evaluated", "on the test set")
        parts += ["## Metrics", f"{where[0].upper()}{where[1:]}.", _table(("metric", "value"), metrics.items())]
    if by_class := facts.get("by_class"):
        parts += ["### By class", _table(("class", "accuracy"), by_class.items())]
    if by_client := facts.get("by_client"):
        headings = tuple(by_client[0])
        rows = [{**row, "client": names.get(row["client"], row["client"])} for row in by_client]
        parts += ["### By client", str(facts.get("by_client_note", ""))]
        parts += [_table(headings, ([row.get(key) for key in headings] for row in rows))]
    parts += ["## Settings", f"```toml\n{experiment.to_toml().strip()}\n```"]
    return "\n\n".join(part for part in parts if part) + "\n"


def _when(facts: Mapping[str, Any], names: Mapping[int, str]) -> str:
    if "client" in facts:
        client = names.get(facts["client"], facts["client"])
        return f", then personalized for client {client} ({facts['personal']})"
    return f" in {facts['rounds']} rounds" if "rounds" in facts else ""


def _form(trained: TrainedModel) -> dict[str, str]:
    data = trained.data
    form = {
        f"input `{name}`": f"{tensor.type}, shape (batch, {', '.join(map(str, tensor.shape))})"
        for name, tensor in data.raw_inputs.items()
    }
    if data.columns is not None:
        form["columns"] = ", ".join(one.name for one in data.columns.numbers) or "no numbers"
        for category in data.columns.categories:
            form[f"category `{category.name}`"] = (
                f"1 … {len(category.values)}: {_shortened(category.values)}; 0: others"
            )
        form["normalization"] = f"(number - mean) / std of each column, as the metadata says (`data`): {IN_GRAPHS}"
    if data.kind == "images":
        repeated = f", then repeated to {data.channels} channels" if data.channels != data.input.shape[0] else ""
        form["normalization"] = (
            f"(pixel / 255 - mean) / std, with mean {list(data.mean)} and std {list(data.std)}{repeated}: {IN_GRAPHS}"
        )
    if data.is_standardized:
        form["normalization"] = (
            f"(x - mean) / std along the first axis of a sample, with the metadata's mean and std (`data`): {IN_GRAPHS}"
        )
    if trained.objective.kind == "regression":
        form["output"] = f"`values`, shape (batch, {data.classes}), in the units of the data: {', '.join(data.names)}"
        return form
    shape = ", ".join(map(str, trained.shape.output_shape))
    form["outputs"] = f"`logits` and `probabilities`, shape (batch, {shape})"
    form["labels" if trained.objective.kind == "multilabel" else "classes"] = _shortened(data.names)
    return form


def _shortened(names: Sequence[str]) -> str:
    more = len(names) - MOST_ROWS
    return ", ".join(names) if more <= 0 else f"{', '.join(names[:MOST_ROWS])} and {more} more"


def _origin(trained: TrainedModel) -> dict[str, Any]:
    facts, experiment = trained.facts, trained.experiment
    keys = (
        "rounds",
        "checkpoint",
        "personal",
        "privacy",
        "clients",
        "data_sha256",
        "partition_sha256",
        "started",
        "fedsol",
    )
    method = ", ".join(f"{key} = {value}" for key, value in experiment.algorithm.items() if key != "name")
    origin = {
        "method": f"{experiment.algorithm['name']}{f' ({method})' if method else ''}",
        "seed": experiment.seed,
        **{key.replace("_", " "): facts[key] for key in keys if key in facts},
    }
    if "commit" in facts:
        origin["commit"] = f"{facts['commit']}{' with changes' if facts.get('commit_modified') else ''}"
    return origin


def _bullets(values: Mapping[str, Any]) -> str:
    return "\n".join(f"- {key}: {_text(value)}" for key, value in values.items())


def _table(headings: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    all_rows = list(rows)
    lines = [headings, ["---"] * len(headings), *all_rows[:MOST_ROWS]]
    text = "\n".join(f"| {' | '.join(_text(value).replace('|', '&#124;') for value in line)} |" for line in lines)
    more = len(all_rows) - MOST_ROWS
    return text if more <= 0 else f"{text}\n\nand {more} more"


def _text(value: Any) -> str:
    if value is None:
        return "–"
    return f"{value:.4f}" if isinstance(value, float) else str(value)
