"""How the models of a card are loaded, and the file of a plugin that this takes."""

from pathlib import Path

from glue_bench.board.results import Results
from glue_bench.errors import UserError
from glue_bench.records.plugin_files import find_plugin

PLACEHOLDER = "REPOSITORY"
"""The name in a card's text that becomes the repository to which the card is sent."""
USAGE = """
```python
{imports}from transformers import AutoModelForSequenceClassification, AutoTokenizer
{plugin}
model = AutoModelForSequenceClassification.from_pretrained("{repository}"{inside})
tokenizer = AutoTokenizer.from_pretrained("{repository}"{inside})
```
"""

PLUGIN_IMPORT = "from huggingface_hub import hf_hub_download\n"
PLUGIN_USAGE = """
# The variant is code in a file of this repository. Read it before you run it.
glue_bench.load_plugins(hf_hub_download("{repository}", "{name}"))
"""


def plugin_file(results: Results, cell_id: str) -> Path | None:
    """Return the file of the variant of a run, if the variant is a plugin's.

    Raises UserError if the results have not kept it: nobody could load the models.
    """
    digest = results.finished.records[cell_id].cell.plugin
    if digest is None:
        return None
    plugin = find_plugin(results.folder, digest)
    if plugin is None:
        fault = f"'{results.folder}' has not kept the plugin of '{cell_id}'"
        advice = f"which its model needs; put it back into plugins/{digest}/"
        raise UserError(f"{fault}, {advice}")
    return plugin


def usage_text(tasks: list[str], plugin: Path | None, *, is_native: bool) -> str:
    """Show how the model of the first task is loaded. Empty if no task has a model.

    Args:
        tasks: The tasks that have a model.
        plugin: The file of the arm's variant, if it is a plugin's.
        is_native: Whether transformers alone can load the models.
    """
    if not tasks:
        return ""
    imports = "" if is_native else "import glue_bench  # lets transformers know the encoder\n"
    loading = ""
    if plugin is not None:
        imports += PLUGIN_IMPORT
        loading = PLUGIN_USAGE.format(repository=PLACEHOLDER, name=plugin.name)
    return USAGE.format(
        imports=imports,
        plugin=loading,
        repository=PLACEHOLDER,
        inside=f', subfolder="{tasks[0]}"' if len(tasks) > 1 else "",
    )
