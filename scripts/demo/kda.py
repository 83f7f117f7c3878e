"""Kimi Delta Attention over whole sequences, chunk by chunk, so that almost all of it is batched matrix products.

Definition (docs/numerics.md, 3.3), per head with state S [key][value]: S' = diag(alpha_t) S;
w_t = beta_t (v_t - k_t S'); S = S' + k_t w_t; o_t = q_t S. With G_t the running sum of log alpha inside a chunk,
unrolling gives

    w_t = beta_t (v_t - (k_t e^G_t) S0 - sum_{j<t} A_kk[t, j] w_j),   A_kk[t, j] = sum_d k_t k_j e^(G_t - G_j)

a unit lower triangular system per chunk, w = U - X S0. The chunk's end state is M S0 + B, so the one loop left runs
over chunks and does one product of D x D matrices; outputs follow from the states for all chunks at once.

e^(G_t - G_j) is split as e^(G_t - R) e^(R - G_j) with R the value in the chunk's middle. A step decays by e^-5 at
most, so with chunks of 32 neither factor leaves e^(+-80), which f32 holds.
"""

from __future__ import annotations

import torch
from torch import Tensor

CHUNK = 32


def chunk_factors(q: Tensor, k: Tensor, log_alpha: Tensor) -> tuple[Tensor, ...]:
    """All of [..., C, D]. Returns the decayed forms of q and k that the chunk's products need."""
    g = log_alpha.cumsum(-2)
    middle, last = g[..., CHUNK // 2 - 1 : CHUNK // 2, :], g[..., -1:, :]
    rise, fall, whole = (g - middle).exp(), (middle - g).exp(), g.exp()
    return q * rise, k * rise, k * fall, q * whole, k * whole, k * (last - g).exp(), last.exp()


def solve_chunks(q: Tensor, k: Tensor, v: Tensor, log_alpha: Tensor, beta: Tensor) -> tuple[Tensor, ...]:
    """Within chunks: B, M, O and P. q, k, v, log_alpha [N, C, D], beta [N, C, 1]."""
    d = q.shape[-1]
    q_rise, k_rise, k_fall, q_whole, k_whole, k_last, decay = chunk_factors(q, k, log_alpha)
    both = torch.cat([k_rise, q_rise], -2) @ k_fall.mT  # A_kk over A_qk
    below = torch.ones(CHUNK, CHUNK, dtype=torch.bool, device=q.device).tril(-1)
    a_kk = torch.where(below, both[..., :CHUNK, :], 0.0) * beta
    a_qk = torch.where(~below.mT, both[..., CHUNK:, :], 0.0)
    unit = a_kk + torch.eye(CHUNK, device=q.device)
    solved = torch.linalg.solve_triangular(unit, beta * torch.cat([v, k_whole], -1), upper=False, unitriangular=True)
    # solved is [U, X]; then S_end = M S0 + B and o = P S0 + O.
    end, out = k_last.mT @ solved, a_qk @ solved
    m = torch.diag_embed(decay[..., 0, :]) - end[..., d:]
    return end[..., :d], m, out[..., :d], q_whole - out[..., d:]


def kda(q: Tensor, k: Tensor, v: Tensor, log_alpha: Tensor, beta: Tensor) -> Tensor:
    """q, k, v, log_alpha [B, T, H, D]; beta [B, T, H]; T a multiple of CHUNK. Gives o [B, T, H, D] from zero states."""
    batch, length, heads, d = q.shape
    chunks = length // CHUNK

    def split(x: Tensor) -> Tensor:  # chunks first: the loop then reads contiguous blocks
        x = x.reshape(batch, chunks, CHUNK, heads, -1)
        return x.permute(1, 0, 3, 2, 4).reshape(chunks * batch * heads, CHUNK, -1)

    b, m, own, reading = solve_chunks(split(q), split(k), split(v), split(log_alpha), split(beta))
    b, m = (t.view(chunks, batch * heads, d, d) for t in (b, m))
    state, states = torch.zeros(batch * heads, d, d, device=q.device), []
    for bc, mc in zip(b.unbind(0), m.unbind(0)):
        states.append(state)
        state = torch.baddbmm(bc, mc, state)
    o = torch.baddbmm(own, reading, torch.cat(states))
    return o.view(chunks, batch, heads, CHUNK, d).permute(1, 0, 3, 2, 4).reshape(batch, length, heads, d)
