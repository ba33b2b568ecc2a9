"""From "fits the paper" to "fits my machine": parts of a system file, fitted to measurements that people have."""
