"""The names of devices, of precisions and of ways to launch that a run may ask for."""

from glue_bench.errors import UserError

AUTO = "auto"
DEVICES = (AUTO, "cpu", "cuda", "mps")
PRECISIONS = (AUTO, "float32", "bf16")
GRAPHS = (AUTO, "off")


def check_machine(device: str, precision: str, graph: str = AUTO) -> None:
    """Raise UserError for a device, a precision or a way to launch that has another name."""
    if device not in DEVICES:
        raise UserError(f"device '{device}' is none of {', '.join(DEVICES)}")
    if precision not in PRECISIONS:
        raise UserError(f"precision '{precision}' is none of {', '.join(PRECISIONS)}")
    if graph not in GRAPHS:
        raise UserError(f"graph '{graph}' is none of {', '.join(GRAPHS)}")
