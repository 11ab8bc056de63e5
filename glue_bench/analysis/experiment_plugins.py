"""The plugins of an experiment whose encoders are measured: its user's own files, by their content.

A folder of results may come from anyone, so that no file in it is run unasked. A file elsewhere
with the content that the plan names is one that its user has run before.
"""

import glob
import hashlib
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePath

from glue_bench.errors import UserError
from glue_bench.files import read_file
from glue_bench.model.plugins import add_plugins, plugin_digest
from glue_bench.model.variants import VARIANTS
from glue_bench.records.plugin_files import find_plugin
from glue_bench.records.store import Store
from glue_bench.records.values import Plan, Pretraining


def load_plugins_of(plan: Plan, store: Store, name: str) -> None:
    """Load the plugins of an experiment's pretrainings that are not loaded yet.

    A plan has the names of their files. The files are looked for in the present folder and in the
    folders in it.

    Args:
        plan: The plan of the experiment.
        store: Its folder.
        name: What the user calls it.

    Raises:
        UserError: No file has the content of a plugin, or another file is loaded in its place. The
            message has the option that takes the text which the results keep.
    """
    names = [PurePath(place).name for place in plan.experiment.plugins]
    for job in plan.pretrainings:
        if job.plugin is None or plugin_digest(job.variant) == job.plugin:
            continue
        if job.variant in VARIANTS:
            reason = "the file that was loaded has other content"
            raise _refusal(job, reason, names, store, name)
        files = list(_files_of_user(names))
        same_files = [file for file in files if _digest(file) == job.plugin]
        if same_files:
            add_plugins(str(same_files[0]))
        elif files:
            reason = f"the file {files[0]} has other content"
            raise _refusal(job, reason, names, store, name)
        else:
            reason = f"there is no {' or '.join(names)} in {Path.cwd()}"
            raise _refusal(job, reason, names, store, name)


def _files_of_user(names: Sequence[str]) -> Iterator[Path]:
    """Yield the files of these names in the present folder and in the folders in it.

    Those in a folder of results are left out.
    """
    for name in names:
        pattern = glob.escape(name)
        for path in (*Path().glob(pattern), *sorted(Path().glob(f"*/{pattern}"))):
            folders = path.resolve().parents
            if path.is_file() and not any(Store(folder).has_plan for folder in folders):
                yield path


def _digest(file: Path) -> str | None:
    """Return the SHA-256 of a file; None if it cannot be read."""
    try:
        return hashlib.sha256(read_file(file)).hexdigest()
    except OSError:
        return None


def _refusal(
    job: Pretraining, reason: str, names: Sequence[str], store: Store, name: str
) -> UserError:
    """Make the error for a plugin that is not loaded; `names` are those of the plan's files."""
    fault = (
        f"arm '{job.arm}' of '{name}': the variant '{job.variant}' is of a plugin "
        f"(SHA-256 {job.plugin}), and {reason}"
    )
    kept = find_plugin(store.folder, str(job.plugin))
    if kept is None:
        options = " ".join(f"--plugin {file}" for file in names) or "--plugin FILE"
        return UserError(f"{fault}; give the file as it was: {options}")
    return UserError(f"{fault}; read the text that the results keep, and give it: --plugin {kept}")
