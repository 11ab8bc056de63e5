"""The names of devices and of precisions that a run may ask for."""

from glue_bench.errors import UserError

AUTO = "auto"
DEVICES = (AUTO, "cpu", "cuda", "mps")
PRECISIONS = (AUTO, "float32", "bf16")


def check_machine(device: str, precision: str) -> None:
    """Raise UserError for a device or a precision that has another name."""
    if device not in DEVICES:
        raise UserError(f"device '{device}' is none of {', '.join(DEVICES)}")
    if precision not in PRECISIONS:
        raise UserError(f"precision '{precision}' is none of {', '.join(PRECISIONS)}")
