"""Megatron-LM, and launchers with other names for its flags: Megatron-Bridge and NeMo."""
