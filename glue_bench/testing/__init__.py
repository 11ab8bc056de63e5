"""For authors of variants: the contract that every variant meets, and the tiny encoders on which it is checked.

`check_contract("my-variant")` raises `ContractError` with the first of `CLAUSES` that the variant breaks, once it is in
`VARIANTS`, where `load_plugins` puts it. `tokens` and `segments` make inputs (batch, length) for a `random_model` of an
`encoder_config`, in which any variant can be looked at.
"""

from glue_bench.testing.clauses import CLAUSES
from glue_bench.testing.contract import ContractError, check_clause, check_contract
from glue_bench.testing.plugins import load_plugins
from glue_bench.testing.tiny import encoder_config, random_model, segments, tokens

__all__ = [
    "CLAUSES",
    "ContractError",
    "check_clause",
    "check_contract",
    "encoder_config",
    "load_plugins",
    "random_model",
    "segments",
    "tokens",
]
