"""torchtitan: TOML files, Python configurations and command lines."""
