"""`text`: a small transformer encoder for token ids."""

import math

import torch
from torch import Tensor, nn

from fedsol.models.basic import Classifier


class Text(Classifier):
    """A pre-norm transformer over tokens of any number: one answer per sample, or one per token.

    For one per sample, the mean of the real tokens enters the head. For one per token, every token enters it, and no
    token sees a later one. Positions are sines and cosines of 1 / 10000^(2i / dim) (Vaswani et al. 2017), so no length
    is built in.
    """

    def __init__(
        self,
        vocabulary: int,
        output_shape: tuple[int, ...],
        *,
        dim: int = 64,
        depth: int = 2,
        heads: int = 4,
        mlp: int = 128,
    ) -> None:
        super().__init__()
        self.is_causal = len(output_shape) == 2
        classes = output_shape[-1]
        self.tokens = nn.Embedding(max(vocabulary, classes) if self.is_causal else vocabulary, dim)
        nn.init.normal_(self.tokens.weight, std=dim**-0.5)
        self.blocks = nn.ModuleList(EncoderBlock(dim, heads, mlp) for _ in range(depth))
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)

    def features(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Return what enters the head: (N, dim), or (N, T, dim) for one answer per token."""
        count = input_ids.shape[1]
        mask = torch.ones_like(input_ids) if attention_mask is None else attention_mask
        visible = (mask > 0)[:, None, None, :]
        if self.is_causal:
            visible = visible & torch.ones(count, count, dtype=torch.bool, device=input_ids.device).tril()
        tokens: Tensor = self.tokens(input_ids)
        tokens = tokens + positions(count, tokens)
        for block in self.blocks:
            tokens = block(tokens, visible)
        tokens = self.norm(tokens)
        if self.is_causal:
            return tokens
        real = mask[..., None].to(tokens.dtype)
        return (tokens * real).sum(dim=1) / real.sum(dim=1).clamp_min(1)

    def forward(self, input_ids: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        """Return the logits: one row per sample, or one per token."""
        logits: Tensor = self.head(self.features(input_ids, attention_mask))
        return logits


def positions(count: int, like: Tensor) -> Tensor:
    """Return a row of sines and cosines for each of the first places."""
    dim = like.shape[-1]
    half = -(-dim // 2)
    rates = torch.exp(torch.arange(half, device=like.device, dtype=like.dtype) * (-math.log(10_000) / half))
    angles = torch.arange(count, device=like.device, dtype=like.dtype)[:, None] * rates
    return torch.cat([angles.sin(), angles.cos()], dim=1)[:, :dim]


class EncoderBlock(nn.Module):
    """Self-attention, then a two-layer GELU network, each normalized before and added after."""

    def __init__(self, dim: int, heads: int, mlp: int) -> None:
        super().__init__()
        self.heads = heads
        width = -(-dim // heads)
        self.norm = nn.LayerNorm(dim)
        self.to_qkv = nn.Linear(dim, 3 * heads * width)
        self.to_output = nn.Linear(heads * width, dim)
        self.mlp = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, mlp), nn.GELU(), nn.Linear(mlp, dim))

    def attended(self, tokens: Tensor, visible: Tensor) -> Tensor:
        """Return for each token a mean of the tokens that are visible to it."""
        batch, count, _ = tokens.shape
        qkv: Tensor = self.to_qkv(tokens)
        queries, keys, values = qkv.view(batch, count, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        # Torch's fused attention has no second derivative, which loss landscapes need.
        scores = queries @ keys.transpose(-2, -1) / math.sqrt(queries.shape[-1])
        # Not minus infinity: a token that sees nothing, as in a sample without real tokens, would become NaN.
        shares = scores.masked_fill(~visible, torch.finfo(scores.dtype).min).softmax(dim=-1)
        output: Tensor = self.to_output((shares @ values).transpose(1, 2).reshape(batch, count, -1))
        return output

    def forward(self, tokens: Tensor, visible: Tensor) -> Tensor:
        """Return the block's tokens, of the same shape."""
        tokens = tokens + self.attended(self.norm(tokens), visible)
        output: Tensor = tokens + self.mlp(tokens)
        return output
