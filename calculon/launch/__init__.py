"""Launch scripts and configurations of frameworks, in and out: nothing is executed, nothing is silently dropped."""
