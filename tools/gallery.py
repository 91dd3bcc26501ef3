"""Make docs/gallery.md: every figure from real runs on the embedded digits, each with its command.

What is in runs/gallery already is used again: runs and sweeps resume where they stopped, pictures are not made again.
Start anew with `rm -r runs/gallery`.
"""

import resource
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from fedsol import __version__
from fedsol.cli.app import app

WORK = Path("runs/gallery")
IMAGES = Path("docs/images/gallery")
PAGE = Path("docs/gallery.md")
COLORS = 160
"""Pictures are stored with a palette: half the size, and no difference to see."""

SHORT = "--set rounds=20 --seeds 0,1"
ROUNDS = "--set rounds=40"
THREE = "runs/gallery/fedavg runs/gallery/fedasam runs/gallery/fedsol"
TWO = "runs/gallery/fedavg runs/gallery/fedsol"


@dataclass(frozen=True)
class Entry:
    """A section of the page: its commands (as one types them after `fedsol`) and the pictures that they leave."""

    title: str
    text: str
    commands: tuple[str, ...]
    pictures: tuple[str, ...]


def trained(name: str) -> str:
    """The run that most figures look at."""
    return (
        f"run digits --set algorithm.name={name} {ROUNDS} --analyze divergence,preservation,strength,orthogonality "
        f"--out runs/gallery/{name}"
    )


def swept(name: str, grid: str) -> tuple[str, ...]:
    """A sweep over two seeds."""
    return (f"sweep digits {grid} {SHORT} --out runs/gallery/{name}",)


METHODS = "--grid algorithm.name=fedavg,fedsol"

ENTRIES = (
    Entry(
        "Learning curves, with bands over seeds",
        "Mean and standard deviation of the test accuracy over three seeds.",
        (
            f"compare digits -a fedavg,fedsol {ROUNDS} --seeds 0,1,2 --jobs 2 --out runs/gallery/compare",
            "analyze runs/gallery/compare --what curves --out runs/gallery/compare-figures",
        ),
        ("compare-figures/curves",),
    ),
    Entry(
        "Who has which classes",
        "The paper's two ways to deal data out, to ten clients: Dirichlet(0.1), and two shards of sorted labels each.",
        (
            "partition digits --set data.partition.clients=10 --out runs/gallery/dirichlet",
            "partition digits --set data.partition.clients=10 --set data.partition.kind=sharding "
            "--out runs/gallery/sharding",
        ),
        ("dirichlet/partition", "sharding/partition"),
    ),
    Entry(
        "The runs behind the figures below",
        "Three methods, 40 rounds each, with all analyses written in every round.",
        (trained("fedavg"), trained("fedasam"), trained("fedsol")),
        (),
    ),
    Entry(
        "Orthogonality by rho",
        "One round of local training from FedSOL's global model, done again with four strengths (0 is FedAvg): the "
        "cosine of the update `g_u` and the proximal gradient `g_p`, and the proximal loss. Bands are standard "
        "deviations over the clients of the round.",
        ("analyze runs/gallery/fedsol --what orthogonality --out runs/gallery/one-run",),
        ("one-run/orthogonality",),
    ),
    Entry(
        "Orthogonality by method, and over rounds",
        "The same for three methods, each in its own run; below, the first client of every round.",
        (f"analyze {THREE} --what orthogonality --out runs/gallery/methods",),
        ("methods/orthogonality", "methods/orthogonality-rounds"),
    ),
    Entry(
        "Weight divergence",
        "How far local training moves clients from the global model and from each other, over rounds and by layer.",
        (f"analyze {TWO} --what divergence --out runs/gallery/methods",),
        ("methods/divergence",),
    ),
    Entry(
        "Knowledge preservation, class-wise accuracy and forgetting",
        "Accuracy on the global test set before and after local training (bands: spread over clients), for classes "
        "that a client holds and those it does not; the global model's accuracy by class and round; and how much of "
        "each class's best is lost.",
        (f"analyze {TWO} --what preservation --out runs/gallery/methods",),
        ("methods/preservation", "methods/forgetting"),
    ),
    Entry(
        "Adaptive strength by layer",
        "Mean Lambda (equation 7), the same without the effect of how many weights share a norm, and how far each "
        "layer moved.",
        (f"analyze {TWO} --what strength --out runs/gallery/methods",),
        ("methods/strength",),
    ),
    Entry(
        "Loss landscape",
        "The loss of the global models over the top two eigenvectors of the Hessian, with lambda_1, lambda_5 and their "
        "ratio.",
        (f"analyze {THREE} --what landscape --out runs/gallery/methods",),
        ("methods/landscape",),
    ),
    Entry(
        "Cost of a local step",
        "FLOPs, time and peak memory of every method on the paper's CNN with CIFAR-10's shapes (no data is needed). "
        "“Two whole passes” is how the paper counts: FedSOL's head perturbation shares one pass here.",
        ("analyze cifar10 --what cost --repetitions 5 --out runs/gallery/cost",),
        ("cost/cost",),
    ),
    Entry(
        "The toy example",
        "Two weights, one local minimum: FedProx turns toward the direction of greater curvature, FedSOL keeps the "
        "direction of the minimum and stays rho nearer. Crosses are the paper's formulas.",
        ("analyze --what toy --out runs/gallery/toy",),
        ("toy/toy",),
    ),
    Entry(
        "Sweep: sampling ratio",
        "The share of clients that take part in a round.",
        swept("sweep-fraction", f"{METHODS} --grid server.fraction=0.05,0.2,0.4"),
        ("sweep-fraction/sweep",),
    ),
    Entry(
        "Sweep: local epochs",
        "Passes over a client's data in a round.",
        swept("sweep-epochs", f"{METHODS} --grid client.epochs=1,3,6"),
        ("sweep-epochs/sweep",),
    ),
    Entry(
        "Sweep: learning rate",
        "The learning rate of the first round.",
        swept("sweep-lr", f"{METHODS} --grid client.lr=0.003,0.01,0.03"),
        ("sweep-lr/sweep",),
    ),
    Entry(
        "Sweep: rho, with fixed and adaptive strength",
        "FedSOL's rho, for two kinds of Lambda.",
        swept("sweep-rho", "--grid algorithm.strength=fixed,adaptive --grid algorithm.rho=0,0.5,1,2"),
        ("sweep-rho/sweep",),
    ),
    Entry(
        "Sweep over two numbers",
        "A heat map of mean accuracies.",
        (
            "sweep digits --grid algorithm.rho=0.5,1,2 --grid algorithm.tau=1,3,10 --set rounds=15 --seeds 0 "
            "--out runs/gallery/sweep-two",
        ),
        ("sweep-two/sweep",),
    ),
    Entry(
        "Search",
        "Optuna chooses the settings to try (`fedsol[search]`); the star is the best.",
        (
            "sweep digits --grid algorithm.rho=0.1..4 --grid client.lr=log:0.003..0.1 --search 6 --set rounds=15 "
            "--seeds 0 "
            "--out runs/gallery/search",
        ),
        ("search/sweep",),
    ),
)

