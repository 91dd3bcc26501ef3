"""Make docs/gallery.md: every figure from real runs of the quick start on embedded data, each with its command.

What is in runs/gallery already is used again: runs and sweeps resume where they stopped, pictures are not made again.
Start anew with `rm -r runs/gallery`.
"""

import resource
import shutil
import subprocess
import sys
import textwrap
import time
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from fedsol import __version__
from fedsol.cli.app import app

WORK = Path("runs/gallery")
IMAGES = Path("docs/images/gallery")
PAGE = Path("docs/gallery.md")
WIDTH = 100
COLORS = 160
"""Pictures are stored with a palette: half the size, and no difference to see."""

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
        f"run quickstart --algorithm {name} --analyze divergence,preservation,strength,orthogonality "
        f"--out runs/gallery/{name}"
    )


ENTRIES = (
    Entry(
        "Learning curves, with bands over seeds",
        "Mean and standard deviation of the test accuracy over three seeds.",
        (
            "compare quickstart -a fedavg,fedsol --seeds 0,1,2 --jobs 2 --out runs/gallery/compare",
            "analyze runs/gallery/compare --what curves --out runs/gallery/compare-figures",
        ),
        ("compare-figures/curves",),
    ),
    Entry(
        "Who has which classes",
        "The paper's two ways to split data, for ten clients: two shards of sorted labels each, and Dirichlet(0.1).",
        (
            "partition quickstart --set data.partition.clients=10 --out runs/gallery/sharding",
            "partition quickstart --set data.partition.clients=10 --set data.partition.kind=dirichlet "
            "--set data.partition.alpha=0.1 --out runs/gallery/dirichlet",
        ),
        ("sharding/partition", "dirichlet/partition"),
    ),
    Entry(
        "The runs behind the figures below",
        "Three methods with the quick start's settings, 30 rounds each. Four analyses are recorded in every round.",
        (trained("fedavg"), trained("fedasam"), trained("fedsol")),
        (),
    ),
    Entry(
        "Orthogonality by rho",
        "One round of local training from FedSOL's global model, done again with four strengths (0 is FedAvg): the "
        "cosine of the update `g_u` and the proximal gradient `g_p`, and the proximal loss. Bands are standard "
        "deviations over the clients of the round. In the first steps a larger rho brings the angle closer to 90 "
        "degrees. Later the angle hardly differs, but the proximal loss does: the larger rho is, the closer the "
        "client's answers stay to the global model's.",
        ("analyze runs/gallery/fedsol --what orthogonality --out runs/gallery/one-run",),
        ("one-run/orthogonality",),
    ),
    Entry(
        "Orthogonality by method, and over rounds",
        "The same for three methods, each in its own run; below, the first client of every round. FedASAM, which "
        "perturbs along the local gradient, moves as far from the global model's answers as FedAvg, or farther.",
        (f"analyze {THREE} --what orthogonality --out runs/gallery/methods",),
        ("methods/orthogonality", "methods/orthogonality-rounds"),
    ),
    Entry(
        "Weight divergence",
        "How far local training moves clients from the global model and from each other, over rounds and by layer. "
        "FedSOL's clients move less, and the difference is largest in the head, which is what it perturbs.",
        (f"analyze {TWO} --what divergence --out runs/gallery/methods",),
        ("methods/divergence",),
    ),
    Entry(
        "Preservation of knowledge, and forgetting",
        "Accuracy on the global test set before and after local training (bands: spread over clients), for classes "
        "that a client holds and those it does not; the global model's accuracy by class and round; and how much of "
        "each class's best is lost. Both methods learn a client's own classes equally well. FedSOL keeps far more of "
        "the others.",
        (f"analyze {TWO} --what preservation --out runs/gallery/methods",),
        ("methods/preservation", "methods/forgetting"),
    ),
    Entry(
        "Adaptive strength by layer",
        "Mean Lambda (equation 7), the same without the effect of how many weights share a norm, and how far each "
        "layer moved. Lambda hardly differs between the methods, because it compares weights of one layer with each "
        "other. How far a layer moves does differ.",
        (f"analyze {TWO} --what strength --out runs/gallery/methods",),
        ("methods/strength",),
    ),
    Entry(
        "Loss landscape",
        "The loss of the global models over the top two eigenvectors of the Hessian, with lambda_1, lambda_5 and their "
        "ratio. A smaller lambda_1 means a flatter loss: here it is FedSOL's.",
        (f"analyze {THREE} --what landscape --out runs/gallery/methods",),
        ("methods/landscape",),
    ),
    Entry(
        "Cost of a local step",
        "FLOPs, time and peak memory of the methods that the paper compares and of personal ones, on the quick start's "
        "model; `fedsol analyze cifar10 --what cost` measures the paper's CNN. “Two whole passes” is how the paper "
        "counts: FedSOL's head perturbation shares one pass here.",
        ("analyze quickstart --what cost --repetitions 100 --out runs/gallery/cost",),
        ("cost/cost",),
    ),
    Entry(
        "The toy example",
        "Two weights, one local minimum: FedProx turns toward the direction of greater curvature, FedSOL keeps the "
        "direction of the minimum and ends nearer to the anchor by rho. Crosses are the paper's formulas.",
        ("analyze --what toy --out runs/gallery/toy",),
        ("toy/toy",),
    ),
    Entry(
        "Sweep over one number",
        "The share of clients that take part in a round. Learning rate, local epochs and any other key can be "
        "swept in the same way; a sweep over two numbers is a heat map.",
        (
            "sweep quickstart --grid algorithm.name=fedavg,fedsol --grid server.fraction=0.05,0.1,0.2 "
            "--set rounds=10 --seeds 0,1 --out runs/gallery/sweep-fraction",
        ),
        ("sweep-fraction/sweep",),
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


def typed(command: str) -> list[str]:
    """Return the lines in which a command is typed: broken where an option begins."""
    lines = ["fedsol"]
    for part in command.replace(" --", "\0--").split("\0"):
        if len(lines[-1]) + len(part) + 3 > WIDTH:
            lines[-1] += " \\"
            lines.append("   ")
        lines[-1] += f" {part}"
    return lines


def page(sections: list[tuple[Entry, list[Path]]], made: str) -> str:
    """Return the text of docs/gallery.md."""
    intro = (
        "The figures that fedsol draws, from real runs on embedded data (`make gallery`; [what they "
        "show](analysis.md)). The experiment is the quick start: small images of clothes, 100 clients with two shards "
        "each, 10 sampled in a round. It runs for 30 rounds with seed 0 unless the command says otherwise. Settings "
        "were not tuned. A single seed shows what a figure looks like, not which method is ahead."
    )
    lines = ["# Gallery", "", *textwrap.wrap(intro, WIDTH), "", f"Made by {made}."]
    for entry, pictures in sections:
        lines += ["", f"## {entry.title}", "", *textwrap.wrap(entry.text, WIDTH), "", "```sh"]
        lines += [line for command in entry.commands for line in typed(command)]
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
