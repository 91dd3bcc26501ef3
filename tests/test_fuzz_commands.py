"""Hostile files and options as a user meets them: exit code 0 or 2, one message, never a traceback.

Every case is made from its number alone, so a failure names the case that shows it again.
"""

import json
import os
import random
import warnings
import zipfile
from contextlib import nullcontext

import numpy as np
import pytest
import typer
from PIL import Image

from fedsol import Experiment
from fedsol.config.overrides import flatten
from fedsol.core.messages import Job
from fedsol.core.randomness import one_torch_thread
from fedsol.federation.federation import build_federation
from tests.support.cli import TINY, fedsol

BASE = Experiment(
    rounds=2, data={"partition": {"clients": 8}}, client={"epochs": 1, "batch_size": 20}, engine={"kind": "local"}
)
KEYS = sorted({*flatten(BASE.model_dump())} | {"rho", "algorithm", "data", "model.options.hidden", "x.y", "client."})
TEXTS = [
    "",
    "\u202eevil",
    "café",
    "\U0001f600",
    "a\u0301\u0301\u0301",
    "ﬁ",
    "\x00",
    "../../etc",
    "x" * 3000,
    "~nobody/x",
    "a:b",
    ":",
    "\udcff",
]
VALUES = [
    "0", "-1", "1", "2", "7", "64", "2147483648", "9223372036854775807", "9223372036854775808", "-9223372036854775809",
    "0x" + "f" * 5000, "9" * 5000, "1e308", "1e-308", "nan", "-inf", "0.5", "true", "[]", "[[[1]]]", "{}", "[" * 200,
    "{a = {b = 1}}", "1979-05-27", "'fedavg'", "'scaffold'", "'dirichlet'", "'adam'", "'muon'", "'own'", "'file'",
    "'mlp'", "'slvit'", "'resnet18'", "'private'", "'median'", "'cosine'", "'body'", "16384", "1000000000",
]  # fmt: skip


def one_step(experiment, callbacks=(), out=None, resume=False):
    """Stand in for training: build all of the federation and train one client for one step."""
    with one_torch_thread():
        federation = build_federation(experiment)
        server = federation.initial_server()
        if experiment.client.epochs <= 3 and len(federation.partition[0]):
            broadcast = federation.algorithm.broadcast(server)
            federation.train(Job(0, 1, server.weights, broadcast, federation.initial_state(), work=0.01))
    raise typer.Exit


def check(*arguments):
    """Run `fedsol run` and check what a user sees."""
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", module="PIL")  # of damaged metadata, in an image whose pixels can be read
        result = fedsol("run", *arguments)
    assert not shown, (arguments, [str(warning.message) for warning in shown])
    assert result.exit_code in (0, 2), (arguments, result.exit_code, result.exception, result.output[-2000:])
    assert "Traceback" not in result.output
    assert len(result.stderr) < 20_000
    if result.exit_code == 2:
        assert "error" in result.stderr.lower()
        assert result.stderr.count("error: ") <= 1


def text_or_value(rng):
    return rng.choice(VALUES) if rng.random() < 0.8 else json.dumps(rng.choice(TEXTS), ensure_ascii=False)


def damaged(content, rng):
    """Return bytes that were cut, doubled, flipped or overwritten in one place."""
    place = rng.randrange(len(content) + 1)
    stop = min(len(content), place + rng.choice([1, 4, 50]))
    flipped = bytes(byte ^ (1 << rng.randrange(8)) for byte in content[place:stop])
    middle = rng.choice([b"", flipped, content[place:stop] * 2, b"\xff\xfe", "\u202e".encode(), b"\0" * 9, b"9" * 30])
    return content[:place] if rng.random() < 0.3 else content[:place] + middle + content[stop:]


def try_toml(rng, folder):
    lines = BASE.to_toml().split("\n")
    for _ in range(rng.randint(1, 3)):
        place = rng.randrange(len(lines))
        key = lines[place].split(" = ")[0]
        lines[place] = (
            f"{key} = {text_or_value(rng)}" if " = " in lines[place] else rng.choice([f"[{key}]", "[data]", ""])
        )
    content = "\n".join(lines).encode("utf-8", "surrogatepass")
    (folder / "one.toml").write_bytes(damaged(content, rng) if rng.random() < 0.4 else content)
    check(folder / "one.toml")


