"""ONNX models with random weights, for bench/serve.py. Needs python3-onnx: /usr/bin/python3."""

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper


def save(path, nodes, inputs, outputs, weights):
    graph = helper.make_graph(
        nodes, "bench", [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", *shape]) for name, shape in inputs],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["N", *shape]) for name, shape in outputs],
        [numpy_helper.from_array(value, name) for name, value in weights])
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)]), path)


def mlp(path, width, layers, seed=0):
    """`layers` matrices of width x width, with ReLU between them: 4 width^2 bytes each."""
    random, nodes, weights = numpy.random.default_rng(seed), [], []
    for i in range(layers):
        matrix = random.standard_normal((width, width), numpy.float32) / numpy.float32(width ** 0.5)
        weights.append((f"w{i}", matrix))
        nodes.append(helper.make_node("MatMul", ["x" if i == 0 else f"r{i - 1}", f"w{i}"], [f"h{i}"], name=f"layer{i}"))
        nodes.append(helper.make_node("Relu", [f"h{i}"], [f"r{i}"]))
    save(path, nodes, [("x", [width])], [(f"r{layers - 1}", [width])], weights)


def relu(path, width):
    """One ReLU of `width` values: a model whose tensors are all that it costs."""
    save(path, [helper.make_node("Relu", ["x"], ["r0"])], [("x", [width])], [("r0", [width])], [])


def resnet50(path, pixels=224, seed=0):
    """He et al. 2016, table 1, with the batch normalizations folded: 102 MB."""
    random, nodes, weights = numpy.random.default_rng(seed), [], []

    def conv(value, channels, filters, size, stride, relu=True):
        name = f"c{len(weights)}"
        scale = numpy.float32((2 / (channels * size * size)) ** 0.5)
        weights.append((name, random.standard_normal((filters, channels, size, size), numpy.float32) * scale))
        nodes.append(helper.make_node("Conv", [value, name], [f"{name}o"], name=name, kernel_shape=[size, size],
                                      strides=[stride, stride], pads=[size // 2] * 4))
        return activate(f"{name}o") if relu else f"{name}o"

    def activate(value):
        nodes.append(helper.make_node("Relu", [value], [f"{value}r"]))
        return f"{value}r"

    value = conv("x", 3, 64, 7, 2)
    nodes.append(helper.make_node("MaxPool", [value], ["pooled"], kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1]))
    value, channels = "pooled", 64
    for stage, (blocks, width) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512))):
        for block in range(blocks):
            stride = 2 if block == 0 and stage > 0 else 1
            short = conv(value, channels, 4 * width, 1, stride, False) if block == 0 else value
            inner = conv(conv(value, channels, width, 1, 1), width, width, 3, stride)
            inner = conv(inner, width, 4 * width, 1, 1, False)
            nodes.append(helper.make_node("Add", [inner, short], [f"{inner}s"]))
            value, channels = activate(f"{inner}s"), 4 * width
    weights.append(("fc", random.standard_normal((channels, 1000), numpy.float32) / numpy.float32(channels ** 0.5)))
    nodes += [helper.make_node("GlobalAveragePool", [value], ["average"]), helper.make_node("Flatten", ["average"], ["flat"]),
              helper.make_node("MatMul", ["flat", "fc"], ["y"])]
    save(path, nodes, [("x", [3, pixels, pixels])], [("y", [1000])], weights)
