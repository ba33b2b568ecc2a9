"""Names of activations in the list of layers."""

ACTIVATIONS = {
    "gelu": "GeLU",
    "relu": "ReLU",
    "squared_relu": "ReLU2",
    "swiglu": "SwiGLU",
    "geglu": "GeGLU",
}
"""Names of activations in the list of layers."""
