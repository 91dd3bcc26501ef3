"""`fedsol personalize`: every client's own model."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

from fedsol.cli.console import console, resume_hint, say, say_table, show_warnings
from fedsol.cli.options import SetOption, new_directory


def personalize(
    runs: Annotated[
        list[Path], typer.Argument(metavar="RUN...", help="Runs, directories with runs below, or earlier results.")
    ],
    method: Annotated[
        str | None,
        typer.Option("--method", "-m", help="finetune, ditto, knn-per, local-only (default: the run's own)."),
    ] = None,
    epochs: Annotated[str | None, typer.Option("--epochs", help="Comma-separated (default: 1,5).")] = None,
    test: Annotated[
        str | None, typer.Option("--test", help="matched (to the client's labels) or held-out (its own samples).")
    ] = None,
    against: Annotated[
        list[Path] | None, typer.Option("--against", help="Local-only results, to find clients that do better alone.")
    ] = None,
    save: Annotated[
        bool, typer.Option("--save", help="Save every client's model: models/client-*.safetensors.")
    ] = False,
    changes: SetOption = None,
    out: Annotated[Path | None, typer.Option("--out", "-o", help="Directory (default: RUN/personal/METHOD).")] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Resume with the missing clients.")] = False,
) -> None:
    """Personalize a run's final model for every client: accuracies over clients, and which clients do better alone."""
    from fedsol.personalization.comparison import as_rows
    from fedsol.personalization.runs import find_places, parse_request, personalize_runs, runs_or_results, write_report

    show_warnings()
    request = parse_request(method, epochs, test, [*(changes or []), *(["save=true"] if save else [])])
    found = [path for place in runs for path in runs_or_results(place)]
    out = out or (new_directory("personal") if len(found) > 1 else None)
    places = find_places(found, request, out)
    report = out or places[found[0]]
    entries = personalize_runs(places, request, against or [], resume, _progress)
    write_report(entries, report)
    rows = as_rows(entries)
    _say_rows(rows)
    for row in rows:
        if row.get("losers"):
            say(_comparison_with_alone(row))
    say(f"Results are in {report} (distribution.png, sizes.png, table.json; clients.csv and summary.json of each).")


@contextmanager
def _progress(run: Path, place: Path) -> Iterator[Callable[[int, int], None]]:
    from fedsol.training.progress import clients_shown

    with (
        resume_hint(place, "the same command and --resume", "personal.json"),
        clients_shown(console, run.name) as progress,
    ):
        yield progress


def _say_rows(rows: Sequence[Mapping[str, Any]]) -> None:
    """Print the table."""
    headings = ["personal models", "epochs", "before", "mean ± std", "worst 10 %", "best 10 %", "lose"]
    lines = [
        [
            row["label"],
            str(row["epochs"]),
            _points(row["before"]),
            f"{_points(row['mean'])} ± {_points(row['std'])}",
            _points(row["worst_decile"]),
            _points(row["best_decile"]),
            f"{len(lost['clients'])}/{lost['of']}" if (lost := row.get("losers")) else "–",
        ]
        for row in rows
    ]
    say_table(headings, lines, caption="accuracy in %; lose: clients that do better alone")


def _points(share: float | None) -> str:
    """Return a share between 0 and 1 as a percentage, without the percent sign."""
    return "–" if share is None else f"{100 * share:.2f}"


def _comparison_with_alone(row: Mapping[str, Any]) -> str:
    """Say which clients lose by federating."""
    from fedsol.personalization.runs import epochs_text

    lost, label = row["losers"], f"{row['label']}, {epochs_text(row['epochs'])}"
    if not lost["clients"]:
        return f"{label}: no client does better alone."
    others = f", the others {lost['others_median_size']:g}" if lost["others_median_size"] is not None else ""
    return (
        f"{label}: {len(lost['clients'])} of {lost['of']} clients do better alone, by {_points(lost['mean_loss'])} "
        f"points on average and {_points(lost['largest_loss'])} at most; they have {lost['median_size']:g} samples "
        f"(median){others}: clients {', '.join(map(str, lost.get('names', lost['clients'])))}."
    )
