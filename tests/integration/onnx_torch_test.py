#!/usr/bin/env python3
"""Models that torch exports (opset 17), on the engine beside torch itself: those that people serve, with few and narrow layers.

Each model is a module of this file, with the layers and the shape arithmetic of the published one. It is exported with a free number of
rows, and with a fixed one.
"""

import io
import math
import sys
import unittest

try:
    import numpy as np
    import onnx
    import torch
    from torch import nn
    from torch.nn import functional
except ImportError as error:
    print(f"skipped: {error}")
    sys.exit(77)

from onnx_test import Runner, TOLERANCE

OPSET = 17
VOCABULARY = 50


class Attention(nn.Module):
    """Devlin, Chang, Lee, Toutanova: BERT; as transformers' BertSelfAttention computes it. fills: as DistilBERT masks the scores."""

    def __init__(self, width, heads, fills=False):
        super().__init__()
        self.heads, self.size, self.fills = heads, width // heads, fills
        self.query, self.key, self.value, self.output = (nn.Linear(width, width) for _ in range(4))

    def split(self, x):
        return x.view(x.size()[:-1] + (self.heads, self.size)).permute(0, 2, 1, 3)

    def forward(self, x, mask):
        query, key, value = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        if self.fills:
            scores = torch.matmul(query / math.sqrt(self.size), key.transpose(2, 3))
            hidden = (mask == 0).view(x.size(0), 1, 1, x.size(1)).expand_as(scores)
            scores = scores.masked_fill(hidden, torch.tensor(torch.finfo(scores.dtype).min))
        else:
            scores = torch.matmul(query, key.transpose(-1, -2)) / math.sqrt(self.size) + mask
        context = torch.matmul(functional.softmax(scores, dim=-1), value).permute(0, 2, 1, 3).contiguous()
        if self.fills:
            return self.output(context.view(x.size(0), -1, self.heads * self.size))
        return self.output(context.view(context.size()[:-2] + (self.heads * self.size,)))


class Block(nn.Module):
    def __init__(self, width, heads, fills=False):
        super().__init__()
        self.attention = Attention(width, heads, fills)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)
        self.first, self.second = nn.LayerNorm(width, eps=1e-12), nn.LayerNorm(width, eps=1e-12)

    def forward(self, x, mask):
        x = self.first(self.attention(x, mask) + x)
        return self.second(self.narrow(functional.gelu(self.wide(x))) + x)


class Bert(nn.Module):
    def __init__(self, width=16, heads=4, layers=2, length=12):
        super().__init__()
        self.words, self.places, self.kinds = nn.Embedding(VOCABULARY, width), nn.Embedding(length + 3, width), nn.Embedding(2, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(Block(width, heads) for _ in range(layers))
        self.pooler = nn.Linear(width, width)
        self.register_buffer("place_ids", torch.arange(length + 3).expand((1, -1)))

    def forward(self, input_ids, attention_mask, token_type_ids):
        mask = attention_mask[:, None, None, :].to(dtype=torch.float32)
        mask = (1.0 - mask) * torch.finfo(torch.float32).min
        x = self.words(input_ids) + self.kinds(token_type_ids) + self.places(self.place_ids[:, :input_ids.size()[1]])
        x = self.norm(x)
        for layer in self.layers:
            x = layer(x, mask)
        return x, torch.tanh(self.pooler(x[:, 0]))


class DistilBert(nn.Module):
    """Without a mask for padding if none is given, as transformers makes it."""

    def __init__(self, width=16, heads=2, layers=2, length=12):
        super().__init__()
        self.words, self.places = nn.Embedding(VOCABULARY, width, padding_idx=0), nn.Embedding(length, width)
        self.norm = nn.LayerNorm(width, eps=1e-12)
        self.layers = nn.ModuleList(Block(width, heads, fills=True) for _ in range(layers))
        self.classifier = nn.Linear(width, 3)

    def forward(self, input_ids, attention_mask=None):
        if attention_mask is None:
            attention_mask = torch.ones(input_ids.size())
        ids = torch.arange(input_ids.size(1), dtype=torch.long).unsqueeze(0).expand_as(input_ids)
        x = self.norm(self.words(input_ids) + self.places(ids))
        for layer in self.layers:
            x = layer(x, attention_mask)
        return self.classifier(functional.relu(x[:, 0]))


class MultiHead(nn.Module):
    """nn.MultiheadAttention, and a learned token in front of patches: Dosovitskiy et al.: ViT."""

    def __init__(self, width=16, size=16, patch=4):
        super().__init__()
        self.patches = nn.Conv2d(3, width, patch, stride=patch)
        self.token = nn.Parameter(torch.randn(1, 1, width))
        self.places = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width))
        self.norm = nn.LayerNorm(width, eps=1e-6)
        self.attention = nn.MultiheadAttention(width, 4, batch_first=True)
        self.head = nn.Linear(width, 5)

    def forward(self, image):
        n = image.shape[0]
        x = self.patches(image).reshape(n, 16, -1).permute(0, 2, 1)
        x = torch.cat([self.token.expand(n, -1, -1), x], dim=1) + self.places
        y = self.norm(x)
        x = x + self.attention(y, y, y, need_weights=False)[0]
        return self.head(self.norm(x)[:, 0])


