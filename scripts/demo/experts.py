"""The routed experts of a layer: tokens sorted by expert, one product per expert and matrix."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor

import dimensions as dim


class Grouped(torch.autograd.Function):
    """y[a:b] = x[a:b] w[e].T for the rows of each expert e."""

    @staticmethod
    def forward(ctx, x: Tensor, w: Tensor, bounds: list[int]) -> Tensor:
        ctx.save_for_backward(x, w)
        ctx.bounds = bounds
        y = torch.empty(len(x), w.shape[1])
        for e, (a, b) in enumerate(pairwise(bounds)):
            torch.mm(x[a:b], w[e].t(), out=y[a:b])
        return y

    @staticmethod
    def backward(ctx, dy: Tensor):
        x, w = ctx.saved_tensors
        dx, dw = torch.empty_like(x), torch.empty_like(w)
        for e, (a, b) in enumerate(pairwise(ctx.bounds)):
            torch.mm(dy[a:b], w[e], out=dx[a:b])
            torch.mm(dy[a:b].t(), x[a:b], out=dw[e])
        return dx, dw, None


class Permute(torch.autograd.Function):
    """y[i] = x[order[i]]; the gradient goes back by the inverse, which is a gather too."""

    @staticmethod
    def forward(ctx, x: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
        ctx.inverse = inverse
        return x.index_select(0, order)

    @staticmethod
    def backward(ctx, dy: Tensor):
        return dy.index_select(0, ctx.inverse), None, None


class Spread(torch.autograd.Function):
    """Token rows to sorted pick rows; the gradient sums a token's picks."""

    @staticmethod
    def forward(ctx, z: Tensor, tokens: Tensor, inverse: Tensor, top_k: int) -> Tensor:
        ctx.inverse, ctx.top_k = inverse, top_k
        return z.index_select(0, tokens)

    @staticmethod
    def backward(ctx, dy: Tensor):
        return dy.index_select(0, ctx.inverse).view(-1, ctx.top_k, dy.shape[-1]).sum(1), None, None, None


def routed_experts(z: Tensor, logits: Tensor, bias: Tensor, w13: Tensor, w2: Tensor, situ) -> tuple[Tensor, Tensor]:
    """z [N, latent], logits [N, experts] -> (the weighted sum of each token's picks [N, latent], picks per expert)."""
    scores = torch.sigmoid(logits)
    picks = (scores.detach() + bias).topk(dim.TOP_K, -1).indices
    weights = scores.gather(-1, picks)
    weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
    order = picks.flatten().argsort(stable=True)
    inverse = torch.empty_like(order)
    inverse[order] = torch.arange(len(order))
    loads = torch.bincount(picks.flatten(), minlength=dim.EXPERTS)
    bounds = [0, *loads.cumsum(0).tolist()]
    h = Grouped.apply(Spread.apply(z, order // dim.TOP_K, inverse, dim.TOP_K), w13, bounds)
    y = Grouped.apply(situ(h[:, : dim.INNER], h[:, dim.INNER :]), w2, bounds)
    y = Permute.apply(y, inverse, order).view(len(z), dim.TOP_K, -1)
    return (weights[:, None, :] @ y).squeeze(1), loads
