# Source: docs.sglang.io, advanced_features/server_arguments (sgl-project/sglang 004813e): tensor parallelism over nodes,
# node 0, with the router's command of the same page left out.
python -m sglang.launch_server \
  --model-path meta-llama/Meta-Llama-3-8B-Instruct \
  --tp 4 \
  --dist-init-addr sgl-dev-0:50000 \
  --nnodes 2 \
  --node-rank 0
