"""The networks of the built-in tasks."""

from __future__ import annotations

import itertools
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import relu, scaled_dot_product_attention

Norm = Literal["bn", "gn"]


def mlp(*widths: int) -> nn.Module:
    """Return fully connected layers of these widths with ReLU between them."""
    layers: list[nn.Module] = [nn.Flatten()]
    for a, b in itertools.pairwise(widths):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def cnn(side: int, widths: tuple[int, int], hidden: int) -> nn.Module:
    """Return two 3x3 convolutions with pooling and two linear layers, for grey images and 10 classes.

    Pooling goes before ReLU, which gives the same with a quarter of the work.
    """
    a, b = widths
    return nn.Sequential(
        nn.Conv2d(1, a, 3, padding=1),
        _ChannelsLast(),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(a, b, 3, padding=1),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(b * (side // 4) ** 2, hidden),
        nn.ReLU(),
        nn.Linear(hidden, 10),
    )


class _ChannelsLast(nn.Module):
    """Lay images out with their channels side by side: pooling is three times faster on a CPU."""

    def forward(self, x: Tensor) -> Tensor:
        return x.contiguous(memory_format=torch.channels_last)


class _Block(nn.Module):
    """Two 3x3 convolutions beside a shortcut, a 1x1 convolution where the width changes."""

    def __init__(self, before: int, width: int, norm: Norm) -> None:
        super().__init__()
        stride = 1 if before == width else 2
        self.conv0 = nn.Conv2d(before, width, 3, stride, 1, bias=False)
        self.norm0 = _norm(norm, width)
        self.conv1 = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.norm1 = _norm(norm, width)
        self.shortcut: nn.Module = nn.Identity()
        if before != width:
            self.shortcut = nn.Sequential(nn.Conv2d(before, width, 1, 2, bias=False), _norm(norm, width))

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.norm1(self.conv1(relu(self.norm0(self.conv0(x)))))
        return relu(y + self.shortcut(x))


def resnet(depth: int, norm: Norm = "bn") -> nn.Module:
    """Return the CIFAR ResNet of He et al. 2015, arXiv:1512.03385: depth 8, 20, 32 ...; 6 k + 2."""
    blocks, rest = divmod(depth - 2, 6)
    if rest or blocks < 1:
        raise ValueError(f"a CIFAR ResNet has 6 k + 2 layers, such as 8 or 20, not {depth}")
    layers: list[nn.Module] = [nn.Conv2d(3, 16, 3, padding=1, bias=False), _norm(norm, 16), nn.ReLU()]
    before = 16
    for width in (16, 32, 64):
        for _ in range(blocks):
            layers.append(_Block(before, width, norm))
            before = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


class LSTM(nn.Module):
    """A word-level language model: embedding, LSTM layers with dropout, and a decoder."""

    def __init__(self, words: int, width: int = 650, layers: int = 3, dropout: float = 0.4) -> None:
        super().__init__()
        self.embedding = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, layers, dropout=dropout, batch_first=True)
        self.dropout = nn.Dropout(dropout)
        self.decoder = nn.Linear(width, words)
        self.decoder.weight = self.embedding.weight  # tied, as in the papers
        nn.init.uniform_(self.embedding.weight, -0.1, 0.1)
        nn.init.zeros_(self.decoder.bias)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of every next word."""
        hidden, _ = self.lstm(self.dropout(self.embedding(tokens)))
        logits: Tensor = self.decoder(self.dropout(hidden))
        return logits


class _Attention(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.qkv(x).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = scaled_dot_product_attention(q, k, v, is_causal=True)
        y: Tensor = self.out(mixed.transpose(1, 2).reshape(batch, length, width))
        return y


class _Layer(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.norm0, self.attention = nn.LayerNorm(width), _Attention(width, heads)
        self.norm1 = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm0(x))
        y: Tensor = x + self.mlp(self.norm1(x))
        return y


class GPT(nn.Module):
    """A small causal transformer (Radford et al. 2019) over bytes."""

    def __init__(self, tokens: int, context: int, width: int = 128, layers: int = 4, heads: int = 4) -> None:
        super().__init__()
        self.embedding, self.position = nn.Embedding(tokens, width), nn.Embedding(context, width)
        self.layers = nn.Sequential(*(_Layer(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, tokens, bias=False)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the logits of every next token."""
        x = self.embedding(tokens) + self.position(torch.arange(tokens.shape[1], device=tokens.device))
        logits: Tensor = self.head(self.norm(self.layers(x)))
        return logits


def _norm(kind: Norm, width: int) -> nn.Module:
    return nn.BatchNorm2d(width) if kind == "bn" else nn.GroupNorm(min(8, width), width)
