"""Replay of a scheduler: continuous batching of stated requests, pass by pass, with latencies of every request."""
