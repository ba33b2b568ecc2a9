"""Fields of models, systems and executions, decoded from files into frozen records in SI units; statistics; presets."""
