#!/usr/bin/env python3
"""Trains the demo model.

    python3 train.py DATA_DIRECTORY RUN_DIRECTORY --tokens 12000000 [--resume | --warm-start CHECKPOINT]

Every step takes BATCH windows of WINDOW tokens at random places of the training ids; which ones depends on the seed and
the step alone. The learning rate is a function of the tokens seen: a short rise, then a cosine to 5 % at --tokens. From
QUANTISE_FROM of the tokens on, the forward pass uses what the experts' MXFP4 bytes stand for, and their gradients go
straight to the f32 masters.

Workers are processes of one thread each: a worker runs its part of the batch, then updates the tensors it owns from the
sum of all gradients, in worker order. One-threaded processes waste nothing on splitting small operations, and bear a
busy machine better than threads that wait for each other in every operation.

RUN_DIRECTORY/state.pt (masters, moments, biases, step) is replaced atomically every few minutes; --resume goes on from
it exactly, given as many workers and the same --tokens; with another number the schedule is that of
the new one. RUN_DIRECTORY/log.tsv gets a line every LOG_EVERY steps.
"""

from __future__ import annotations

import argparse
import math
import os
import threading
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, multiprocessing

import dimensions as dim
import model as parts
from export import load_exported
from model import Demo
from mxfp4 import fake_quantise
from optimiser import Optimiser, share_out
from shared import Shared

BATCH, WINDOW = 8, 512
MUON_LR, ADAM_LR, DECAY = 0.02, 3e-3, 0.05
WARM_UP, FLOOR = 0.02, 0.05  # share of the tokens; share of the peak rate
QUANTISE_FROM = 0.25
BIAS_STEP = 1e-3  # how far a correction bias moves in a step, towards even load
LOG_EVERY, EVALUATE_EVERY, EVALUATE_WINDOWS = 10, 200, 32


def rate(share: float) -> float:
    """The learning rate as a share of its peak, after that share of the tokens."""
    return min(1.0, share / WARM_UP) * (FLOOR + (1 - FLOOR) * 0.5 * (1 + math.cos(math.pi * min(1.0, share))))


def cut(ids: np.ndarray, starts: np.ndarray) -> Tensor:
    return torch.from_numpy(np.stack([ids[s : s + WINDOW + 1] for s in starts]).astype(np.int64))


def batch_of(ids: np.ndarray, seed: int, step: int) -> Tensor:
    return cut(ids, np.random.default_rng([seed, step]).integers(0, len(ids) - WINDOW, BATCH))


def heldout_windows(data: dict[str, np.ndarray]) -> Tensor:
    """The same windows every time, spread evenly over all held-out documents."""
    ids = np.concatenate([data[name] for name in sorted(data) if name.startswith("heldout_")])
    return cut(ids, np.linspace(0, len(ids) - WINDOW - 1, EVALUATE_WINDOWS).astype(int))


def loss_of(model: Demo, batch: Tensor) -> Tensor:
    """Mean nats a token."""
    return F.cross_entropy(model(batch[:, :-1]).flatten(0, 1), batch[:, 1:].flatten())


def compile_parts() -> None:
    """Fuses the elementwise work of the model's parts; the products stay what they are."""
    for name in ("mix_norm", "rms", "situ", "kda_before", "kda_after", "mla_attention", "kda"):
        setattr(parts, name, torch.compile(getattr(parts, name), dynamic=False))


