"""Laws of kernels fitted to measured kernels, and the system files that they make."""