RESUMABLE = ("run", "compare", "sweep")


def make(entry: Entry) -> None:
    """Run the commands of an entry, but those whose pictures are there."""
    if entry.pictures and all((WORK / f"{picture}.png").is_file() for picture in entry.pictures):
        return
    for command in entry.commands:
        name, *rest = command.split()
        print(f"$ fedsol {command}", flush=True)
        app([name, *rest, *(["--resume"] if name in RESUMABLE else [])], standalone_mode=False)


def copy_pictures(entry: Entry) -> list[Path]:
    """Put the pictures into the documentation, small."""
    copies = []
    for picture in entry.pictures:
        target = IMAGES / f"{picture.replace('/', '-')}.png"
        with Image.open(WORK / f"{picture}.png") as image:
            image.convert("RGB").quantize(COLORS).save(target, optimize=True)
        copies.append(target)
    return copies


def page(sections: list[tuple[Entry, list[Path]]], made: str) -> str:
    """Return the text of docs/gallery.md."""
    lines = [
        "# Gallery",
        "",
        "Every figure that fedsol draws, from real runs on the embedded digits (`make gallery`; "
        "[what they show](analysis.md)). The experiment `digits`: 20 clients, Dirichlet(0.1), 4 sampled in a round;"
        " seed 0 unless the command says otherwise. The data is small and easy and settings were not tuned: look "
        "at what a figure shows, not at which method is ahead.",
        "",
        f"Made by {made}.",
    ]
    for entry, pictures in sections:
        lines += ["", f"## {entry.title}", "", entry.text, "", "```sh"]
        lines += [f"fedsol {command}" for command in entry.commands]
        lines += ["```"]
        for picture in pictures:
            lines += ["", f"![{entry.title}]({picture.relative_to(PAGE.parent).as_posix()})"]
    return "\n".join(lines) + "\n"


def version() -> str:
    """Return the commit that is checked out, where git knows."""
    found = subprocess.run(["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False)
    return f"fedsol {__version__}" + (f" at commit {found.stdout.strip()}" if found.returncode == 0 else "")


def main() -> None:
    start = time.monotonic()
    IMAGES.mkdir(parents=True, exist_ok=True)
    for entry in ENTRIES:
        make(entry)
    sections = [(entry, copy_pictures(entry)) for entry in ENTRIES]
    wanted = {picture for _, pictures in sections for picture in pictures}
    for old in set(IMAGES.iterdir()) - wanted:
        old.unlink()
    PAGE.write_text(page(sections, version()), encoding="utf-8")
    busy = sum(resource.getrusage(who).ru_utime for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    print(f"{PAGE}: {len(wanted)} pictures in {time.monotonic() - start:.0f} s ({busy:.0f} s of one core)")


if __name__ == "__main__":
    if "--anew" in sys.argv:
        shutil.rmtree(WORK, ignore_errors=True)
    main()