class MobileNet(nn.Module):
    """Sandler et al.: MobileNetV2. An inverted residual."""

    def __init__(self):
        super().__init__()
        def step(i, o, kernel, stride, groups):
            return nn.Sequential(nn.Conv2d(i, o, kernel, stride, kernel // 2, groups=groups, bias=False), nn.BatchNorm2d(o), nn.ReLU6())
        self.stem = step(3, 8, 3, 2, 1)
        self.block = nn.Sequential(step(8, 48, 1, 1, 1), step(48, 48, 3, 1, 48), nn.Conv2d(48, 8, 1, bias=False), nn.BatchNorm2d(8))
        self.down = nn.Sequential(step(8, 48, 1, 1, 1), step(48, 48, 3, 2, 48), nn.Conv2d(48, 12, 1, bias=False), nn.BatchNorm2d(12))
        self.head = nn.Sequential(nn.Dropout(), nn.Linear(12, 5))

    def forward(self, image):
        x = self.stem(image)
        x = self.down(x + self.block(x))
        return self.head(torch.flatten(functional.adaptive_avg_pool2d(x, (1, 1)), 1))


class Dlrm(nn.Module):
    """Naumov et al.: DLRM, with the interaction of its reference code."""

    def __init__(self, tables=3, width=8):
        super().__init__()
        self.tables = nn.ModuleList(nn.EmbeddingBag(VOCABULARY, width, mode="sum") if i == 0 else nn.Embedding(VOCABULARY, width)
                                    for i in range(tables))
        self.bottom = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, width), nn.ReLU())
        self.top = nn.Sequential(nn.Linear(width + tables * (tables + 1) // 2, 16), nn.ReLU(), nn.Linear(16, 1), nn.Sigmoid())

    def forward(self, dense, sparse):
        x = self.bottom(dense)
        rows = [table.weight[sparse[:, i]] if i == 0 else table(sparse[:, i]) for i, table in enumerate(self.tables)]
        t = torch.cat([x] + rows, dim=1).view((x.size(0), -1, x.size(1)))
        z = torch.bmm(t, torch.transpose(t, 1, 2))
        count = t.shape[1]
        li = torch.tensor([i for i in range(count) for j in range(i)])
        lj = torch.tensor([j for i in range(count) for j in range(i)])
        return self.top(torch.cat([x, z[:, li, lj]], dim=1))


class TwoTower(nn.Module):
    def __init__(self, width=8):
        super().__init__()
        self.users, self.items = nn.Embedding(VOCABULARY, width), nn.Embedding(VOCABULARY, width)
        self.user, self.item = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, user, item, history):
        seen = self.items(history).mean(dim=1)
        u = functional.normalize(self.user(self.users(user) + seen), dim=1)
        return (u * functional.normalize(self.item(self.items(item)), dim=-1)).sum(dim=-1, keepdim=True)


class Recurrent(nn.Module):
    def __init__(self, cell=nn.LSTM, batch_first=True, layers=2, bidirectional=True):
        super().__init__()
        self.words = nn.Embedding(VOCABULARY, 8)
        self.cell = cell(8, 6, num_layers=layers, bidirectional=bidirectional, batch_first=batch_first)
        self.batch_first = batch_first
        self.head = nn.Linear(12 if bidirectional else 6, 3)

    def forward(self, input_ids):
        x = self.words(input_ids)
        x, last = self.cell(x if self.batch_first else x.transpose(0, 1))
        hidden = last[0] if isinstance(last, tuple) else last
        return self.head(x[:, -1] if self.batch_first else x[-1]), hidden[-1]


class UNet(nn.Module):
    """Ronneberger, Fischer, Brox: U-Net; up by a transposed convolution, or by interpolation."""

    def __init__(self, mode=None):
        super().__init__()
        self.first, self.second, self.last = nn.Conv2d(3, 6, 3, padding=1), nn.Conv2d(6, 12, 3, padding=1), nn.Conv2d(12, 6, 3, padding=1)
        self.up = nn.ConvTranspose2d(12, 6, 2, stride=2) if mode is None else nn.Sequential(
            nn.Upsample(scale_factor=2, mode=mode, **({} if mode == "nearest" else {"align_corners": True})), nn.Conv2d(12, 6, 1))
        self.head = nn.Conv2d(6, 2, 1)

    def forward(self, image):
        x = functional.relu(self.first(image))
        y = self.up(functional.relu(self.second(functional.max_pool2d(x, 2))))
        rest = [x.size(2) - y.size(2), x.size(3) - y.size(3)]
        y = functional.pad(y, [rest[1] // 2, rest[1] - rest[1] // 2, rest[0] // 2, rest[0] - rest[0] // 2])
        return self.head(functional.relu(self.last(torch.cat([x, y], dim=1))))


class Inception(nn.Module):
    """Szegedy et al.: Rethinking the Inception Architecture: branches, and the input transformed as torchvision does."""

    def __init__(self):
        super().__init__()
        self.one, self.wide, self.high = nn.Conv2d(3, 4, 1), nn.Conv2d(3, 4, (1, 7), padding=(0, 3)), nn.Conv2d(4, 4, (7, 1), padding=(3, 0))
        self.norm = nn.BatchNorm2d(8, eps=0.001)
        self.head = nn.Linear(11, 5)

    def forward(self, image):
        channels = [torch.unsqueeze(image[:, i], 1) * 0.458 + 0.03 * i for i in range(3)]
        x = torch.cat(channels, 1)
        y = self.norm(torch.cat([self.one(x), self.high(self.wide(x))], 1))
        y = torch.cat([y, functional.avg_pool2d(x, kernel_size=3, stride=1, padding=1)], 1)
        y = functional.max_pool2d(functional.relu(y), kernel_size=3, stride=2)
        return self.head(torch.flatten(functional.adaptive_avg_pool2d(y, (1, 1)), 1))


class DenseNet(nn.Module):
    """Huang, Liu, van der Maaten, Weinberger: DenseNet."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 4, 7, 2, 3, bias=False)
        self.norms = nn.ModuleList(nn.BatchNorm2d(4 + 3 * i) for i in range(4))
        self.layers = nn.ModuleList(nn.Conv2d(4 + 3 * i, 3, 3, padding=1, bias=False) for i in range(3))
        self.head = nn.Linear(13, 5)

    def forward(self, image):
        x = [functional.max_pool2d(self.stem(image), 3, 2, 1)]
        for norm, layer in zip(self.norms, self.layers):
            x.append(layer(functional.relu(norm(torch.cat(x, 1)))))
        y = functional.avg_pool2d(functional.relu(self.norms[3](torch.cat(x, 1))), 2, 2)
        return self.head(torch.flatten(functional.adaptive_avg_pool2d(y, (1, 1)), 1))


def export(module, inputs, is_free=True):
    """The ONNX model, and the names of its inputs. is_free: the number of rows is."""
    file = io.BytesIO()
    names = [f"in{i}" for i in range(len(inputs))]
    with torch.no_grad():
        count = len(module(*inputs)) if isinstance(module(*inputs), tuple) else 1
    outputs = [f"out{i}" for i in range(count)]
    torch.onnx.export(module, inputs, file, opset_version=OPSET, input_names=names, output_names=outputs,
                      dynamic_axes={name: {0: "rows"} for name in names + outputs} if is_free else None)
    return onnx.load_from_string(file.getvalue())


class Exported(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.runner = Runner()

    @classmethod
    def tearDownClass(cls):
        cls.runner.close()

    def check(self, module, make, traced=2):
        """make(rows): inputs. traced: rows of the example with which the model is exported."""
        module.eval()
        for module_part in module.modules():  # what training would have changed
            if isinstance(module_part, nn.BatchNorm2d):
                module_part.running_mean.uniform_(-0.5, 0.5)
                module_part.running_var.uniform_(0.5, 1.5)
        for is_free, rows in ((True, 1), (True, 3), (False, 1), (False, 3)):
            with self.subTest(is_free=is_free, rows=rows):
                model = export(module, make(traced if is_free else rows), is_free)
                inputs = make(rows)
                got = self.runner.run(model, [t.numpy() for t in inputs], rows)
                self.assertIsInstance(got, np.ndarray, got)
                with torch.no_grad():
                    wanted = module(*inputs)
                wanted = wanted if isinstance(wanted, tuple) else (wanted,)
                want = np.concatenate([t.numpy().ravel() for t in wanted])
                self.assertEqual(got.shape, want.shape)
                self.assertLess(np.max(np.abs(got - want) / np.maximum(1, np.abs(want))), TOLERANCE)

    def ids(self, *shape):
        return torch.randint(VOCABULARY, shape)

    def mask(self, rows, length):
        return (torch.arange(length)[None, :] < torch.randint(1, length + 1, (rows, 1))).long()

    def image(self, rows, size=16):
        return (torch.randn(rows, 3, size, size),)

    def test_bert(self):
        self.check(Bert(), lambda n: (self.ids(n, 12), self.mask(n, 12), torch.randint(2, (n, 12))))

    def test_distilbert(self):
        self.check(DistilBert(), lambda n: (self.ids(n, 12), self.mask(n, 12)))
        self.check(DistilBert(), lambda n: (self.ids(n, 12),))

    def test_transformer_encoder(self):
        layer = nn.TransformerEncoderLayer(16, 4, 32, batch_first=True, activation="gelu")
        self.check(nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), lambda n: (torch.randn(n, 7, 16),))

    def test_vit(self):
        self.check(MultiHead(), self.image)

    def test_mobilenet(self):
        self.check(MobileNet(), self.image)

    def test_dlrm(self):
        self.check(Dlrm(), lambda n: (torch.randn(n, 5), self.ids(n, 3)))

    def test_two_tower(self):
        self.check(TwoTower(), lambda n: (self.ids(n), self.ids(n), self.ids(n, 4)))

    def test_lstm(self):
        for batch_first in (True, False):
            for bidirectional in (True, False):
                self.check(Recurrent(nn.LSTM, batch_first, 2, bidirectional), lambda n: (self.ids(n, 7),))

    def test_gru(self):
        for batch_first in (True, False):
            self.check(Recurrent(nn.GRU, batch_first, 1, not batch_first), lambda n: (self.ids(n, 7),))

    def test_unet(self):
        for mode in (None, "nearest", "bilinear"):
            self.check(UNet(mode), self.image)
        self.check(UNet(), lambda n: self.image(n, 15))

    def test_inception(self):
        self.check(Inception(), self.image)

    def test_densenet(self):
        self.check(DenseNet(), lambda n: self.image(n, 32))


if __name__ == "__main__":
    torch.manual_seed(20240607)
    torch.set_num_threads(1)
    unittest.main(verbosity=2)
