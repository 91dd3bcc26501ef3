"""Progress of training and of personalization: a live bar in a terminal, plain lines anywhere else."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from fedsol.config.task import ACCURACY, Measure
from fedsol.core.messages import Update
from fedsol.federation.federation import Federation
from fedsol.runs.rows import Row
from fedsol.runs.run import Run
from fedsol.runs.selection import Stop
from fedsol.training.callbacks import Callback, RoundResult


def test_text(row: Row, measure: Measure) -> str:
    """Return a round's results: on the global test set, or else on the clients' hold-out sets; and by validation."""
    values: Mapping[str, Any] = row
    found = []
    if (tested := values.get(f"test_{measure.key}")) is not None:
        found.append(f"{measure.title} {measure.text(tested)}  loss {row['test_loss']:.3f}")
    elif (held_out := values.get(f"held_out_{measure.key}")) is not None:
        worst = measure.text(values["held_out_worst"])
        found.append(f"held-out {measure.title} {measure.text(held_out)}, worst {worst}")
    if (validated := values.get(f"validation_{measure.key}")) is not None:
        found.append(f"validation {'' if found else f'{measure.title} '}{measure.text(validated)}")
    return "  ".join(found)


class LiveProgress(Callback):
    """A bar of rounds with the latest accuracy and loss, and the clients of the current round."""

    needs_updates = False

    def __init__(self, console: Console, label: str) -> None:
        self._label = label
        self._bar = _bar(console, "{task.fields[accuracy]}", "[dim]{task.fields[clients]}")
        self._task = TaskID(0)
        self._done = self._sampled = 0
        self._measure = ACCURACY

    def started(self, federation: Federation, rows: Sequence[Row]) -> None:
        self._measure = federation.objective.primary
        self._task = self._bar.add_task(
            escape(self._label), total=federation.experiment.rounds, completed=len(rows), accuracy="", clients=""
        )
        self._bar.start()

    def round_started(self, round_number: int, clients: Sequence[int]) -> None:
        self._sampled = len(clients)
        self._show_clients(0)

    def client_finished(self, update: Update) -> None:
        self._show_clients(self._done + 1)

    def round_finished(self, result: RoundResult) -> None:
        self._bar.advance(self._task)
        if tested := test_text(result.row, self._measure):
            self._bar.update(self._task, accuracy=tested)

    def finished(self, run: Run) -> None:
        self._bar.update(self._task, clients="")
        self._bar.stop()
        if run.stopped:
            self._bar.console.print(escape(stop_text(self._label, run.stopped)))

    def _show_clients(self, done: int) -> None:
        self._done = done
        self._bar.update(self._task, clients=f"client {done}/{self._sampled}")


class PlainProgress(Callback):
    """One line per round, or only `lines` of them, evenly spread."""

    needs_updates = False

    def __init__(self, say: Callable[[str], None], label: str, lines: int | None = None) -> None:
        self._say = say
        self._label = label
        self._lines = lines
        self._rounds = 0
        self._measure = ACCURACY

    def started(self, federation: Federation, rows: Sequence[Row]) -> None:
        assert federation.experiment.rounds is not None
        self._rounds = federation.experiment.rounds
        self._measure = federation.objective.primary
        if 0 < len(rows) < self._rounds:
            self._say(f"{self._label}: resuming after round {len(rows)}")

    def round_finished(self, result: RoundResult) -> None:
        row = result.row
        if self._lines is not None and result.round * self._lines % self._rounds >= self._lines:
            return
        tested = test_text(row, self._measure)
        trained = "" if row["train_loss"] is None else f"  train loss {row['train_loss']:.3f}"
        left = (self._rounds - result.round) * row["seconds"]
        self._say(
            f"{self._label}: round {result.round}/{self._rounds}{tested and '  '}{tested}{trained}"
            f"  {row['seconds']:.2f} s, about {_duration(left)} left"
        )

    def finished(self, run: Run) -> None:
        if run.stopped:
            self._say(stop_text(self._label, run.stopped))


def stop_text(label: str, stop: Stop) -> str:
    """Return why a run stopped, as its last line."""
    return f"{label}: stopped after round {stop.round}: {stop.reason}"


def progress(console: Console, label: str, lines: int | None = None) -> Callback:
    """Return the display that suits the console; `lines` limits the output where it cannot redraw."""
    return LiveProgress(console, label) if console.is_terminal else PlainProgress(console.print, label, lines)


class NotebookProgress(Callback):
    """One line in a notebook's output, redrawn after every round."""

    needs_updates = False

    def __init__(self, label: str) -> None:
        self._lines: list[str] = []
        self._plain = PlainProgress(self._lines.append, label)
        self._handle: Any = None

    def started(self, federation: Federation, rows: Sequence[Row]) -> None:
        from IPython.display import display

        self._plain.started(federation, rows)
        self._handle = display({"text/plain": "starting …"}, raw=True, display_id=True)  # type: ignore[no-untyped-call]

    def round_finished(self, result: RoundResult) -> None:
        self._plain.round_finished(result)
        self._show()

    def finished(self, run: Run) -> None:
        self._plain.finished(run)
        self._show()

    def _show(self) -> None:
        if self._handle is not None and self._lines:
            self._handle.update({"text/plain": self._lines[-1]}, raw=True)


def interactive_progress(label: str) -> Callback | None:
    """Return the display for Python: a bar in a terminal, a line in a notebook, nothing in a script's output."""
    console = Console()
    if console.is_jupyter:
        return NotebookProgress(label)
    return LiveProgress(console, label) if console.is_terminal else None


@contextmanager
def clients_shown(console: Console, label: str) -> Iterator[Callable[[int, int], None]]:
    """Yield a function to call at the start and after each client, with the numbers of finished and of all clients.

    It shows a bar in a terminal, or a line per tenth of the clients elsewhere; nothing if all were done before.
    """
    bar = _bar(console)
    task = bar.add_task(escape(label))
    begun = False

    def show(done: int, clients: int) -> None:
        nonlocal begun
        if console.is_terminal:
            bar.update(task, completed=done, total=clients)
            if done < clients:
                bar.start()
        elif begun and done * 10 % clients < 10:
            console.print(f"{label}: {done}/{clients} clients")
        elif not begun and 0 < done < clients:
            console.print(f"{label}: {done} of {clients} clients are already done")
        begun = True

    try:
        yield show
    finally:
        if bar.live.is_started:
            bar.stop()


def _bar(console: Console, *texts: str) -> Progress:
    """Return a bar with its name, its count, these texts, and the remaining time."""
    start = TextColumn("[bold]{task.description}"), BarColumn(), MofNCompleteColumn()
    return Progress(*start, *map(TextColumn, texts), TimeRemainingColumn(), console=console)


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}" if hours else f"{minutes}:{rest:02d}"
