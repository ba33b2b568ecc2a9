"""Megatron-LM, and what names its flags otherwise: Megatron-Bridge and NeMo."""
