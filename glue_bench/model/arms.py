"""The variants and options that the arms of an experiment name."""

from pathlib import Path

from glue_bench.config import Experiment
from glue_bench.model.variants.options import check_variant


def check_arms(experiment: Experiment) -> None:
    """Refuse an unknown variant or option of an arm.

    This is done before a contract is checked or a checkpoint is read. The files of plugins are
    loaded for their names. Raises UserError also for a file that cannot be loaded.
    """
    if experiment.plugins:
        from glue_bench.model.plugins import load_file  # slow to import

        for path in experiment.plugins:
            load_file(Path(path).expanduser())
    for arm in experiment.arms:
        if not arm.is_published_model:
            check_variant(arm.variant, arm.options, f"arm '{arm.name}'")
