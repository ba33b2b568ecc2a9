"""What the user wrote: model, system and execution files, decoded into frozen records in SI units."""