def try_set(rng, folder):
    changes = []
    for _ in range(rng.randint(1, 3)):
        key = rng.choice(KEYS)
        key = key if rng.random() < 0.8 else key.replace(rng.choice(key), rng.choice(["", "ß", ".", "\u202e"]))
        changes += ["--set", f"{key}={rng.choice(TEXTS) if rng.random() < 0.2 else text_or_value(rng)}"]
    check(*TINY, *changes)


def odd_array(rng, count):
    shape = rng.choice(
        [(count, 8, 8), (count, 8, 8, 3), (count, 3, 8, 8), (count, 5), (count,), (count, 0), (), (count, 1)]
    )
    kind = rng.choice(["u1", "u1", "f4", "f8", "f2", "i4", "i8", "?", "c8", "U3", "S3", "M8[s]", ">f8", ">i2", "O"])
    numbers = np.random.default_rng(rng.randrange(10**6)).integers(0, 4, shape)
    array = numbers.astype(kind)
    if kind in ("f4", "f8") and array.size and rng.random() < 0.4:
        array.flat[rng.randrange(array.size)] = rng.choice([np.nan, np.inf, 3e38])
    return array


def try_npz(rng, folder):
    labels = np.arange(40) % 3
    arrays = {"x_train": np.zeros((40, 5), np.float32), "y_train": labels, "clients_train": labels}
    for name in rng.sample(
        ["x_train", "y_train", "x_test", "y_test", "clients_train", "z", "train_images"], rng.randint(0, 3)
    ):
        arrays[name] = odd_array(rng, rng.choice([40, 40, 39, 1, 0]))
    path = folder / "own.npz"
    np.savez(path, allow_pickle=True, **arrays)
    what = rng.random()
    if what < 0.3:
        path.write_bytes(damaged(path.read_bytes(), rng))
    elif what < 0.4:
        content = bytearray(path.read_bytes())
        for magic, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
            content[content.find(magic) + offset] |= 1  # encrypted, says the header
        path.write_bytes(bytes(content))
    elif what < 0.5:
        with zipfile.ZipFile(path, "a") as archive:
            name = rng.choice(["notes.txt", "x_train.npy", "../up.npy", "café.npy"])
            warned = pytest.warns(UserWarning, match="Duplicate") if name in archive.namelist() else nullcontext()
            with warned:
                archive.writestr(name, rng.randbytes(50))
    options = ["--set", f"data.name={path}", "--set", f"data.partition.kind={rng.choice(['iid', 'own', 'dirichlet'])}"]
    options += ["--set", "data.test_fraction=0.3"] if rng.random() < 0.7 else []
    check(*TINY, *options, "--set", "data.partition.min_size=1")


ODD_VALUES = [
    "",
    "nan",
    "inf",
    "1e400",
    "9" * 20,
    "None",
    '"',
    ",",
    ";",
    "\n",
    "\r",
    "\0",
    "é",
    "2024-01-01",
    "1,5",
    "\ufeff",
]


