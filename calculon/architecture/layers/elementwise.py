"""Elementwise operators: sums, forks, dropout, softmax and rotary embeddings, all bound by memory."""

from calculon.architecture.layer import Flags, Layer, Number, operator, pointwise


def residual_sum(name: str, elements: Number, *, dtype_bytes: float, flags: Flags) -> Layer:
    """Sum of two tensors of equal size: one FLOP per element forward, two backward.

    Source: Isaev et al., *Calculon*, SC'23, doi:10.1145/3581784.3607102.
    """
    return operator(
        name,
        "sum",
        (elements, 2 * elements, 0.0),
        inputs=2 * elements,
        outputs=elements,
        saved=2 * elements,
        grad=elements,
        dtype_bytes=dtype_bytes,
        flags=flags,
    )


def added_bias(
    name: str, elements: Number, *, followed: bool, dtype_bytes: float, flags: Flags
) -> Layer:
    """Add one vector to every token, in place; `followed` by an elementwise operator, it can be joined to that."""
    return Layer(
        name=name,
        kernel="bias" if followed else "add",
        flops=(elements, 0.0, 0.0),
        accessed=(2 * dtype_bytes * elements, 0.0, 0.0),
        inputs=elements,
        outputs=elements,
        output_bytes=dtype_bytes * elements,
        flags=flags,
    )


def fork(name: str, elements: Number, users: int, *, dtype_bytes: float, flags: Flags) -> Layer:
    """Hand one tensor to several layers: nothing forward, one sum per user backward.

    Source: Isaev et al., *Calculon*, SC'23, doi:10.1145/3581784.3607102.
    """
    return Layer(
        name=name,
        kernel="fork",
        flops=(0.0, users * elements, 0.0),
        accessed=(0.0, dtype_bytes * elements * (users + 1), 0.0),
        inputs=elements,
        activation=dtype_bytes * elements,
        flags=flags,
    )


def dropout(
    name: str, elements: Number, *, grad_bytes: float, dtype_bytes: float, flags: Flags
) -> Layer:
    """Dropout: one FLOP per element and pass; saves a mask of one byte per element.

    `grad_bytes` is the size of one element of the gradient.

    Source: Srivastava et al., *Dropout*, JMLR 15, 2014; its mask: Korthikanti et al., arXiv 2205.05198, section 4.1.
    """
    return pointwise(
        name,
        "dropout",
        (elements, elements),
        elements,
        mask_bytes=elements,
        activation=elements,
        activation_grad=grad_bytes * elements,
        dtype_bytes=dtype_bytes,
        flags=flags,
    )


def gate(name: str, elements: Number, *, dtype_bytes: float, flags: Flags) -> Layer:
    """Scale a tensor by the sigmoid of another: 5 FLOP per element forward, 8 backward; saves both.

    The backward pass computes the sigmoid again. Source: Qiu et al., *Gated Attention*, arXiv 2505.06708, equation 5;
    Megatron-LM, ``core/transformer/attention.py``, ``--attention-output-gate``: one kernel of both.
    """
    return pointwise(
        name,
        "gate",
        (5 * elements, 8 * elements),
        elements,
        inputs=2 * elements,
        activation=2 * dtype_bytes * elements,
        activation_grad=dtype_bytes * elements,
        input_grad=True,
        dtype_bytes=dtype_bytes,
        flags=flags,
    )


def softmax(
    name: str, elements: Number, *, input_grad: bool = False, dtype_bytes: float, flags: Flags
) -> Layer:
    """Softmax: 5 FLOP per element forward, 8 backward; saves its output in place of its input.

    Source: Isaev et al., *Calculon*, SC'23, doi:10.1145/3581784.3607102.
    """
    return pointwise(
        name,
        "softmax",
        (5 * elements, 8 * elements),
        elements,
        activation=dtype_bytes * elements,
        activation_grad=dtype_bytes * elements,
        input_grad=input_grad,
        dtype_bytes=dtype_bytes,
        flags=flags,
    )


def rotary(name: str, elements: Number, *, dtype_bytes: float, flags: Flags) -> Layer:
    """Turn pairs of elements of queries and keys by an angle: 6 FLOP each per pass; nothing is saved.

    Source: Su et al., *RoFormer*, arXiv 2104.09864, equation 34; its backward pass turns back.
    """
    return pointwise(
        name,
        "rotary",
        (6 * elements, 6 * elements),
        elements,
        activation_grad=dtype_bytes * elements,
        dtype_bytes=dtype_bytes,
        flags=flags,
    )
