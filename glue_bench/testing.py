"""Hold a variant of your own to the contract, in a test, on tiny encoders with random weights.

`glue_bench.load_plugins("my_variant.py")` adds your variants. `check_contract("my-variant")` then
raises an error that names the first clause that the variant breaks.
"""

from glue_bench.model.contract import CLAUSES, ContractError, check_contract
from glue_bench.model.tiny import encoder_config, random_model, tokens

__all__ = ["CLAUSES", "ContractError", "check_contract", "encoder_config", "random_model", "tokens"]
