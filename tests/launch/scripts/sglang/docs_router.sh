# Source: docs.sglang.io, advanced_features/server_arguments (sgl-project/sglang 004813e): data parallelism.
python -m sglang_router.launch_server --model-path meta-llama/Meta-Llama-3-8B-Instruct --dp 2 --tp 2