class Worker:
    def __init__(self, rank: int, shared: Shared, barrier, args: argparse.Namespace):
        self.rank, self.shared, self.barrier, self.args = rank, shared, barrier, args
        with np.load(args.data / "tokens.npz") as stored:
            self.data = {name: stored[name] for name in stored.files}
        self.model = Demo()
        used = shared.named("used")
        for name in self.model.names:
            self.model.p(name).data = used[name]
        for layer in range(1, dim.LAYERS):
            self.model.bias(layer).data = shared.bias[layer]
        self.weights = shared.named("weights")
        self.used = used
        self.grads = [shared.views(g) for g in shared.grads]
        for name in self.model.names:
            self.model.p(name).grad = self.grads[rank][name]  # backward adds in place
        self.owned = share_out(shared.shapes, args.workers)[rank]
        self.optimiser = Optimiser(self.weights, shared.named("first"), shared.named("second"), self.owned)

    @property
    def step(self) -> int:
        return int(self.shared.step)

    @property
    def share(self) -> float:
        return self.step * BATCH * WINDOW / self.args.tokens

    @torch.no_grad()
    def refresh(self) -> None:
        """Makes what the forward pass reads from the masters, for the tensors that this worker owns."""
        quantise = self.share >= QUANTISE_FROM or self.args.warm_start is not None
        for name in self.owned:
            w = self.weights[name]
            self.used[name].copy_(fake_quantise(w) if quantise and ".experts." in name else w)

    def gradients(self) -> None:
        """Of this worker's part of the batch, into its row of the shared gradients."""
        batch = batch_of(self.data["train"], self.args.seed, self.step)
        mine = batch.chunk(self.args.workers)[self.rank]
        loads, loss_sum = self.shared.loads[self.rank], 0.0
        loads.zero_()
        self.shared.grads[self.rank].zero_()
        for micro in mine.split(self.args.micro):
            loss = loss_of(self.model, micro) * (len(micro) / BATCH)
            loss.backward()
            loss_sum += loss.item()
            for layer, load in self.model.loads.items():
                loads[layer] += load
        self.shared.losses[self.rank] = loss_sum

    @torch.no_grad()
    def update(self) -> None:
        summed = {n: sum(rows[n] for rows in self.grads[1:]) + self.grads[0][n] for n in self.owned}
        factor = rate(self.share) * self.args.rate
        self.optimiser.step(summed, self.step + 1, MUON_LR * factor, ADAM_LR * factor, DECAY)

    @torch.no_grad()
    def balance(self) -> None:
        load = self.shared.loads.sum(0)
        away = torch.sign(load.mean(-1, keepdim=True) - load)
        self.shared.bias.add_(away, alpha=BIAS_STEP * rate(self.share))

    @torch.no_grad()
    def evaluate(self) -> None:
        mine = heldout_windows(self.data).chunk(self.args.workers)[self.rank]
        losses = [loss_of(self.model, part).item() for part in mine.split(self.args.micro)]
        self.shared.losses[self.rank] = sum(losses) / len(losses)

    def heldout(self) -> float:
        """All workers call it together; the answer is the first one's to use."""
        self.barrier.wait()
        self.evaluate()
        self.barrier.wait()
        return float(self.shared.losses.mean())

    def run(self) -> None:
        log = Log(self.args.run) if self.rank == 0 else None
        losses, saved = [], time.monotonic()
        self.refresh()
        self.barrier.wait()
        while self.share < 1.0:
            self.gradients()
            self.barrier.wait()
            losses.append(float(self.shared.losses.sum()))
            self.update()
            self.barrier.wait()  # all have read step and loads
            if self.rank == 0:
                self.balance()
                self.shared.step += 1
            self.barrier.wait()
            self.refresh()
            self.barrier.wait()
            if self.step % LOG_EVERY == 0:
                heldout = self.heldout() if self.step % EVALUATE_EVERY == 0 else None
                if log:
                    log.line(self.step, losses, rate(self.share), heldout)
                losses = []
            if self.rank == 0 and time.monotonic() - saved > self.args.save_every:
                save(self.shared, self.args)
                saved = time.monotonic()
        heldout = self.heldout()
        if self.rank == 0:
            save(self.shared, self.args)
            print(f"done: held-out {heldout:.4f} nats a token", flush=True)


