"""Downloads: verified before they get their final name, and refused when they are not what was expected.

The environment variable `FEDSOL_MIRROR` names a base address (http or https) to use instead of the
publishers', for machines behind a firewall: a file is then looked for at `<FEDSOL_MIRROR>/<dataset>/<file
name>`.
"""

import os
from pathlib import Path

from fedsol.data.progress import download_bar
from fedsol.data.specs import RemoteFile
from fedsol.errors import InputError

MIRROR_VARIABLE = "FEDSOL_MIRROR"
CHUNK = 1 << 18
TIMEOUT_SECONDS = 30


def addresses(remote: RemoteFile, dataset: str) -> tuple[str, ...]:
    """Where to get the file: the mirror alone if there is one, else the publisher's addresses."""
    mirror = os.environ.get(MIRROR_VARIABLE, "").strip()
    if not mirror:
        return remote.urls
    if not mirror.startswith(("http://", "https://")):
        raise InputError(f"{MIRROR_VARIABLE}: {mirror!r} must start with http:// or https://")
    return (f"{mirror.rstrip('/')}/{dataset}/{remote.name}",)


def download(remote: RemoteFile, dataset: str, path: Path) -> None:
    """Download a file to `path`; nothing is ever there but a complete file with the right checksum."""
    urls = addresses(remote, dataset)
    failures = []
    for url in urls:
        failure = _attempt(url, remote.checksum, path)
        if failure is None:
            return
        failures.append(f"{url}: {failure}")
    raise InputError(
        f"{dataset}: {remote.name} could not be downloaded ({'; '.join(failures)}). "
        f"Check the connection and try again, or get {urls[0]} by other means and put it at {path}"
    )


def _attempt(url: str, checksum: str, path: Path) -> str | None:
    """Try one address; what went wrong, or None."""
    import pooch

    pooch.get_logger().setLevel("WARNING")  # the progress bar says the rest
    from requests.exceptions import RequestException

    with download_bar(path.name) as bar:
        # Without this header a server may recompress, and what arrives would not be the published bytes.
        downloader = pooch.HTTPDownloader(
            progressbar=bar,
            chunk_size=CHUNK,
            timeout=TIMEOUT_SECONDS,
            headers={"Accept-Encoding": "identity"},
        )
        try:
            pooch.retrieve(url, known_hash=checksum, fname=path.name, path=path.parent, downloader=downloader)
        except RequestException as error:
            return _reason(error)
        except ValueError:
            return f"what arrived does not have the checksum {checksum} and was deleted"
        except OSError as error:
            raise InputError(f"{path}: cannot be written: {error.strerror or error}") from error
    return None


def _reason(error: BaseException) -> str:
    """The innermost of nested network errors, which is the part a person can act on."""
    while error.__context__ is not None:
        error = error.__context__
    return str(error) or type(error).__name__
