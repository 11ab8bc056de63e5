"""The inputs of an experiment's jobs."""

from functools import lru_cache
from pathlib import Path

from glue_bench.config import Arm, Experiment
from glue_bench.errors import UserError
from glue_bench.model.start import Start
from glue_bench.records.store import Store
from glue_bench.records.values import Cell, Job
from glue_bench.training.arm_inputs import ArmFiles, ArmInputs, FinishedInputs
from glue_bench.training.task_inputs import TaskInputs
from glue_bench.training.text_inputs import TextInputs
from glue_bench.training.tokens import TokenisedTask

MAX_CACHED_STARTS = 4  # a study may have more pretrained weights than a process has memory for


class Inputs:
    """The inputs of an experiment's jobs: tasks, text, arms, and results that cells start from.

    `folder` is the folder of the experiment's results. `arms` has the arms by name.
    """

    def __init__(self, experiment: Experiment, folder: Path) -> None:
        self.experiment = experiment
        self.store = Store(folder)
        self.tasks = TaskInputs(experiment)
        self.text = TextInputs(experiment)
        files = ArmFiles(experiment, self.tasks, self.text)
        self.arms = {arm.name: self._arm_inputs(arm, files) for arm in experiment.arms}
        self._pretrained_start = lru_cache(MAX_CACHED_STARTS)(self._read_pretrained_start)

    def _arm_inputs(self, arm: Arm, files: ArmFiles) -> ArmInputs:
        if arm.is_finished:
            return FinishedInputs(arm, files, self.experiment.tasks[0])
        return ArmInputs(arm, files)

    def arm_of(self, job: Job) -> ArmInputs:
        """Return the inputs of a job's arm; for a cell, on the task of the cell."""
        arm = self.arms[job.arm]
        return arm.on(job.task) if isinstance(job, Cell) else arm

    def changed_files(self, job: Job) -> list[str]:
        """Return the fields of a job that have digests of files which are others here and now."""
        digests = self.arm_of(job).file_digests
        if isinstance(job, Cell):
            digests["data"] = self.tasks.data(job.task).digest
        else:
            digests["corpus"] = self.text.corpus.digest
        return [name for name, digest in digests.items() if getattr(job, name) != digest]

    @property
    def first_arm(self) -> ArmInputs:
        """The arm that the experiment names first."""
        return self.arms[self.experiment.arms[0].name]

    def tokens(self, cell: Cell) -> TokenisedTask:
        """Return the tokens of a cell's task under the tokenizer of its arm.

        An evaluation reads no train split.
        """
        encoding = self.arm_of(cell).encoding(cell.settings.max_length)
        if not cell.is_trained:
            return self.tasks.tokens_without_train(cell.task, encoding)
        return self.tasks.tokens(cell.task, encoding, cell.settings.held_out_share)

    def cell_start(self, cell: Cell) -> Start:
        """Return the start of a cell: its arm, a pretraining of the arm, or an MNLI cell.

        Raises UserError if the weights are absent or damaged.
        """
        arm = self.arm_of(cell)
        start = arm.start
        if cell.pretraining is not None and cell.steps is not None:
            folder = self.store.checkpoints.at_step(cell.pretraining, cell.steps)
            record = self.store.pretraining(cell.pretraining)
            digest = (record.weights or {}).get(cell.steps) if record else None
            start = self._pretrained_start(cell.arm, folder, digest)
        if cell.mnli is None:
            return start
        source = self.store.record(cell.mnli)
        model_folder = self.store.models.find(source) if source else None
        if source is None or model_folder is None:
            raise UserError(
                f"'{cell.mnli}', which '{cell.id}' starts from, has left no model; run it again"
            )
        return arm.read_model(model_folder, source.weights, trained_from=start)

    def _read_pretrained_start(self, arm: str, folder: Path, digest: str | None) -> Start:
        return self.arms[arm].read_model(folder, digest)
