"""Serving engines: the options of vLLM, SGLang and TensorRT-LLM as deployments, and back."""
