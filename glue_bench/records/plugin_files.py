"""The text of the plugins that runs have used: plugins/<SHA-256>/<name of the file>.

It is there for people to read and to give to `--plugin`. Nothing here runs it.
"""

import hashlib
import re
from pathlib import Path

from glue_bench.errors import UserError
from glue_bench.files import read_file, results_written_to, write_atomically

PLUGIN_FOLDERS = "plugins"
PLUGIN_ADVICE = "delete it and run the experiment again"
_DIGEST = re.compile(r"[0-9a-f]{64}")


def keep_plugin(folder: Path, name: str, code: bytes) -> None:
    """Write the text of a plugin into the folder of an experiment.

    Args:
        folder: The folder of the experiment.
        name: The name of the plugin's file.
        code: The content of the file.
    """
    digest = hashlib.sha256(code).hexdigest()
    safe_name = re.sub(r"[^A-Za-z0-9_.+-]", "_", name)  # a bundle has no file of another name
    if not safe_name[0].isalnum():
        safe_name = f"plugin{safe_name}"
    with results_written_to(folder):
        write_atomically(folder / PLUGIN_FOLDERS / digest / safe_name, code)


def find_plugin(folder: Path, digest: str) -> Path | None:
    """Return the file that is kept of a plugin with this SHA-256; None if none is kept.

    Raises UserError if a file in its place cannot be read, or has other content.
    """
    paths = sorted((folder / PLUGIN_FOLDERS / digest).glob("[!.]*"))
    for path in paths:
        name = path.relative_to(folder).as_posix()
        try:
            content = read_file(path)
        except OSError as error:
            raise UserError(f"{name}: {error.strerror or error}; {PLUGIN_ADVICE}") from error
        if hashlib.sha256(content).hexdigest() != digest:
            raise UserError(f"{name}: it has another SHA-256 than its folder; {PLUGIN_ADVICE}")
    return paths[0] if paths else None


def kept_digests(folder: Path) -> set[str]:
    """Return the SHA-256 of each plugin that is kept in the folder of an experiment."""
    places = (folder / PLUGIN_FOLDERS).glob("*")
    return {place.name for place in places if _DIGEST.fullmatch(place.name)}
