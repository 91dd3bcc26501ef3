"""Progress of personalization, client by client."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from fedsol.federation.personal import PersonalResult
from fedsol.personalization.loop import ClientProgress


@contextmanager
def clients_shown(on: Console, label: str) -> Iterator[ClientProgress]:
    """Show a bar of clients in a terminal, a line for every tenth of them elsewhere, nothing if all are done."""
    if on.is_terminal:
        columns = (TextColumn("[bold]{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        bar = Progress(*columns, console=on)
        task = bar.add_task(escape(label))

        def show(done: int, clients: int) -> None:
            bar.update(task, completed=done, total=clients)
            if done < clients:
                bar.start()

        try:
            yield ClientProgress(show, lambda _result: bar.advance(task))
        finally:
            bar.stop()
        return
    counts = [0, 0]

    def started(done: int, clients: int) -> None:
        counts[:] = [done, clients]
        if 0 < done < clients:
            on.print(f"{label}: {done} of {clients} clients are already done")

    def finished(_result: PersonalResult) -> None:
        counts[0] += 1
        if counts[0] * 10 % counts[1] < 10:
            on.print(f"{label}: {counts[0]}/{counts[1]} clients")

    yield ClientProgress(started, finished)
