"""SL-ViT: a vision transformer that learns from small datasets.

Lee, Lee & Song, "Vision Transformer for Small-Size Datasets" (2021): shifted patch tokenization and locality
self-attention.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from fedsol.models.basic import Classifier


@dataclass(frozen=True)
class SLViTOptions:
    """The sizes of an SL-ViT; `shift` is explained at `ShiftedPatches`."""

    shift: Literal["diagonal", "axis"] = "diagonal"
    patch: int = 8
    dim: int = 192
    depth: int = 9
    heads: int = 12
    dim_head: int = 64
    mlp: int = 192


class SLViT(Classifier):
    """A pre-norm transformer over shifted patches whose class token, after a LayerNorm, enters the head.

    Sides that are not a multiple of the patch are resized to the next one (28 becomes 32 for patches of 8). Linear
    layers start from torch's default, class token and positions from N(0, 1).
    """

    def __init__(self, input_shape: tuple[int, ...], classes: int, **sizes: Any) -> None:
        super().__init__()
        options = SLViTOptions(**sizes)
        patch, dim = options.patch, options.dim
        channels, height, width = input_shape
        rows, columns = math.ceil(height / patch), math.ceil(width / patch)
        self.size = (rows * patch, columns * patch)
        self.tokens = ShiftedPatches(channels, patch, dim, options.shift)
        self.class_token = nn.Parameter(torch.randn(1, 1, dim))
        self.positions = nn.Parameter(torch.randn(1, rows * columns + 1, dim))
        self.blocks = nn.Sequential(*(TransformerBlock(options, rows * columns + 1) for _ in range(options.depth)))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def features(self, inputs: Tensor) -> Tensor:
        """Return the normalized class token that enters the head."""
        if inputs.shape[-2:] != self.size:
            inputs = F.interpolate(inputs, size=self.size, mode="bilinear", align_corners=False)
        class_token = self.class_token.expand(inputs.shape[0], -1, -1)  # len() would fix the size of an export
        tokens = torch.cat((class_token, self.tokens(inputs)), dim=1) + self.positions
        features: Tensor = self.norm(self.blocks(tokens)[:, 0])
        return features


class ShiftedPatches(nn.Module):
    """Turn an image and four shifted copies of it, stacked along the channels, into one token per patch.

    `diagonal` shifts by half a patch along the four diagonals, as in the SL-ViT paper; `axis` by one pixel up, down,
    left and right, as in FedSOL's released code. Pixels from outside the image are 0.
    """

    def __init__(self, channels: int, patch: int, dim: int, shift: Literal["diagonal", "axis"]) -> None:
        super().__init__()
        half = patch // 2
        self.shifts = (
            ((-half, -half), (-half, half), (half, -half), (half, half))
            if shift == "diagonal"
            else ((-1, 0), (1, 0), (0, -1), (0, 1))
        )
        self.patch = patch
        self.norm = nn.LayerNorm(5 * channels * patch * patch)
        self.embed = nn.Linear(5 * channels * patch * patch, dim)

    def forward(self, images: Tensor) -> Tensor:
        """Return tokens of shape (batch, patches, dim), patches in reading order."""
        stacked = torch.cat((images, *(shifted(images, down, right) for down, right in self.shifts)), dim=1)
        patches = F.unfold(stacked, kernel_size=self.patch, stride=self.patch).transpose(1, 2)
        tokens: Tensor = self.embed(self.norm(patches))
        return tokens


def shifted(images: Tensor, down: int, right: int) -> Tensor:
    """Return the images moved by these pixels (negative: up, left), filled with 0, in the same size."""
    return F.pad(images, (right, -right, down, -down))


class LocalitySelfAttention(nn.Module):
    """Multi-head self-attention in which no token attends to itself and the softmax's temperature is learned.

    The factor on the attention scores is `exp(log_temperature)`, which starts at 1 / sqrt(dim_head).
    """

    diagonal: Tensor

    def __init__(self, dim: int, heads: int, dim_head: int, tokens: int) -> None:
        super().__init__()
        self.heads = heads
        self.log_temperature = nn.Parameter(torch.full((1,), math.log(dim_head**-0.5)))
        self.to_qkv = nn.Linear(dim, 3 * heads * dim_head, bias=False)
        self.to_output = nn.Linear(heads * dim_head, dim)
        # Not persistent: it is a constant, not a weight.
        self.register_buffer("diagonal", torch.eye(tokens, dtype=torch.bool), persistent=False)

    def attention(self, queries: Tensor, keys: Tensor) -> Tensor:
        """Return how much each token (last but one axis) attends to each other one; rows sum to 1."""
        # Torch's fused attention has no second derivative, which loss landscapes need.
        scores = queries @ keys.transpose(-2, -1) * self.log_temperature.exp()
        return scores.masked_fill(self.diagonal, -math.inf).softmax(dim=-1)

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the attended tokens, of the same shape."""
        batch, count, _ = tokens.shape
        qkv: Tensor = self.to_qkv(tokens)
        queries, keys, values = qkv.view(batch, count, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = self.attention(queries, keys) @ values
        output: Tensor = self.to_output(attended.transpose(1, 2).reshape(batch, count, -1))
        return output


class TransformerBlock(nn.Module):
    """Locality self-attention, then a two-layer GELU network, each normalized before and added after."""

    def __init__(self, options: SLViTOptions, tokens: int) -> None:
        super().__init__()
        dim, mlp = options.dim, options.mlp
        attention = LocalitySelfAttention(dim, options.heads, options.dim_head, tokens)
        self.attention = nn.Sequential(nn.LayerNorm(dim), attention)
        self.mlp = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, mlp), nn.GELU(), nn.Linear(mlp, dim))

    def forward(self, tokens: Tensor) -> Tensor:
        """Return the block's tokens, of the same shape."""
        tokens = tokens + self.attention(tokens)
        attended: Tensor = tokens + self.mlp(tokens)
        return attended
