"""Input files: models, systems and executions, decoded into frozen records in SI units."""
