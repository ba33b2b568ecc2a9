"""Model families, as described by the configuration classes of Hugging Face Transformers.

Each field of a model comes from a configuration key, from a rule over several keys, or from a constant of the family.
Defaults are the defaults of the configuration class; a key without a default common to all versions is required.
"""

from calculon.declarations.families.table import FAMILIES, INEXPRESSIBLE, OTHERS

__all__ = ["FAMILIES", "INEXPRESSIBLE", "OTHERS"]