class Log:
    def __init__(self, run: Path):
        self.path, self.began = run / "log.tsv", time.monotonic()
        if not self.path.exists():
            self.path.write_text("step\ttokens\tloss\ttokens_per_s\trate\theldout\n")

    def line(self, step: int, losses: list[float], factor: float, heldout: float | None) -> None:
        speed = len(losses) * BATCH * WINDOW / (time.monotonic() - self.began)
        fields = [f"{step}", f"{step * BATCH * WINDOW}", f"{sum(losses) / len(losses):.4f}", f"{speed:.0f}",
                  f"{factor:.4f}", "-" if heldout is None else f"{heldout:.4f}"]  # fmt: skip
        with self.path.open("a") as log:
            log.write("\t".join(fields) + "\n")
        print("\t".join(fields), flush=True)
        self.began = time.monotonic()


def save(shared: Shared, args: argparse.Namespace) -> None:
    state = {"model": shared.named("weights"), "first": shared.named("first"), "second": shared.named("second"),
             "bias": shared.bias, "step": int(shared.step), "tokens": args.tokens, "seed": args.seed}  # fmt: skip
    path = args.run / "state.pt"
    torch.save({k: clone(v) for k, v in state.items()}, path.with_suffix(".new"))
    os.replace(path.with_suffix(".new"), path)


def clone(value):
    """Tensors out of the shared buffers, so that a file holds what it names and no more."""
    if isinstance(value, dict):
        return {k: clone(v) for k, v in value.items()}
    return value.clone() if isinstance(value, Tensor) else value


def starting_state(args: argparse.Namespace) -> Shared:
    model = load_exported(args.warm_start) if args.warm_start else Demo(args.seed)
    shapes = {n: tuple(model.p(n).shape) for n in model.names}
    shared = Shared(shapes, args.workers, dim.LAYERS, dim.EXPERTS)
    weights = {n: model.p(n).detach() for n in model.names}
    shared.bias[1:] = torch.stack([model.bias(layer) for layer in range(1, dim.LAYERS)])
    if args.resume:
        state = torch.load(args.run / "state.pt", map_location="cpu", weights_only=True)
        if state["seed"] != args.seed:
            raise SystemExit(f"state.pt is of a run with --seed {state['seed']}")
        if state["tokens"] != args.tokens:
            print(f"the run was for {state['tokens']} tokens: the schedule changes to {args.tokens}", flush=True)
        weights = state["model"]
        shared.bias.copy_(state["bias"])
        shared.step.fill_(state["step"])
        for kind in ("first", "second"):
            for name, view in shared.named(kind).items():
                view.copy_(state[kind][name])
    for name, view in shared.named("weights").items():
        view.copy_(weights[name])
    return shared


def work(rank: int, shared: Shared, barrier, args: argparse.Namespace) -> None:
    torch.set_num_threads(1)
    if args.compile:
        compile_parts()
    if rank > 0:
        threading.Thread(target=leave_with_parent, args=(os.getppid(),), daemon=True).start()
    Worker(rank, shared, barrier, args).run()


def leave_with_parent(parent: int) -> None:
    """A killed first worker must not leave the others waiting for ever."""
    while os.getppid() == parent:
        time.sleep(2)
    os._exit(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("run", type=Path)
    parser.add_argument("--tokens", type=int, required=True, help="the whole run's tokens; the schedule follows them")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--resume", action="store_true", help="go on from RUN_DIRECTORY/state.pt")
    parser.add_argument("--warm-start", type=Path, help="an exported checkpoint to start from, with fresh moments")
    parser.add_argument("--rate", type=float, default=1.0, help="factor on the peak learning rates")
    parser.add_argument("--workers", type=int, default=2, help="processes of one thread each")
    parser.add_argument("--micro", type=int, default=2, help="windows a forward pass")
    parser.add_argument("--save-every", type=float, default=180.0, help="seconds between saved states")
    parser.add_argument("--no-compile", dest="compile", action="store_false", help="do not fuse elementwise work")
    args = parser.parse_args()
    args.run.mkdir(parents=True, exist_ok=True)
    torch.set_num_threads(1)
    shared, context = starting_state(args), multiprocessing.get_context("spawn")
    barrier = context.Barrier(args.workers)
    for rank in range(1, args.workers):
        context.Process(target=work, args=(rank, shared, barrier, args), daemon=True).start()
    work(0, shared, barrier, args)


if __name__ == "__main__":
    main()