def try_table(rng, folder):
    rows = [
        ["age", "sex", "place", "ill"],
        *([str(n % 7), "fm"[n % 2], "ns"[n % 3 // 2], "yn"[n % 2]] for n in range(24)),
    ]
    for _ in range(rng.randint(0, 4)):
        row, column, value = rng.randrange(len(rows)), rng.randrange(4), rng.choice(ODD_VALUES)
        for changed in rng.choice([rows[row : row + 1], rows[1:], rows[1::2]]):
            changed[column] = value
    path = folder / "own.csv"
    content = "\n".join(",".join(row) for row in rows).encode()
    path.write_bytes(damaged(content, rng) if rng.random() < 0.3 else content)
    options = [
        f"data.name={path}",
        f"data.target={rng.choice(['ill', 'ill', 'age', 'x', '[]'])}",
        "data.test_fraction=0.3",
    ]
    options += [f"task.kind={rng.choice(['classification', 'regression', 'multilabel', 'segmentation'])}"]
    options += [f"data.client={rng.choice(['place', 'place', 'sex', 'y'])}"]
    options += [f"data.missing={rng.choice(['refuse', 'mean', 'median', 'x'])}", "algorithm.name=fedavg"]
    check(*(part for option in options for part in ("--set", option)), *TINY[2:6])


def try_partition(rng, folder):
    odd = [-1, 10**30, 1.5, True, None, "0", [], {}, 1e400, 10**18, 2**63]
    clients = [list(range(start, 1000, 8)) for start in range(8)]
    for _ in range(rng.randint(0, 3)):
        client = rng.randrange(8)
        samples = list(range(client, 1000, 8))
        clients[client] = rng.choice([[*samples, rng.choice(odd)], rng.choice(odd), clients[0], samples[:1]])
    content = rng.choice(
        [
            clients,
            {"clients": clients},
            {"clients": dict(zip(TEXTS, clients, strict=False))},
            {"format": "fedsol-partition/1"},
        ]
    )
    text = json.dumps(content) if rng.random() < 0.9 else rng.choice(["[" * 9000, "9" * 5000, "[NaN]", '{"a":1,"a":2}'])
    path = folder / "split.json"
    path.write_bytes(damaged(text.encode(), rng) if rng.random() < 0.4 else text.encode())
    changes = ["data.partition.kind=file", f"data.partition.file={path}", "data.partition.clients=8"]
    check(*(part for change in changes for part in ("--set", change)), *TINY[:6])


def odd_image(path, rng):
    mode = rng.choice(["L", "RGB", "RGBA", "P", "1", "I", "I;16", "F", "CMYK", "LA"])
    kind = rng.choice(["png", "jpeg", "gif", "bmp", "tiff", "webp", "ppm"])
    try:
        Image.new(mode, rng.choice([(8, 8), (8, 8), (1, 9), (1, 1)])).save(path, kind)
    except (OSError, ValueError, KeyError):
        path.write_bytes(rng.choice([b"", b"text", b"\x89PNG\r\n\x1a\n", b"BM" + b"\xff" * 60, rng.randbytes(200)]))
    if rng.random() < 0.4:
        path.write_bytes(damaged(path.read_bytes(), rng))


def try_folder(rng, folder):
    names = ["cat", "dog", "café", "\U0001f600", os.fsdecode(b"\xff\xfe"), ".hidden", "a b"]
    for part in ("train", "test")[: rng.randint(1, 2)]:
        for name in rng.sample(names, rng.randint(1, 3)):
            (folder / "images" / part / name).mkdir(parents=True)
            for number in range(rng.randint(0, 4)):
                path = folder / "images" / part / name / f"{number}.png"
                Image.new("L", (8, 8), 40 * number).save(path)
                if rng.random() < 0.15:
                    odd_image(path, rng)
                elif rng.random() < 0.05:
                    path.unlink()
                    rng.choice(
                        [path.mkdir, lambda path=path: path.symlink_to("nowhere"), lambda path=path: os.mkfifo(path)]
                    )()
    options = [f"data.name={folder / 'images'}", f"data.layout={rng.choice(['class', 'class', 'client/class'])}"]
    options += [f"data.image_size={rng.choice([1, 8, 8, 16, 0, 10**12])}"] if rng.random() < 0.5 else []
    options += ["data.test_fraction=0.3"] if rng.random() < 0.5 else []
    options += ["data.partition.kind=iid", "data.partition.clients=2"]
    check(*(part for option in options for part in ("--set", option)), *TINY[2:6])


KINDS = {
    "toml": try_toml,
    "set": try_set,
    "npz": try_npz,
    "table": try_table,
    "partition": try_partition,
    "folder": try_folder,
}
CASES = 20
"""Inputs of one test."""


@pytest.mark.skipif(os.name == "nt", reason="Windows has neither pipes nor such names")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "batch", [*range(3), *(pytest.param(number, marks=pytest.mark.full) for number in range(3, 25))]
)
def test_hostile_input_is_refused_in_one_message(kind, batch, tmp_path, monkeypatch):
    monkeypatch.setattr("fedsol.training.loop.train", one_step)
    monkeypatch.chdir(tmp_path)
    for number in range(batch * CASES, (batch + 1) * CASES):
        folder = tmp_path / str(number)
        folder.mkdir()
        KINDS[kind](random.Random(f"{kind} {number}"), folder)
