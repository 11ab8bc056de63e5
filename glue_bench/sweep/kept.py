"""Fine-tuned models that stay on the disk: those of all runs, or of each arm and task that of one run."""

import shutil
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import cast

from transformers import PreTrainedModel

from glue_bench import recipe as recipes
from glue_bench.files import set_aside, whole_folder, write_checksums
from glue_bench.model.cost import budget
from glue_bench.records.store import Store
from glue_bench.sweep.jobs import PlannedCell
from glue_bench.training.inputs import Inputs

Choose = Callable[[Store], Collection[str]]
"""Of the finished runs in a store, the ids of those whose models stay under `keep: best`."""


def every_run(store: Store) -> Collection[str]:
    """The choice that leaves nothing out."""
    return store.ids("records")


@dataclass(frozen=True)
class Kept:
    """The models that stay of these cells, all that an experiment asks for."""

    keep: str | None
    cells: Sequence[PlannedCell]
    store: Store
    choose: Choose

    def settle(self, ended: PlannedCell | None = None) -> None:
        """Under `keep: best`, drop the models of runs that are not chosen, once their arm has ended on their task.

        With `ended` only those of its arm and task are looked at. Until then any run may still become the chosen one.
        """
        if self.keep != "best":
            return
        runs: dict[tuple[str, str], list[str]] = {}
        for planned in self.cells:
            if ended is None or (planned.arm, planned.cell.task) == (ended.arm, ended.cell.task):
                runs.setdefault((planned.arm, planned.cell.task), []).append(planned.id)
        over = [ids for ids in runs.values() if all(self.store.state(name) != "missing" for name in ids)]
        there = [name for ids in over for name in ids if self.store.model_folder(name).is_dir()]
        for name in set(there).difference(self.choose(self.store) if there else ()):
            with suppress(OSError):
                set_aside(self.store.model_folder(name))

    def lacking(self, cells: Sequence[PlannedCell]) -> list[str]:
        """Those of these finished runs whose models are to stay and are not there.

        What an older recipe has run is not among them: nobody can train it once more.
        """
        if self.keep is None:
            return []
        wanted = self.choose(self.store) if self.keep == "best" else self.store.ids("records")
        ours = [planned.id for planned in cells if planned.id in wanted and planned.cell.recipe == recipes.RECIPE]
        return [name for name in ours if not self.store.model_folder(name).is_dir()]


def keep_encoder(planned: PlannedCell, inputs: Inputs, model: PreTrainedModel) -> None:
    """Store the encoder of a cell's fine-tuned model, for the cells that start from it."""
    # What lies there is of a run that did not live to its record.
    with whole_folder(inputs.encoder_folder(planned.cell), replaces=True) as aside:
        cast(PreTrainedModel, model.base_model).save_pretrained(aside)
        write_checksums(aside)


def keep_model(planned: PlannedCell, inputs: Inputs, model: PreTrainedModel) -> None:
    """Store a cell's fine-tuned model and its tokenizer, from which `from_pretrained` makes both again."""
    assert inputs.folder is not None, "an experiment whose models are kept needs a folder"
    # What lies there is of a run that did not live to its record.
    with whole_folder(Store(inputs.folder.parent).model_folder(planned.id), replaces=True) as aside:
        model.save_pretrained(aside)
        inputs.tokenizer(planned.cell.arm).save_pretrained(aside)
        write_checksums(aside)


def room(cells: Sequence[PlannedCell], inputs: Inputs, store: Store) -> Iterator[str]:
    """A line about the room that the models of these cells take, as far as they are still to be trained."""
    keep = inputs.experiment.finetuning.keep
    left = [planned for planned in cells if not store.has_record(planned.id)]
    if keep is None or not left:
        return
    sizes = {planned.arm: _gigabytes(planned, inputs) for planned in left}
    most = sum(sizes[planned.arm] for planned in left)
    in_the_end = sum(sizes[arm] for arm, _ in {(planned.arm, planned.cell.task) for planned in left})
    said = f"{most:.3g} GB" if keep == "all" else f"{in_the_end:.3g} GB in the end, before that up to {most:.3g} GB"
    place = next(folder for folder in (store.folder, *store.folder.absolute().parents) if folder.exists())
    free = shutil.disk_usage(place).free / 1e9
    yield f"finetuning.keep: {keep}: models take about {said}; {free:.3g} GB are free"


def _gigabytes(planned: PlannedCell, inputs: Inputs) -> float:
    start = inputs.initial(planned.cell.arm)
    known = sum(tensor.numel() for tensor in start.weights.values())
    return 4e-9 * (known or budget(start.config, planned.cell.hyperparameters.max_length)["parameters"])
