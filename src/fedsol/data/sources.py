"""Where publishers offer the files of their datasets, and their checksums."""

from fedsol.data.types import Member, RemoteFile


def _mnist_files(base: str, *md5s: str) -> tuple[RemoteFile, ...]:
    names = [f"{part}-{kind}-ubyte.gz" for part in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]
    return tuple(RemoteFile(name, (f"{base}/{name}",), f"md5:{md5}") for name, md5 in zip(names, md5s, strict=True))


def _medmnist_file(name: str, md5: str) -> RemoteFile:
    url = f"https://zenodo.org/records/10519652/files/{name}.npz?download=1"
    return RemoteFile(f"{name}.npz", (url,), f"md5:{md5}")


CIFAR10 = (
    RemoteFile(
        name="cifar-10-binary.tar.gz",
        urls=("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
        checksum="md5:c32a1d4ab5d03f1284b67883e8d87530",
        extracts_to="cifar-10-batches-bin",
        members=(
            Member("data_batch_1.bin", 30_730_000, "md5:5dd7e06a14cb22eb9f671a540d1b7c25"),
            Member("data_batch_2.bin", 30_730_000, "md5:5ea93a67294ea407fff1d09f752e9692"),
            Member("data_batch_3.bin", 30_730_000, "md5:942cd6a4bcdd0dd3c604fbe906cb4421"),
            Member("data_batch_4.bin", 30_730_000, "md5:ae636b3ba5c66a11e91e8cb52e771fcb"),
            Member("data_batch_5.bin", 30_730_000, "md5:53f37980c15c3d472c316c40844f3f0d"),
            Member("test_batch.bin", 30_730_000, "md5:803d5f7f4d78ea53de84dbe85f74fb6d"),
        ),
    ),
)
CIFAR100 = (
    RemoteFile(
        name="cifar-100-binary.tar.gz",
        urls=("https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",),
        checksum="md5:03b5dce01913d631647c71ecec9e9cb8",
        extracts_to="cifar-100-binary",
        members=(Member("train.bin", 153_700_000), Member("test.bin", 30_740_000)),
    ),
)
CINIC10 = (
    RemoteFile(
        name="CINIC-10.tar.gz",
        urls=(
            "https://datashare.is.ed.ac.uk/bitstream/handle/10283/3192/CINIC-10.tar.gz",
            "https://datashare.ed.ac.uk/server/api/core/bitstreams/e8e186cc-2688-48f1-aa5a-3fda1a43f8b6/content",
        ),
        checksum="md5:6ee4d0c996905fe93221de577967a372",
        extracts_to="CINIC-10",
        folders=("train", "test"),
        unused=("valid",),
    ),
)
MNIST = _mnist_files(
    "https://ossci-datasets.s3.amazonaws.com/mnist",
    "f68b3c2dcbeaaa9fbdd348bbdeb94873",
    "d53e105ee54ea40749a09fcbcd1e9432",
    "9fb629c4189551a2d022fa330f9573f3",
    "ec29112dd5afa0611ce80d1b7f02629c",
)
FASHION_MNIST = _mnist_files(
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com",
    "8d4fb7e6c68d591d4c3dfef9ec88bf0d",
    "25c81989df183df01b3e8a0aad5dffbe",
    "bef4ecab320f06d8554ea6380940ec79",
    "bb300cfdad3c16e7a12a480ee83cd310",
)
SVHN = tuple(
    RemoteFile(name, (f"http://ufldl.stanford.edu/housenumbers/{name}",), f"md5:{md5}")
    for name, md5 in (
        ("train_32x32.mat", "e26dedcc434d2e4c54c9b2d4a06d8373"),
        ("test_32x32.mat", "eb5a983be6a315427106f1b164d9cef3"),
    )
)
PATHMNIST = (_medmnist_file("pathmnist", "a8b06965200029087d5bd730944a56c1"),)
TISSUEMNIST = (_medmnist_file("tissuemnist", "ebe78ee8b05294063de985d821c1c34b"),)
