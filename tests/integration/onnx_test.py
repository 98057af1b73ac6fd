#!/usr/bin/env python3
"""Operators and models of ONNX on the engine, beside NumPy in double precision.

Models are made by onnx.helper with weights from a seed. The program onnx_run computes them with the operators of
programs/serve/engine; evaluate() below is the reference, written from the operators' specification.
"""

import math
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

try:
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

SEED = 20240607
TOLERANCE = 1e-4
ROWS_MAX = 5


# ---- The reference: every value has all rows in its first dimension ----

def matmul(x, attributes, a, b):
    return np.matmul(a, b)


def gemm(x, attributes, a, b, c=0.0):
    a = a.T if attributes.get("transA", 0) else a
    b = b.T if attributes.get("transB", 0) else b
    return attributes.get("alpha", 1.0) * (a @ b) + attributes.get("beta", 1.0) * c


def padding(attributes, size, kernel):
    """Strides, dilations, and pads [(begin, end), (begin, end)]."""
    strides = attributes.get("strides", [1, 1])
    dilations = attributes.get("dilations", [1, 1])
    given = attributes.get("pads", [0, 0, 0, 0])
    pads = [(given[i], given[i + 2]) for i in range(2)]
    auto_pad = attributes.get("auto_pad", b"NOTSET").decode()
    if auto_pad == "VALID":
        pads = [(0, 0), (0, 0)]
    elif auto_pad.startswith("SAME"):
        for i in range(2):
            out = -(-size[i] // strides[i])
            total = max(0, (out - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 - size[i])
            more, less = (total + 1) // 2, total // 2
            pads[i] = (less, more) if auto_pad == "SAME_UPPER" else (more, less)
    return strides, dilations, pads


def windows(x, attributes, kernel, fill):
    """[N, C, out, out, kernel, kernel]: the elements of each window."""
    size = x.shape[2:]
    strides, dilations, pads = padding(attributes, size, kernel)
    extra, counts = [0, 0], []
    for i in range(2):
        room = size[i] + sum(pads[i]) - (kernel[i] - 1) * dilations[i] - 1
        count = room // strides[i] + 1
        if attributes.get("ceil_mode", 0) and room % strides[i] and count * strides[i] < size[i] + pads[i][0]:
            extra[i] = count * strides[i] - room
            count += 1
        counts.append(count)
    wide = np.pad(x, [(0, 0), (0, 0), (pads[0][0], pads[0][1] + extra[0]), (pads[1][0], pads[1][1] + extra[1])],
                  constant_values=fill)
    out = np.empty(x.shape[:2] + tuple(counts) + tuple(kernel))
    for y in range(counts[0]):
        for z in range(counts[1]):
            for i in range(kernel[0]):
                for j in range(kernel[1]):
                    out[:, :, y, z, i, j] = wide[:, :, y * strides[0] + i * dilations[0],
                                                 z * strides[1] + j * dilations[1]]
    return out


def conv(x, attributes, data, filters, bias=None):
    groups = attributes.get("group", 1)
    columns = windows(data, attributes, filters.shape[2:], 0.0)
    inputs, outputs = data.shape[1] // groups, filters.shape[0] // groups
    parts = [np.einsum("ncyxij,fcij->nfyx", columns[:, g * inputs:(g + 1) * inputs],
                       filters[g * outputs:(g + 1) * outputs], optimize=True) for g in range(groups)]
    out = np.concatenate(parts, axis=1)
    return out if bias is None else out + bias[:, None, None]


def conv_transpose(x, attributes, data, filters, bias=None):
    groups, strides = attributes.get("group", 1), attributes.get("strides", [1, 1])
    dilations, more = attributes.get("dilations", [1, 1]), attributes.get("output_padding", [0, 0])
    pads, kernel = attributes.get("pads", [0, 0, 0, 0]), filters.shape[2:]
    whole = [(data.shape[2 + i] - 1) * strides[i] + (kernel[i] - 1) * dilations[i] + 1 + more[i] for i in range(2)]
    out = np.zeros((len(data), filters.shape[1] * groups, *whole))
    inputs, outputs = data.shape[1] // groups, filters.shape[1]
    for g in range(groups):
        for i in range(kernel[0]):
            for j in range(kernel[1]):
                part = np.einsum("ncyx,cf->nfyx", data[:, g * inputs:(g + 1) * inputs], filters[g * inputs:(g + 1) * inputs, :, i, j])
                y, z = i * dilations[0], j * dilations[1]
                out[:, g * outputs:(g + 1) * outputs, y:y + (data.shape[2] - 1) * strides[0] + 1:strides[0],
                    z:z + (data.shape[3] - 1) * strides[1] + 1:strides[1]] += part
    out = out[:, :, pads[0]:whole[0] - pads[2], pads[1]:whole[1] - pads[3]]
    return out if bias is None else out + bias[:, None, None]


def resize(x, attributes, data, roi=None, scales=None, sizes=None):
    mode, place = attributes.get("mode", b"nearest"), attributes.get("coordinate_transformation_mode", b"half_pixel")
    for axis in (2, 3):
        before = data.shape[axis]
        after = int(sizes[axis]) if scales is None else int(np.floor(before * scales[axis]))
        scale = after / before if scales is None else scales[axis]
        i = np.arange(after, dtype=np.float64)
        at = {b"half_pixel": (i + 0.5) / scale - 0.5, b"asymmetric": i / scale,
              b"pytorch_half_pixel": (i + 0.5) / scale - 0.5 if after > 1 else 0 * i,
              b"align_corners": i * (before - 1) / (after - 1) if after > 1 else 0 * i}[place]
        if mode == b"nearest":
            rounded = {b"round_prefer_floor": np.ceil(at - 0.5), b"round_prefer_ceil": np.floor(at + 0.5), b"floor": np.floor(at),
                       b"ceil": np.ceil(at)}[attributes.get("nearest_mode", b"round_prefer_floor")]
            data = np.take(data, np.clip(rounded, 0, before - 1).astype(int), axis)
        else:
            at = np.clip(at, 0, before - 1)
            low = np.floor(at).astype(int)
            weight = (at - low).reshape([-1, 1] if axis == 2 else [-1])
            data = np.take(data, low, axis) * (1 - weight) + np.take(data, np.minimum(low + 1, before - 1), axis) * weight
    return data


def recurrent(x, attributes, data, w, r, b=None, lengths=None, h=None, c=None):
    """LSTM, or GRU with linear_before_reset."""
    hidden, lane_first = r.shape[2], attributes.get("layout", 0)
    data = data.swapaxes(0, 1) if lane_first else data
    gates, count = r.shape[1] // hidden, len(w)
    states = [None if s is None else s.swapaxes(0, 1) if lane_first else s for s in (h, c)]
    sigmoid = lambda v: 1 / (1 + np.exp(-v))  # noqa: E731
    ys, hs, cs = [], [], []
    for d in range(count):
        state, cell = (np.zeros((data.shape[1], hidden)) if s is None else s[d] for s in states)
        bias = np.zeros(2 * gates * hidden) if b is None else b[d]
        y = np.empty((len(data), data.shape[1], hidden))
        backward = d == 1 or attributes.get("direction") == b"reverse"
        for t in range(len(data))[::-1 if backward else 1]:
            of_x = np.split(data[t] @ w[d].T + bias[:gates * hidden], gates, axis=1)
            of_h = np.split(state @ r[d].T + bias[gates * hidden:], gates, axis=1)
            if gates == 4:
                i, o, f, g = (p + q for p, q in zip(of_x, of_h))
                cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
                state = sigmoid(o) * np.tanh(cell)
            else:
                update, reset = sigmoid(of_x[0] + of_h[0]), sigmoid(of_x[1] + of_h[1])
                state = (1 - update) * np.tanh(of_x[2] + reset * of_h[2]) + update * state
            y[t] = state
        ys.append(y)
        hs.append(state)
        cs.append(cell)
    y, h, c = np.stack(ys, 1), np.stack(hs), np.stack(cs)
    if lane_first:
        y, h, c = y.transpose(2, 0, 1, 3), h.swapaxes(0, 1), c.swapaxes(0, 1)
    return (y, h, c) if gates == 4 else (y, h)


def max_pool(x, attributes, data):
    return windows(data, attributes, attributes["kernel_shape"], -np.inf).max(axis=(4, 5))


def average_pool(x, attributes, data):
    kernel = attributes["kernel_shape"]
    sums = windows(data, attributes, kernel, 0.0).sum(axis=(4, 5))
    ones = np.ones_like(data)
    if attributes.get("count_include_pad", 0):
        _, _, pads = padding(attributes, data.shape[2:], kernel)
        ones = np.pad(ones, [(0, 0), (0, 0)] + pads, constant_values=1.0)
        attributes = {**attributes, "pads": [0, 0, 0, 0], "auto_pad": b"NOTSET"}
        counts = windows(ones, attributes, kernel, 0.0)[:, :, :sums.shape[2], :sums.shape[3]]
        return sums / counts.sum(axis=(4, 5))
    return sums / windows(ones, attributes, kernel, 0.0).sum(axis=(4, 5))


def batch_normalization(x, attributes, data, scale, bias, mean, variance):
    shape = [1, -1] + [1] * (data.ndim - 2)
    scale, bias, mean, variance = (v.reshape(shape) for v in (scale, bias, mean, variance))
    return (data - mean) / np.sqrt(variance + attributes.get("epsilon", 1e-5)) * scale + bias


def softmax(opset, attributes, data):
    if opset >= 13:
        axes = attributes.get("axis", -1)
    else:
        axes = tuple(range(attributes.get("axis", 1) % data.ndim, data.ndim))
    e = np.exp(data - data.max(axis=axes, keepdims=True))
    return e / e.sum(axis=axes, keepdims=True)


def clip(x, attributes, data, low=None, high=None):
    low, high = attributes.get("min", low), attributes.get("max", high)
    data = data if low is None else np.maximum(data, low)
    return data if high is None else np.minimum(data, high)


def flatten(x, attributes, data):
    axis = attributes.get("axis", 1) % (data.ndim + 1) if attributes.get("axis", 1) >= 0 else \
        attributes["axis"] + data.ndim
    return data.reshape(math.prod(data.shape[:axis]), -1)


def reshape(x, attributes, data, shape):
    return data.reshape([data.shape[i] if size == 0 else size for i, size in enumerate(shape)])


def squeeze(x, attributes, data, axes=None):
    axes = attributes.get("axes", axes)
    return data.squeeze(None if axes is None else tuple(axes))


def reduced(attributes, axes):
    axes = attributes.get("axes", axes)
    return {"axis": None if axes is None else tuple(int(axis) for axis in axes), "keepdims": bool(attributes.get("keepdims", 1))}


def slice_axes(x, attributes, data, starts=None, ends=None, axes=None, steps=None):
    starts, ends = attributes.get("starts", starts), attributes.get("ends", ends)
    axes = attributes.get("axes", range(len(starts)) if axes is None else axes)
    chosen = [slice(None)] * data.ndim
    for start, end, axis, step in zip(starts, ends, axes, [1] * len(starts) if steps is None else steps):
        chosen[axis] = slice(start, None if step < 0 and end < -data.shape[axis] else end, step)
    return data[tuple(chosen)]


def layer_normalization(x, attributes, data, scale, bias=0.0):
    axes = tuple(range(attributes.get("axis", -1) % data.ndim, data.ndim))
    data = data - data.mean(axis=axes, keepdims=True)
    return data / np.sqrt((data * data).mean(axis=axes, keepdims=True) + attributes.get("epsilon", 1e-5)) * scale + bias


def split(x, attributes, data, sizes=None):
    sizes, axis = attributes.get("split", sizes), attributes.get("axis", 0)
    if sizes is None:
        count = attributes["num_outputs"]
        return tuple(np.split(data, [i * -(-data.shape[axis] // count) for i in range(1, count)], axis))
    return tuple(np.split(data, np.cumsum(sizes)[:-1], axis))


def pad(x, attributes, data, pads=None, fill=None, axes=None):
    pads = attributes.get("pads", pads)
    widths = [(0, 0)] * data.ndim
    for i, axis in enumerate(range(data.ndim) if axes is None else axes):
        widths[axis] = (pads[i], pads[len(pads) // 2 + i])
    return np.pad(data, widths, constant_values=attributes.get("value", 0.0 if fill is None else fill))


OPERATORS = {
    "ConvTranspose": conv_transpose, "Resize": resize, "LSTM": recurrent, "GRU": recurrent,
    "Squeeze": squeeze, "Slice": slice_axes, "Split": split, "Pad": pad, "LayerNormalization": layer_normalization,
    "Equal": lambda x, a, v, w: v == w, "Greater": lambda x, a, v, w: v > w, "Less": lambda x, a, v, w: v < w,
    "And": lambda x, a, v, w: v & w, "Or": lambda x, a, v, w: v | w, "Not": lambda x, a, v: ~v,
    "Where": lambda x, a, c, v, w: np.where(c, v, w), "Range": lambda x, a, *v: np.arange(*v),
    "ConstantOfShape": lambda x, a, shape: np.full(shape, numpy_helper.to_array(a["value"])[0] if "value" in a else 0.0),
    "Shape": lambda x, a, v: np.int64(v.shape)[a.get("start", 0):a.get("end", v.ndim)],
    "Gather": lambda x, a, v, indices: np.take(v, indices, axis=a.get("axis", 0)),
    "Transpose": lambda x, a, v: v.transpose(a.get("perm")),
    "ReduceSum": lambda x, a, v, axes=None: v.sum(**reduced(a, axes)),
    "ReduceMean": lambda x, a, v, axes=None: v.mean(**reduced(a, axes)),
    "ReduceL2": lambda x, a, v, axes=None: np.sqrt((v * v).sum(**reduced(a, axes))),
    "Unsqueeze": lambda x, a, v, axes=None: np.expand_dims(v, tuple(a.get("axes", axes))),
    "Cast": lambda x, a, v: v.astype({1: np.float64, 6: np.int64, 7: np.int64, 9: np.bool_}[a["to"]]),
    "MatMul": matmul, "Gemm": gemm, "Conv": conv, "MaxPool": max_pool, "AveragePool": average_pool,
    "BatchNormalization": batch_normalization, "Softmax": softmax, "Clip": clip, "Flatten": flatten,
    "Reshape": reshape,
    "GlobalAveragePool": lambda x, a, v: v.mean(axis=tuple(range(2, v.ndim)), keepdims=True),
    "Relu": lambda x, a, v: np.maximum(v, 0),
    "Sqrt": lambda x, a, v: np.sqrt(v), "Exp": lambda x, a, v: np.exp(v), "Abs": lambda x, a, v: abs(v),
    "Neg": lambda x, a, v: -v, "Erf": lambda x, a, v: np.vectorize(math.erf)(v),
    "Softplus": lambda x, a, v: np.logaddexp(v, 0), "HardSwish": lambda x, a, v: v * np.clip(v / 6 + 0.5, 0, 1),
    "LeakyRelu": lambda x, a, v: np.where(v < 0, a.get("alpha", 0.01) * v, v),
    "Elu": lambda x, a, v: np.where(v < 0, a.get("alpha", 1.0) * np.expm1(v), v),
    "HardSigmoid": lambda x, a, v: np.clip(a.get("alpha", 0.2) * v + a.get("beta", 0.5), 0, 1),
    "Pow": lambda x, a, v, w: v ** w,
    "Expand": lambda x, a, v, shape: np.broadcast_to(v, np.broadcast_shapes(v.shape, tuple(shape))),
    "Sigmoid": lambda x, a, v: 1 / (1 + np.exp(-v)),
    "Tanh": lambda x, a, v: np.tanh(v),
    "Add": lambda x, a, v, w: v + w,
    "Sub": lambda x, a, v, w: v - w,
    "Mul": lambda x, a, v, w: v * w,
    "Div": lambda x, a, v, w: v / w if v.dtype == np.float64 else v // w,
    "Concat": lambda x, a, *v: np.concatenate(v, axis=a["axis"]),
    "Identity": lambda x, a, v: v,
    "Dropout": lambda x, a, v, *more: v,
}


def evaluate(model, inputs):
    """The outputs of the model, in double precision."""
    opset = model.opset_import[0].version
    values = {t.name: numpy_helper.to_array(t) for t in model.graph.initializer}
    values = {name: v.astype(np.float64) if v.dtype == np.float32 else v for name, v in values.items()}
    for info, data in zip(model.graph.input, inputs):
        values[info.name] = data.astype(np.float64)
    for node in model.graph.node:
        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        operands = [values[name] if name else None for name in node.input]
        results = OPERATORS[node.op_type](opset, attributes, *operands)
        values.update(zip(node.output, results if isinstance(results, tuple) else (results,)))
    return [values[info.name] for info in model.graph.output]


# ---- Models ----

class Builder:
    """Nodes in a row, each with an output of its own."""

    def __init__(self, *input_shapes, opset=13, rows="N", seed=SEED):
        self.random = np.random.default_rng(seed)
        self.opset = opset
        self.shapes = input_shapes
        self.rows = rows
        self.nodes, self.weights = [], []
        self.inputs = [f"in{i}" for i in range(len(input_shapes))]

    def weight(self, *shape, scale=1.0, shift=0.0):
        data = (self.random.standard_normal(shape) * scale + shift).astype(np.float32)
        return self.constant(data)

    def constant(self, data):
        name = f"w{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(data), name))
        return name

    def add(self, op_type, *inputs, **attributes):
        return self.add_many(op_type, 1, *inputs, **attributes)[0]

    def add_many(self, op_type, count, *inputs, **attributes):
        """With so many outputs."""
        outputs = [f"v{len(self.nodes)}" + (f"_{i}" if i > 0 else "") for i in range(count)]
        self.nodes.append(helper.make_node(op_type, inputs, outputs, name=f"{op_type}_{len(self.nodes)}", **attributes))
        return outputs

    def model(self, *outputs):
        graph = helper.make_graph(
            self.nodes, "graph",
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, [self.rows, *shape])
             for name, shape in zip(self.inputs, self.shapes)],
            [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs], self.weights)
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])

    def data(self, rows):
        return [self.random.standard_normal((rows, *shape)).astype(np.float32) for shape in self.shapes]


def one(op_type, shapes, weights=(), opset=13, constants=(), **attributes):
    """A model of one node: its inputs are those of the model, then weights of these shapes, then constants."""
    b = Builder(*shapes, opset=opset)
    operands = b.inputs + [b.weight(*shape) for shape in weights]
    operands += [b.constant(c) if c is not None else "" for c in constants]
    return b, b.model(b.add(op_type, *operands, **attributes))


def mlp(widths, opset=13):
    b = Builder((widths[0],), opset=opset)
    x = b.inputs[0]
    for before, width in zip(widths, widths[1:]):
        x = b.add("Gemm", x, b.weight(width, before, scale=before ** -0.5), b.weight(width), transB=1)
        x = b.add("Relu", x)
    return b, b.model(b.add("Softmax", x))


class ResNet:
    """He, Zhang, Ren, Sun: Deep Residual Learning for Image Recognition, table 1."""

    def __init__(self, blocks, has_bottleneck, size, width):
        self.b = Builder((3, size, size), opset=11)
        x = self.normalized(self.b.inputs[0], 3, width, 7, 2, True)
        x = self.b.add("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
        channels = width
        for stage, count in enumerate(blocks):
            for block in range(count):
                stride = 2 if stage > 0 and block == 0 else 1
                x, channels = self.block(x, channels, width << stage, stride, has_bottleneck)
        x = self.b.add("Flatten", self.b.add("GlobalAveragePool", x))
        x = self.b.add("Gemm", x, self.b.weight(10, channels, scale=channels ** -0.5), self.b.weight(10), transB=1)
        self.model = self.b.model(x)

    def normalized(self, x, channels, filters, kernel, stride, rectified):
        pad = kernel // 2
        weight = self.b.weight(filters, channels, kernel, kernel, scale=(channels * kernel * kernel) ** -0.5)
        x = self.b.add("Conv", x, weight, kernel_shape=[kernel, kernel], strides=[stride, stride],
                       pads=[pad, pad, pad, pad])
        variance = self.b.constant(self.b.random.uniform(0.5, 1.5, filters).astype(np.float32))
        x = self.b.add("BatchNormalization", x, self.b.weight(filters, scale=0.2, shift=1), self.b.weight(filters, scale=0.1),
                       self.b.weight(filters, scale=0.1), variance)
        return self.b.add("Relu", x) if rectified else x

    def block(self, x, channels, width, stride, has_bottleneck):
        out = width * 4 if has_bottleneck else width
        if has_bottleneck:
            y = self.normalized(x, channels, width, 1, 1, True)
            y = self.normalized(y, width, width, 3, stride, True)
            y = self.normalized(y, width, out, 1, 1, False)
        else:
            y = self.normalized(x, channels, width, 3, stride, True)
            y = self.normalized(y, width, out, 3, 1, False)
        if stride > 1 or channels != out:
            x = self.normalized(x, channels, out, 1, stride, False)
        return self.b.add("Relu", self.b.add("Add", y, x)), out


# ---- Tests ----

class Runner:
    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="onnx_test_")
        self.process = subprocess.Popen([os.path.join(os.environ["STARLING_BIN"], "onnx_run")], text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        if self.process.wait() != 0:
            raise RuntimeError("onnx_run failed")
        shutil.rmtree(self.folder)

    def run(self, model, inputs, rows, rows_max=ROWS_MAX):
        """The bytes of the outputs as f32, or the text of the error."""
        paths = [os.path.join(self.folder, name) for name in ("model", "inputs", "outputs")]
        with open(paths[0], "wb") as file:
            file.write(model.SerializeToString())
        with open(paths[1], "wb") as file:
            for data in inputs:
                file.write(data.tobytes())
        self.process.stdin.write(f"{paths[0]} {rows} {rows_max} {paths[1]} {paths[2]}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().rstrip("\n")
        return np.fromfile(paths[2], dtype=np.float32) if answer == "ok" else answer


class Operators(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.runner = Runner()

    @classmethod
    def tearDownClass(cls):
        cls.runner.close()

    def check(self, made, rows=(1, 3, 5)):
        builder, model = made
        for count in rows:
            data = builder.data(count)
            got = self.runner.run(model, data, count)
            self.assertIsInstance(got, np.ndarray, got)
            want = np.concatenate([v.ravel() for v in evaluate(model, data)])
            self.assertEqual(got.shape, want.shape)
            self.assertLess(np.max(np.abs(got - want) / np.maximum(1, np.abs(want))), TOLERANCE)

    def refused(self, made, *texts):
        builder, model = made
        answer = self.runner.run(model, builder.data(1), 1)
        self.assertIsInstance(answer, str, "accepted")
        for text in (model.graph.node[0].op_type, *texts):
            self.assertIn(text, answer)

    def test_elementwise(self):
        for op_type in ("Relu", "Sigmoid", "Tanh", "Identity", "Dropout"):
            self.check(one(op_type, [(7, 3)]))
        self.check(one("Clip", [(40,)], opset=11, constants=[np.float32(-0.5), np.float32(0.25)]))
        self.check(one("Clip", [(40,)], constants=[None, np.float32(0.25)]))
        self.check(one("Clip", [(40,)]))
        self.check(one("Dropout", [(4,)], opset=11, ratio=0.5))
        self.check(one("Dropout", [(4,)], constants=[np.float32(0.5), np.bool_(False)]))

    def test_more_functions(self):
        for op_type in ("Exp", "Erf", "Abs", "Neg", "Softplus", "HardSwish", "LeakyRelu", "Elu", "HardSigmoid"):
            self.check(one(op_type, [(7, 3)], opset=14))
        self.check(one("LeakyRelu", [(9,)], alpha=0.3))
        self.check(one("Elu", [(9,)], alpha=0.3))
        self.check(one("HardSigmoid", [(9,)], alpha=0.3, beta=0.1))
        b = Builder((5,))
        self.check((b, b.model(b.add("Sqrt", b.add("Pow", b.inputs[0], b.constant(np.float32(2)))))))
        self.refused(one("Pow", [(4,)], constants=[np.int64(2)]), "must be of float32")

    def test_layer_normalization(self):
        """As torch exports LayerNorm before opset 17, and normalize."""
        b = Builder((4, 8))
        x = b.add("Sub", b.inputs[0], b.add("ReduceMean", b.inputs[0], axes=[-1]))
        variance = b.add("ReduceMean", b.add("Pow", x, b.constant(np.float32(2))), axes=[-1])
        x = b.add("Div", x, b.add("Sqrt", b.add("Add", variance, b.constant(np.float32(1e-5)))))
        self.check((b, b.model(b.add("Add", b.add("Mul", x, b.weight(8)), b.weight(8)))))
        for rows in ("N", 3):
            b = Builder((4, 8), rows=rows)
            norm = b.add("Clip", b.add("ReduceL2", b.inputs[0], axes=[1]), b.constant(np.float32(1e-12)))
            x = b.add("Div", b.inputs[0], b.add("Expand", norm, b.add("Shape", b.inputs[0])))
            self.check((b, b.model(x)), rows=(1, 3) if rows == "N" else (3,))

    def test_expand(self):
        for shape, to in (((4, 1), [1, 4, 5]), ((1, 5), [1, 4, 1]), ((), [1]), ((3, 1, 2), [1, 1, 4, 2])):
            self.check(one("Expand", [shape], constants=[to]))
        b = Builder((4,))
        self.check((b, b.model(b.add("Add", b.inputs[0], b.add("Expand", b.weight(1, 1), b.constant([1, 4]))))))
        self.assertIn("first dimension", self.runner.run(one("Expand", [(4,)], constants=[[3, 1, 4]])[1],
                                                         [np.zeros((1, 4), np.float32)], 1))
        for to in ([2, 4], [1, 5], [0, 4], [1, -1], [1, 2 ** 62], [2 ** 31, 2 ** 31, 2 ** 31, 4]):
            self.refused(one("Expand", [(4,)], constants=[to]))
        self.refused(one("Expand", [(4,)], constants=[[1] * 9]), "at most 8 dimensions")

    def test_opsets(self):
        """What was an attribute became an input; other definitions differ in types only."""
        for opset in range(7, 26):
            b = Builder((4, 9, 9), opset=opset)
            x = b.add("Conv", b.inputs[0], b.weight(6, 4, 3, 3), b.weight(6), pads=[1, 1, 1, 1])
            old = {"spatial": 1} if opset < 9 else {}
            variance = b.constant(np.linspace(0.1, 2, 6, dtype=np.float32))
            x = b.add("BatchNormalization", x, b.weight(6), b.weight(6), b.weight(6), variance, **old)
            bounds = [b.constant(np.float32(-1)), b.constant(np.float32(1.5))]
            x = b.add("Clip", x, min=-1.0, max=1.5) if opset < 11 else b.add("Clip", x, *bounds)
            x = b.add("AveragePool", x, kernel_shape=[2, 2], **({"dilations": [2, 3]} if opset > 18 else {}))
            x = b.add("Reshape", b.add("MaxPool", x, kernel_shape=[2, 2]), b.constant([0, -1]))
            x = b.add("Unsqueeze", x, axes=[1]) if opset < 13 else b.add("Unsqueeze", x, b.constant([1]))
            x = b.add("Squeeze", x, axes=[1]) if opset < 13 else b.add("Squeeze", x, b.constant([1]))
            x = b.add("Dropout", b.add("Relu", b.add("Flatten", x)), **({"ratio": 0.5} if opset < 12 else {}))
            self.check((b, b.model(b.add("Softmax", x))))
        self.refused(one("BatchNormalization", [(6, 2)], [(6, 2)] * 4, opset=7, spatial=0), "spatial 1")
        self.refused(one("Clip", [(4,)], constants=[np.float32(1)], opset=13, max=2.0), "not both")
        builder, model = one("Relu", [(4,)], opset=26)
        self.assertIn("opset 26: supported are 7 to 25", self.runner.run(model, builder.data(1), 1))

    def test_constants(self):
        """Operators of constants alone are computed when the model is deployed."""
        b = Builder((5,))
        b.weights += [numpy_helper.from_array(np.random.default_rng(1).standard_normal((5, 7)).astype(t), n)
                      for t, n in ((np.float16, "half"), (np.float64, "double"))]
        matrix = b.add("Add", b.add("Cast", "half", to=1), b.add("Cast", "double", to=1))
        ints = b.add("Cast", b.constant(np.int8([3, -2, 1, 0, 7, -128, 127])), to=1)
        flags = b.add("Cast", b.add("Cast", ints, to=9), to=1)
        bias = b.add("Unsqueeze", b.add("Mul", ints, flags), b.constant([0]))
        x = b.add("Add", b.add("MatMul", b.inputs[0], matrix), bias)
        self.check((b, b.model(x)))
        self.refused(one("Cast", [(5,)], to=11), "to is 11", "accepted are 1, 6, 7 and 9")

    def test_computed_shapes(self):
        for opset in (7, 13, 21):
            for rows in ("N", 3):
                b = Builder((2, 3, 4), opset=opset, rows=rows)
                sizes = b.add("Shape", b.inputs[0])
                up = {"axes": [0]} if opset < 13 else {}
                axes = [] if opset < 13 else [b.constant([0])]
                parts = [b.add("Unsqueeze", b.add("Gather", sizes, b.constant(np.int64(0))), *axes, **up)]
                area = b.add("Mul", b.add("Gather", sizes, b.constant(np.int64(1))),
                             b.add("Gather", sizes, b.constant(np.int64(-1))))
                parts.append(b.add("Unsqueeze", area, *axes, **up))
                parts.append(b.constant([-1]))
                x = b.add("Reshape", b.inputs[0], b.add("Concat", *parts, axis=0))
                self.check((b, b.model(x)), rows=(1, 3) if rows == "N" else (3,))
        for first, last, step, *known in ((0, 2, 1, 0), (-9, 2, 1, 0), (0, -1, 1, 0), (0, 2**63 - 1, 2, 0),
                                          (2, -2**63, -2, 0), (1, 2, 2**62, 0, 2)):
            numbers = [2, 3, -1]
            b = Builder((6,))
            part = b.add("Slice", b.constant(numbers), *(b.constant([n]) for n in (first, last, 0, step)))
            self.check((b, b.model(b.add("Reshape", b.inputs[0], b.add("Concat", b.constant(known), part, axis=0)))))
        b = Builder((2, 3))
        rows = b.add("Shape", b.inputs[0])
        self.assertIn("number of rows", self.runner.run(b.model(b.add("Mul", b.inputs[0], b.add("Cast", rows, to=1))),
                                                        b.data(1), 1))
        self.refused(one("Gather", [(5,)], constants=[np.int64(1)]), "rows are those of")

    def test_work_is_bounded(self):
        self.refused(one("MaxPool", [(1, 1, 1)], kernel_shape=[2 ** 30] * 2, strides=[2 ** 30] * 2, pads=[2 ** 29] * 4),
                     "operations", "at most 1e+13")

    def test_layer_normalization_operator(self):
        for axis, shape in ((-1, (8,)), (2, (8,)), (1, (4, 8))):
            self.check(one("LayerNormalization", [(4, 8)], [shape, shape], opset=17, axis=axis, epsilon=1e-3))
        self.check(one("LayerNormalization", [(300,)], [(300,)], opset=17))
        self.refused(one("LayerNormalization", [(8,)], [(1, 8)], opset=17, axis=0), "rows of requests")
        self.refused(one("LayerNormalization", [(8,)], [(7,)], opset=17), "8 elements")
        self.refused(one("LayerNormalization", [(8,)], [(8,)], opset=17, axis=2), "axis is 2")

    def test_choice(self):
        """Masks: comparisons of values and of integers, logic, and a choice."""
        for op_type in ("Equal", "Greater", "Less"):
            for whole in (True, False):
                b = Builder((3, 4), (3, 1))
                x, y = (b.add("Cast", name, to=7) for name in b.inputs) if whole else b.inputs
                mask = b.add(op_type, x, y)
                self.check((b, b.model(b.add("Where", mask, b.inputs[0], b.weight(4)))))
                z = b.add("Where", mask, b.constant(np.float32(-3e38)), b.inputs[1])
                self.check((b, b.model(z, b.add("Cast", b.add("Where", b.add("Not", mask), b.add("Cast", x, to=7),
                                                              b.constant(np.int64(7))), to=1))))
        b = Builder((5,), (5,))
        one_mask, other = (b.add("Greater", name, b.constant(np.float32(0))) for name in b.inputs)
        both = b.add("Equal", b.add("And", one_mask, other), b.add("Or", one_mask, b.add("Expand", other, b.constant([1, 5]))))
        self.check((b, b.model(b.add("Cast", both, to=1))))
        self.refused(one("Equal", [(4,)], constants=[np.int64(1)]), "of one type")
        self.refused(one("And", [(4,), (4,)]), "must be of bool")
        self.refused(one("Where", [(4,), (4,), (4,)]), "must be of bool")
        self.refused(one("Not", [(4,)]), "must be of bool")

    def test_rows_elsewhere(self):
        """Operators on values whose first dimension does not count rows, as sequences and heads of attention."""
        for rows in ("N", 3):
            b = Builder((4, 6), rows=rows)
            x = b.add("Transpose", b.inputs[0], perm=[1, 0, 2])
            x = b.add("Add", x, b.weight(4, 1, 6))
            x = b.add("LayerNormalization", b.add("Softmax", x, axis=0), b.weight(6)) if rows == "N" else x
            x = b.add("Mul", x, b.add("ReduceMean", x, axes=[0], keepdims=0))
            x = b.add("Concat", x, b.add("Slice", x, b.constant([0]), b.constant([-1]), b.constant([0])), axis=0)
            x = b.add("Gather", x, b.constant(np.int64([[6, 0, 3, 1]])), axis=0)
            x = b.add("Squeeze", b.add("Unsqueeze", x, b.constant([1])), b.constant([0, 1]))
            sizes = b.add("Shape", x)
            batch = b.add("Gather", sizes, b.constant(np.int64([1])))
            heads = b.add("Concat", b.constant([4]), b.add("Mul", batch, b.constant([2])), b.constant([3]), axis=0)
            x = b.add("Transpose", b.add("Reshape", x, heads), perm=[1, 0, 2])  # [rows * 2, 4, 3]
            x = b.add("MatMul", x, b.add("Transpose", x, perm=[0, 2, 1]))
            x = b.add("Transpose", b.add("MatMul", x, b.weight(4, 6)), perm=[1, 0, 2])
            whole = b.add("Mul", batch, b.constant([8]))
            x = b.add("MatMul", b.add("Reshape", x, b.add("Concat", whole, b.constant([6]), axis=0)), b.weight(6, 5))
            back = b.add("Concat", b.constant([4]), b.add("Div", whole, b.constant([4])), b.constant([5]), axis=0)
            x = b.add("Flatten", b.add("Transpose", b.add("Reshape", x, back), perm=[1, 0, 2]))
            out = b.add("Reshape", x, b.add("Concat", batch, b.constant([-1]), axis=0))
            b.opset = 17 if rows == "N" else 13
            self.check((b, b.model(out)), rows=(1, 3) if rows == "N" else (3,))
        for last in ([1, 0, 2], [2, 1, 0]):
            b = Builder((4, 6))
            x = b.add("Reshape", b.add("Transpose", b.inputs[0], perm=last), b.constant([-1, 4, 3]))
            self.assertIn("would be mixed", self.runner.run(b.model(x), b.data(1), 1))
        for op_type, operands, text in (("Softmax", [], "would be over rows"), ("Add", ["in0"], "counts rows, but")):
            b = Builder((4, 6))
            x = b.add("Transpose", b.inputs[0], perm=[1, 0, 2])
            answer = self.runner.run(b.model(b.add(op_type, x, *operands, **({} if operands else {"axis": 1}))), b.data(1), 1)
            self.assertIn(text, answer)

    def test_rows_of_constants(self):
        """A token in front of each row's patches, and states of zeros: constants are repeated for each row."""
        b = Builder((4, 6))
        batch = b.add("Gather", b.add("Shape", b.inputs[0]), b.constant(np.int64([0])))
        sizes = b.add("Concat", batch, b.constant([-1, -1]), axis=0)
        ones = b.add("ConstantOfShape", b.add("Shape", sizes), value=numpy_helper.from_array(np.int64([1])))
        known = b.add("Where", b.add("Equal", sizes, b.add("Mul", ones, b.constant(np.int64(-1)))), ones, sizes)
        zeros = b.add("ConstantOfShape", b.add("Concat", batch, b.constant([2, 6]), axis=0))
        x = b.add("Concat", b.add("Expand", b.weight(1, 1, 6), known), zeros, b.inputs[0], axis=1)
        self.check((b, b.model(x)))
        twice = b.add("Concat", batch, batch, axis=0)
        self.assertIn("once, the number of rows", self.runner.run(b.model(b.add("ConstantOfShape", twice)), b.data(1), 1))
        self.assertIn("number of rows", self.runner.run(b.model(b.add("Reshape", b.inputs[0], b.add("Add", batch, twice))),
                                                        b.data(1), 1))
        b = Builder((5,))
        ids = b.add("Range", b.constant(np.int64(3)), b.constant(np.int64(-3)), b.constant(np.int64(-2)))
        steps = b.add("Range", *(b.constant(np.float32(x)) for x in (0, 2, 0.4)))
        x = b.add("Add", b.inputs[0], steps)
        self.check((b, b.model(b.add("Add", x, b.add("ReduceSum", b.add("Cast", ids, to=1))))))
        for numbers in ((0, 2**40, 1), (0, -1, 1), (0, 1, 0)):
            b = Builder((5,))
            x = b.add("Range", *(b.constant(np.int64(n)) for n in numbers))
            self.assertIn("Range", self.runner.run(b.model(b.add("Add", b.inputs[0], b.add("Cast", x, to=1))), b.data(1), 1))

    def test_slice(self):
        for starts, ends, axes, steps in (([1], [3], [1], [1]), ([0, 1], [-1, 2**63 - 1], [2, 1], [1, 2]), ([-1], [-2**63], [3], [-1]),
                                          ([5, 9], [-9, 0], [2, 3], [-2, -3]), ([1, 1, 1], [4, 4, 4], [1, 2, 3], [1, 1, 1])):
            self.check(one("Slice", [(4, 5, 6)], constants=[starts, ends, axes, steps]))
        self.check(one("Slice", [(4, 5)], opset=9, axes=[1, 2], starts=[1, 0], ends=[3, 4]))
        self.refused(one("Slice", [(4, 5)], constants=[[0], [1], [0]]), "axis 0 counts rows")
        self.refused(one("Slice", [(4, 5)], constants=[[0], [1], [3]]), "axis is 3")
        self.refused(one("Slice", [(4, 5)], constants=[[2], [1], [1]]), "no element")
        self.refused(one("Slice", [(4, 5)], constants=[[2], [1, 2], [1]]), "ends has 2 numbers")
        self.refused(one("Slice", [(4, 5)], constants=[[2], [3], [1], [0]]), "steps not 0")

    def test_split(self):
        for sizes, more in (([1, 2, 3], {}), ([2, 4], {}), (None, {"num_outputs": 4}), (None, {"num_outputs": 3})):
            for axis in (1, -1):
                if axis == 1 or sizes is None or sum(sizes) == 6:
                    b = Builder((7 if "num_outputs" in more and more["num_outputs"] == 4 else 6, 6), opset=18)
                    if axis == -1 and more.get("num_outputs") == 4:
                        continue
                    count = more.get("num_outputs", len(sizes or []))
                    parts = b.add_many("Split", count, b.inputs[0], *([] if sizes is None else [b.constant(sizes)]), axis=axis, **more)
                    self.check((b, b.model(*parts)))
        for sizes, axis, text in (([3, 4], 1, "part 1"), ([3, 2], 1, "part 1"), ([7, -1], 1, "part 0"), ([1], 1, "each part"),
                                  ([3, 3], 0, "count rows"), ([3, 3], 3, "axis is 3")):
            b = Builder((6, 6))
            parts = b.add_many("Split", 2, b.inputs[0], b.constant(sizes), axis=axis)
            self.assertIn(text, self.runner.run(b.model(*parts), b.data(1), 1))

    def test_pad(self):
        for pads in ([0, 1, 2, 0, 3, 0], [0, 0, 0, 0, 0, 0], [0, 0, 5, 0, 0, 5]):
            self.check(one("Pad", [(4, 5)], constants=[pads]))
            self.check(one("Pad", [(4, 5)], constants=[pads, np.float32(2.5)], mode="constant"))
            self.check(one("Pad", [(4, 5)], opset=9, pads=pads, value=1.5))
        self.check(one("Pad", [(4, 5)], opset=18, constants=[[1, 2, 3, 4], None, [2, 1]]))
        self.refused(one("Pad", [(4, 5)], constants=[[1, 0, 0, 0, 0, 0]]), "axis 0")
        self.refused(one("Pad", [(4, 5)], constants=[[0, 0, -1, 0, 0, 0]]), "pads of -1")
        self.refused(one("Pad", [(4, 5)], constants=[[0, 0, 2**62, 0, 0, 2**62]]), "axis 2")
        self.refused(one("Pad", [(4, 5)], constants=[[0, 0]]), "6 pads")
        self.refused(one("Pad", [(4, 5)], constants=[[0, 0, 1, 0, 0, 1]], mode="reflect"), "mode must be constant")

    def test_broadcast(self):
        shapes = [[(3, 4), (3, 4)], [(3, 4), (1, 4)], [(3, 1), (1, 4)], [(1, 1), (5, 6)], [(), ()]]
        for op_type in ("Add", "Sub", "Mul", "Div"):
            for pair in shapes:
                self.check(one(op_type, pair))
            for shape in [(6,), (1, 6), (1, 1, 6), (5, 1), (1, 4, 5, 6), (1, 4, 1, 6), (4, 1, 1), (1,), ()]:
                self.check(one(op_type, [(4, 5, 6)], [shape]))
        b = Builder((4, 5))
        self.check((b, b.model(b.add("Sub", b.weight(4, 1), b.inputs[0]))))
        b = Builder((4, 5))
        same = b.add("Mul", b.inputs[0], b.inputs[0])
        self.check((b, b.model(b.add("Add", same, same), same)))

    def test_matmul(self):
        self.check(one("MatMul", [(7,)], [(7, 5)]))
        self.check(one("MatMul", [(3, 7)], [(7, 5)]))
        self.check(one("MatMul", [(2, 3, 7)], [(7, 5)]))
        self.check(one("MatMul", [(300,)], [(300, 400)]))  # read in blocks
        self.check(one("MatMul", [(9, 300)], [(300, 400)]))
        self.refused(one("MatMul", [(7,)], [(8, 5)]), "7 columns", "8 rows")
        self.refused(one("MatMul", [(7,), (5,)]), "count the same rows")
        self.check(one("MatMul", [(3, 7), (7, 5)]))
        self.check(one("MatMul", [(4, 2, 3, 7), (4, 2, 7, 5)]))
        self.check(one("MatMul", [(2, 3, 7)], [(2, 7, 5)]))
        self.check(one("MatMul", [(2, 3, 7)], [(1, 1, 7, 5)]))
        self.check(one("MatMul", [(4, 2, 3, 7), (1, 2, 7, 5)]))
        self.check(one("MatMul", [(4, 2, 3, 7)], [(4, 1, 7, 5)]))
        b = Builder((4, 7, 5))
        self.check((b, b.model(b.add("MatMul", b.weight(3, 7), b.inputs[0]))))
        self.refused(one("MatMul", [(2, 3, 7)], [(3, 2, 7, 5)]), "count the same rows")
        self.refused(one("MatMul", [(2, 3, 7), (3, 7, 5)]), "with the same dimensions before")
        self.refused(one("MatMul", [(3, 7), (6, 5)]), "with the same dimensions before")

    def test_reduce(self):
        for op_type in ("ReduceSum", "ReduceMean", "ReduceL2"):
            for axes in ([1], [-1], [2, 3], [3, 1, 2], [2]):
                for keepdims in (0, 1):
                    as_input = op_type == "ReduceSum"
                    self.check(one(op_type, [(4, 5, 6)], constants=[axes] if as_input else (), keepdims=keepdims,
                                   **({} if as_input else {"axes": axes})))
        self.check(one("ReduceMean", [(4, 5)], opset=18, constants=[[1, 2]]))
        self.refused(one("ReduceSum", [(4, 5)], constants=[[0]]), "not count rows")
        self.refused(one("ReduceSum", [(4, 5)]), "not count rows")
        self.refused(one("ReduceMean", [(4, 5, 6)], axes=[1, 3]), "follow each other")
        self.refused(one("ReduceMean", [(4, 5)], axes=[3]), "axis is 3")

    def test_transpose(self):
        for perm in ([0, 2, 1, 3], [0, 3, 2, 1], [0, 2, 3, 1], [0, 1, 2, 3]):
            self.check(one("Transpose", [(4, 5, 6)], perm=perm))
        self.check(one("Transpose", [(1,)], perm=[0, 1]))
        b = Builder((4,))
        self.check((b, b.model(b.add("MatMul", b.inputs[0], b.add("Transpose", b.weight(30, 4))))))
        for perm in ([0, 1, 1], [0, 1], [0, 1, 3]):
            self.refused(one("Transpose", [(4, 5)], perm=perm), "each of the 3 axes once")
        for perm in ({"perm": [1, 0, 2]}, {}):
            builder, model = one("Transpose", [(4, 5)], **perm)
            self.assertIn("its first dimension is not the number of rows", self.runner.run(model, builder.data(1), 1))

    def test_gather(self):
        """Of the values of rows along another axis; and of a weight, by indices that a request has."""
        for axis, indices in ((1, [0, 3, -1]), (2, [[1, 1], [4, -5]]), (-1, [2]), (1, 2)):
            self.check(one("Gather", [(4, 5)], constants=[np.int64(indices)], axis=axis))
        b = Builder((6,))
        index = b.add("Add", b.add("Cast", b.inputs[0], to=7), b.constant(np.int64([0, 10, 20, 0, 10, -10])))
        self.check((b, b.model(b.add("ReduceSum", b.add("Gather", b.weight(40, 3), index), b.constant([1]), keepdims=0))))
        b = Builder((3,))
        index = b.add("Add", b.add("Cast", b.inputs[0], to=7), b.constant(np.int64([0, 90, 0])))
        self.assertRegex(self.runner.run(b.model(b.add("Gather", b.weight(40, 3), index)), b.data(1), 1),
                         r"Gather.*index (8|9)\d of .* which has 40")
        self.refused(one("Gather", [(4, 5)], constants=[np.int64([5, 4])], axis=1), "index 5", "which has 4")
        self.refused(one("Gather", [(4, 5)], constants=[np.float32([1])], axis=1), "must be of int64")

    def test_gemm(self):
        for c in ([], [()], [(5,)], [(1, 5)], [(1,)]):
            self.check(one("Gemm", [(7,)], [(7, 5), *c], alpha=0.5, beta=2.0))
            self.check(one("Gemm", [(7,)], [(5, 7), *c], transB=1))
        self.check(one("Gemm", [(600,)], [(900, 600), (900,)], transB=1))
        self.check(one("Gemm", [(600,)], [(600, 900), (900,)]))
        for shape in ((1,), (5,)):
            b = Builder((7,), shape)
            self.check((b, b.model(b.add("Gemm", b.inputs[0], b.weight(7, 5), b.inputs[1]))))
        self.refused(one("Gemm", [(7,)], [(7, 5), (4,)]), "a row of 5")
        self.refused(one("Gemm", [(7,)], [(7, 5), (2, 5)]), "a row of 5")
        self.refused(one("Gemm", [(7,)], [(7, 5)], transA=1), "transA 0")
        self.refused(one("Gemm", [(7,)], [(7, 5)], transB=1), "7 columns", "5 columns (transB)")

    def test_conv(self):
        two = [4, 3]
        for attributes in ({}, {"pads": [1, 2, 0, 3]}, {"strides": [2, 3]}, {"dilations": [2, 1], "pads": [3, 0, 0, 0]},
                           {"auto_pad": "VALID"}, {"auto_pad": "SAME_UPPER", "strides": [2, 2]},
                           {"auto_pad": "SAME_LOWER", "strides": [3, 2]}, {"strides": [7, 9], "kernel_shape": two},
                           {"pads": [9, 9, 9, 9], "strides": [5, 4]}):
            self.check(one("Conv", [(4, 9, 11)], [(6, 4, 4, 3), (6,)], **attributes))
            self.check(one("Conv", [(4, 9, 11)], [(6, 2, 4, 3)], group=2, **attributes))
        self.check(one("Conv", [(6, 5, 5)], [(6, 1, 3, 3), (6,)], group=6, pads=[1, 1, 1, 1]))
        self.check(one("Conv", [(6, 5, 7)], [(12, 6, 1, 1), (12,)]))
        self.check(one("Conv", [(6, 5, 7)], [(12, 6, 1, 1)], strides=[2, 2]))
        self.check(one("Conv", [(6, 5, 7)], [(12, 6, 1, 1)], pads=[0, 0, 1, 1]))
        self.check(one("Conv", [(16, 70, 70)], [(20, 16, 3, 3)], pads=[1, 1, 1, 1]), rows=(2,))  # columns in parts

    def test_conv_refused(self):
        def conv(**attributes):
            return one("Conv", [(4, 9, 11)], [(6, 4, 3, 3)], **attributes)
        self.refused(conv(pads=[-1, 0, 0, 0]), "pads has -1")
        self.refused(conv(pads=[0, 0]), "pads has 2 numbers, but must have 4")
        self.refused(conv(pads=[2 ** 31, 0, 0, 0]), "pads has 2147483648")
        self.refused(conv(pads=[2 ** 31 - 1, 0, 2 ** 31 - 1, 0]), "padded")
        self.refused(conv(pads=[2 ** 31 - 20, 0, 0, 0]), "large")
        self.refused(conv(strides=[0, 1]), "strides has 0")
        self.refused(conv(dilations=[5, 1]), "a window of 11 over 9")
        self.refused(conv(dilations=[2 ** 31 - 1, 2 ** 31 - 1]), "a window of 4294967295")
        self.refused(conv(auto_pad="SOME"), "SOME", "SAME_UPPER")
        self.refused(conv(kernel_shape=[3, 2]), "kernel_shape")
        self.refused(conv(group=3), "group 3")
        self.refused(conv(group=-1), "group -1")
        self.refused(one("Conv", [(4, 9)], [(6, 4, 3)]), "[N, C, H, W]")
        self.refused(one("Conv", [(4, 9, 9)], [(6, 4, 3, 3), (5,)]), "[6]")

    def test_conv_transpose(self):
        for attributes in ({}, {"strides": [2, 3]}, {"strides": [2, 2], "pads": [1, 0, 2, 1]}, {"dilations": [2, 3]},
                           {"strides": [3, 2], "output_padding": [2, 1]}, {"strides": [2, 2], "dilations": [3, 1], "pads": [2, 2, 2, 2]}):
            self.check(one("ConvTranspose", [(4, 5, 7)], [(4, 6, 3, 2), (6,)], **attributes))
            self.check(one("ConvTranspose", [(4, 5, 7)], [(4, 3, 3, 2), (6,)], group=2, **attributes))
            self.check(one("ConvTranspose", [(4, 5, 7)], [(4, 3, 3, 2)], group=4, **attributes))

        def refused(text, weight=(4, 6, 3, 2), bias=(6,), **attributes):
            self.refused(one("ConvTranspose", [(4, 5, 7)], [weight, bias], **attributes), text)
        refused("group 3", group=3)
        refused("group 0", group=0)
        refused("[C, M / group", weight=(5, 6, 3, 2))
        refused("bias must be [M]", bias=(5,))
        refused("kernel_shape", kernel_shape=[2, 2])
        refused("auto_pad NOTSET", auto_pad="SAME_UPPER")
        refused("output_padding smaller", output_padding=[1, 0])
        refused("without pads of 20", pads=[10, 0, 10, 0])
        refused("strides has 0", strides=[0, 1])
        refused("at most", strides=[2 ** 31 - 1, 2 ** 31 - 1])
        refused("output_shape", output_shape=[9, 9])

    def test_resize(self):
        scales = np.float32([1, 1, 2, 1.5])
        for place in ("half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"):
            for more in ({"mode": "linear"}, {"nearest_mode": "floor"}, {"nearest_mode": "ceil"}, {"nearest_mode": "round_prefer_ceil"}, {}):
                for constants in ([None, scales], [None, np.float32([1, 1, 0.5, 1])], [None, np.float32([1, 1, 0.25, 0.25])]):
                    self.check(one("Resize", [(3, 5, 6)], constants=constants, coordinate_transformation_mode=place, **more), rows=(2,))
        for rows in ("N", 2):
            b = Builder((3, 5, 6), rows=rows)
            begin = b.add("Slice", b.add("Shape", b.inputs[0]), b.constant([0]), b.constant([2]))
            sizes = b.add("Concat", begin, b.constant([9, 4]), axis=0)
            self.check((b, b.model(b.add("Resize", b.inputs[0], "", "", sizes, mode="linear"))), rows=(2,))
        for constants, more in (([None, np.float32([1, 2, 2, 2])], {}), ([None, np.float32([1, 1, 0.1, 2])], {}), ([None, scales[:3]], {}),
                                ([None, np.float32([1, 1, np.nan, 1])], {}), ([None, np.float32([1, 1, 3e9, 1])], {}),
                                ([None, scales, np.int64([1, 3, 2, 2])], {}), ([None], {}), ([None, None, np.int64([1, 3, 2, 2])], {}),
                                ([None, scales], {"mode": "cubic"}), ([None, scales], {"coordinate_transformation_mode": "some"})):
            self.refused(one("Resize", [(3, 5, 6)], constants=constants, **more))

    def test_recurrent(self):
        for op_type, gates in (("LSTM", 4), ("GRU", 3)):
            more = {"linear_before_reset": 1} if gates == 3 else {}
            for direction, count in (("forward", 1), ("reverse", 1), ("bidirectional", 2)):
                for layout in (0, 1):
                    for extra in ("", "bias", "states"):
                        b = Builder((6, 5), (count, 7), (count, 7), opset=14)
                        x, *states = b.inputs[:gates - 1]
                        if layout == 0:
                            x = b.add("Transpose", x, perm=[1, 0, 2])
                            states = [b.add("Transpose", s, perm=[1, 0, 2]) for s in states]
                        operands = [x, b.weight(count, gates * 7, 5, scale=0.4), b.weight(count, gates * 7, 7, scale=0.4)]
                        operands += [b.weight(count, gates * 14, scale=0.4)] if extra else []
                        operands += ["", *states] if extra == "states" else []
                        outs = b.add_many(op_type, gates - 1, *operands, direction=direction, hidden_size=7, layout=layout, **more)
                        if layout == 0:
                            outs = [b.add("Transpose", outs[0], perm=[2, 0, 1, 3]),
                                    *(b.add("Transpose", s, perm=[1, 0, 2]) for s in outs[1:])]
                        self.check((b, b.model(*outs)), rows=(1, 3))
            b = Builder((6, 5), rows=3)
            x = b.add_many(op_type, 2, b.inputs[0], b.weight(1, gates * 7, 5), b.weight(1, gates * 7, 7), hidden_size=7, **more)[0]
            self.check((b, b.model(x)), rows=(3,))  # the rows of a fixed number may be steps

    def test_recurrent_refused(self):
        def refused(text, w=(1, 28, 5), r=(1, 28, 7), op_type="LSTM", more=(), **attributes):
            b = Builder((6, 5), opset=14)
            x = b.add("Transpose", b.inputs[0], perm=[1, 0, 2])
            y = b.add(op_type, x, b.weight(*w), b.weight(*r), *(b.weight(*shape) for shape in more), **attributes)
            answer = self.runner.run(b.model(b.add("Transpose", y, perm=[2, 0, 1, 3])), b.data(1), 1)
            self.assertIsInstance(answer, str)
            self.assertIn(text, answer)
        refused("input 1", w=(1, 28, 6))
        refused("input 2", r=(2, 28, 7))
        refused("input 1", w=(1, 27, 5))
        refused("input 3", more=[(1, 28)])
        refused("sequence_lens", more=[(1, 56), (1,)])
        refused("input_forget", input_forget=1)
        refused("direction is up", direction="up")
        refused("hidden_size", hidden_size=6)
        refused("activation_alpha", activation_alpha=[0.5])
        refused("linear_before_reset must be 1", w=(1, 21, 5), r=(1, 21, 7), op_type="GRU")
        b = Builder((6, 5), opset=14)
        y = b.add("LSTM", b.inputs[0], b.weight(1, 28, 5), b.weight(1, 28, 7))
        self.assertIn("the rows must be the sequences", self.runner.run(b.model(y), b.data(1), 1))

    def test_pool(self):
        for attributes in ({}, {"pads": [1, 2, 0, 1]}, {"strides": [2, 3]}, {"auto_pad": "SAME_LOWER", "strides": [2, 2]},
                           {"strides": [2, 2], "ceil_mode": 1}, {"strides": [3, 4], "ceil_mode": 1, "pads": [1, 1, 1, 1]},
                           {"strides": [4, 2], "pads": [2, 2, 2, 2], "ceil_mode": 1}, {"auto_pad": "VALID"}):
            self.check(one("MaxPool", [(4, 10, 11)], kernel_shape=[3, 3], **attributes))
            self.check(one("AveragePool", [(4, 10, 11)], kernel_shape=[3, 3], **attributes))
            self.check(one("AveragePool", [(4, 10, 11)], kernel_shape=[3, 3], count_include_pad=1, **attributes))
        self.check(one("MaxPool", [(4, 10, 11)], kernel_shape=[2, 3], dilations=[3, 2]))
        self.check(one("GlobalAveragePool", [(4, 10, 11)]))
        self.check(one("GlobalAveragePool", [(4, 10)]))
        self.refused(one("MaxPool", [(4, 5, 5)], kernel_shape=[2, 2], pads=[2, 0, 0, 0]), "smaller than the window of 2")
        self.refused(one("MaxPool", [(4, 5, 5)], kernel_shape=[0, 2]), "kernel_shape has 0")
        self.refused(one("MaxPool", [(4, 5, 5)]), "kernel_shape")
        self.refused(one("MaxPool", [(4, 5, 5)], kernel_shape=[6, 6]), "a window of 6 over 5")

    def test_normalize(self):
        for shape in ((6,), (6, 5), (6, 5, 4)):
            b = Builder(shape)
            variance = b.constant(np.linspace(0.1, 2, 6, dtype=np.float32))
            self.check((b, b.model(b.add("BatchNormalization", b.inputs[0], b.weight(6), b.weight(6), b.weight(6), variance,
                                         epsilon=0.01))))
        for opset in (11, 13):
            self.check(one("Softmax", [(6, 5, 4)], opset=opset))
            for axis in (1, 2, 3, -1, -2):
                self.check(one("Softmax", [(6, 5, 4)], opset=opset, axis=axis))
        self.check(one("Softmax", [(3, 5)], constants=[]))
        self.refused(one("Softmax", [(6,)], axis=0), "rows of requests")
        self.refused(one("Softmax", [(6,)], axis=2), "axis is 2", "-2 to 1")
        self.refused(one("BatchNormalization", [(6,)], [(6,), (6,), (5,), (6,)]), "must be [6]")

    def test_layout(self):
        for axis in (1, 2, 3, -1, 4):
            b = Builder((2, 3, 5))
            self.check((b, b.model(b.add("Reshape", b.add("Flatten", b.inputs[0], axis=axis), b.constant([-1, 30])))))
        for shape in ([0, -1], [-1, 30], [0, 5, 6], [-1, 2, 3, 5], [0, 0, 15], [0, 0, 0, 5], [0, 1, -1]):
            self.check(one("Reshape", [(2, 3, 5)], constants=[np.int64(shape)]))
        b = Builder((4, 6))  # rows become four times as many, and then as before
        x = b.add("Reshape", b.inputs[0], b.constant([-1, 6]))
        x = b.add("Gemm", x, b.weight(6, 5), b.weight(5))
        self.check((b, b.model(b.add("Reshape", x, b.constant([-1, 20])))))
        self.check(one("Concat", [(2, 3), (5, 3), (1, 3)], axis=1))
        self.check(one("Concat", [(2, 3), (2, 1)], axis=-1))
        self.refused(one("Reshape", [(6,)], constants=[np.int64([3, 2])]), "no dimension of the shape counts rows")
        self.refused(one("Reshape", [(6,)], constants=[np.int64([0, 5])]), "5 elements", "6")
        self.refused(one("Reshape", [(6,)], constants=[np.int64([-1, -1])]), "once -1")
        self.refused(one("Reshape", [(6,)], constants=[np.int64([-1, 2 ** 40, 2 ** 40])]), "dimension 1")
        self.refused(one("Reshape", [(6,)], constants=[np.int64([0, -1, 4])]), "elements")
        self.refused(one("Reshape", [(6,)], [(2,)]), "constant")
        self.refused(one("Concat", [(2, 3), (2, 4)], axis=1), "shape")
        self.refused(one("Concat", [(2,), (2,)], axis=0), "rows")
        self.refused(one("Concat", [(2,)], constants=[None, np.zeros((2, 2), np.float32)], axis=1), "input 1")
        self.refused(one("Concat", [(2,), (2,)], axis=5), "axis is 5")

    def test_fixed_rows(self):
        b = Builder((6,), rows=4)
        model = b.model(b.add("Reshape", b.inputs[0], b.constant([4, 2, 3])))
        data = b.data(4)
        got = self.runner.run(model, data, 4, 4)
        self.assertIsInstance(got, np.ndarray, got)
        np.testing.assert_array_equal(got, data[0].ravel())

    def test_broadcast_refused(self):
        self.refused(one("Add", [(3, 4)], [(5, 4)]), "5 elements", "has 3")
        self.refused(one("Add", [(4,)], [(2, 4)]), "rows")
        self.refused(one("Add", [(4,)], [(1, 2, 4)]), "rows")

    def test_mlp(self):
        self.check(mlp([40, 300, 200, 10]))

    def test_resnet_18(self):
        net = ResNet([2, 2, 2, 2], False, 64, 8)
        self.check((net.b, net.model), rows=(2,))

    def test_resnet_50(self):
        net = ResNet([3, 4, 6, 3], True, 64, 8)
        self.check((net.b, net.model), rows=(2,))


if __name__ == "__main__":
    unittest.main(verbosity=2)
