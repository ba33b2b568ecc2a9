# Source: tutu329/server-install, ds-v3-671b-8.sh, 2025; settings only.
export CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7
python -m sglang.launch_server --served-model-name=ds-v3 --model-path=/models/DeepSeek-V3-0324 \
--enable-p2p-check --trust-remote-code --host=0.0.0.0 --port=28001 \
--mem-fraction-static=0.9 \
--random-seed=446369220 \
--tp=8 --max-total-tokens=65000 --max-running-requests=64
