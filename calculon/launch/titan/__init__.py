"""torchtitan: TOML, configurations in Python and command lines."""
