#!/usr/bin/env python3
"""Losses and gradient norms of PyTorch, as data that the tests compare with.

    build/ptc run examples/gpt-mini.pdsl --set drop=0 --mesh dp=1 --steps 0 --data tests/data/text.txt --save init
    tests/reference/make_reference.py gpt init tests/data/text.txt --batch 16 --lr ... > tests/reference/data/gpt.json

Needs torch, safetensors and numpy; the tests themselves do not. The models are written
here from their definitions and take their sizes from the shapes of the params.
"""
import argparse
import json
import math

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

MASK = (1 << 64) - 1


def mix64(z):
    z = (z + 0x9E3779B97F4A7C15) & MASK
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


def data_order(seed, epoch, n, pos):
    """The place in the data of the pos-th window of an epoch: a Feistel network, walked."""
    key = mix64((seed + 0x9E3779B97F4A7C15 * (epoch + 1)) & MASK)
    half = 1
    while half < 32 and (n - 1) >> (2 * half):
        half += 1
    mask = (1 << half) - 1
    while True:
        left, right = pos >> half, pos & mask
        for r in range(4):
            left, right = right, left ^ (mix64(key ^ (r << 56) ^ right) & mask)
        pos = left << half | right
        if pos < n:
            return pos


def layernorm(x, p, path):
    return F.layer_norm(x, x.shape[-1:], p[path + ".g"], p[path + ".b"], 1e-5)


def rmsnorm(x, g):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * g


def rope(x, theta):
    """x[batch, seq, ..., head]: rotates the two halves of head."""
    seq, d = x.shape[1], x.shape[-1]
    freq = theta ** (-torch.arange(0, d // 2, dtype=torch.float64) * 2 / d)
    angle = torch.arange(seq, dtype=torch.float64)[:, None] * freq
    shape = [1, seq] + [1] * (x.dim() - 3) + [d // 2]
    cos, sin = angle.cos().float().view(shape), angle.sin().float().view(shape)
    a, b = x[..., : d // 2], x[..., d // 2:]
    return torch.cat([a * cos - b * sin, b * cos + a * sin], -1)


def causal(scores):
    s = scores.shape[-1]
    return scores.masked_fill(torch.ones(s, s, dtype=torch.bool).triu(1), -math.inf).softmax(-1)


def gpt(p, tokens, _):
    x = p["wte"][tokens] + p["wpe"]
    for l in range(p["layers.mha.wq"].shape[0]):
        q = {k: v[l] for k, v in p.items() if k.startswith("layers.")}
        h = layernorm(x, q, "layers.norm.attn")
        heads = [torch.einsum("bse,ehd->bshd", h, q["layers.mha.w" + c]) + q["layers.mha.b" + c] for c in "qkv"]
        u = torch.einsum("bshd,bthd->bhst", heads[0], heads[1]) / math.sqrt(heads[0].shape[-1])
        o = torch.einsum("bhst,bthd->bshd", causal(u), heads[2])
        x = x + torch.einsum("bshd,hde->bse", o, q["layers.mha.wo"]) + q["layers.mha.bo"]
        h = layernorm(x, q, "layers.norm.mlp")
        h = F.gelu(h @ q["layers.mlp.wu"] + q["layers.mlp.bu"], approximate="tanh")
        x = x + h @ q["layers.mlp.wd"] + q["layers.mlp.bd"]
    return layernorm(x, p, "norm") @ p["wte"].T


def llama(p, tokens, args):
    x = p["wte"][tokens]
    for l in range(p["layers.gqa.wq"].shape[0]):
        q = {k: v[l] for k, v in p.items() if k.startswith("layers.")}
        h = rmsnorm(x, q["layers.rms.attn.g"])
        a = rope(torch.einsum("bse,ekgd->bskgd", h, q["layers.gqa.wq"]), args.theta)
        b = rope(torch.einsum("bse,ekd->bskd", h, q["layers.gqa.wk"]), args.theta)
        c = torch.einsum("bse,ekd->bskd", h, q["layers.gqa.wv"])
        u = torch.einsum("bskgd,btkd->bkgst", a, b) / math.sqrt(a.shape[-1])
        o = torch.einsum("bkgst,btkd->bskgd", causal(u), c)
        x = x + torch.einsum("bskgd,kgde->bse", o, q["layers.gqa.wo"])
        h = rmsnorm(x, q["layers.rms.mlp.g"])
        x = x + (F.silu(h @ q["layers.swiglu.wg"]) * (h @ q["layers.swiglu.wu"])) @ q["layers.swiglu.wd"]
    return rmsnorm(x, p["rms.g"]) @ p["wout"].T


def rate(args, step):
    if step < args.warmup:
        return args.lr * (step + 1) / args.warmup
    u = min(1.0, (step - args.warmup) / (args.total - args.warmup))
    return args.final + (args.lr - args.final) * (1 + math.cos(math.pi * u)) / 2


def windows(data, args, step):
    """The global batch of a step: window w holds bytes [w seq, w seq + seq), and one more for its labels."""
    n = args.windows or len(data) // args.seq
    rows, labels = [], []
    for i in range(step * args.batch, (step + 1) * args.batch):
        w = data_order(args.seed, i // n, n, i % n)
        tok = data[w * args.seq:(w + 1) * args.seq]
        lab = data[w * args.seq + 1:(w + 1) * args.seq + 1]
        rows.append(tok)
        labels.append(np.concatenate([lab, np.full(args.seq - len(lab), -100)]))
    return torch.tensor(np.stack(rows)), torch.tensor(np.stack(labels))


def main():
    a = argparse.ArgumentParser()
    a.add_argument("model", choices=["gpt", "llama"])
    a.add_argument("init")
    a.add_argument("data")
    a.add_argument("--steps", type=int, default=20)
    a.add_argument("--seed", type=int, default=0)
    a.add_argument("--batch", type=int, required=True)
    a.add_argument("--seq", type=int, required=True)
    a.add_argument("--windows", type=int, default=0)
    a.add_argument("--theta", type=float, default=10000)
    a.add_argument("--lr", type=float, required=True)
    a.add_argument("--warmup", type=int, default=0)
    a.add_argument("--total", type=int, required=True, help="steps of the cosine")
    a.add_argument("--final", type=float, default=0)
    a.add_argument("--betas", type=float, nargs=2, default=[0.9, 0.95])
    a.add_argument("--decay", type=float, default=0.1)
    a.add_argument("--no-decay", nargs="*", default=["g", "b", "bq", "bk", "bv", "bo", "bu", "bd"])
    a.add_argument("--clip", type=float, default=1.0)
    args = a.parse_args()

    torch.manual_seed(0)
    params = {k: v.float().clone().requires_grad_() for k, v in load_file(args.init).items()}
    plain = [v for k, v in params.items() if k.split(".")[-1] in args.no_decay]
    decayed = [v for k, v in params.items() if k.split(".")[-1] not in args.no_decay]
    opt = torch.optim.AdamW([{"params": decayed, "weight_decay": args.decay}, {"params": plain, "weight_decay": 0.0}],
                            lr=args.lr, betas=tuple(args.betas), eps=1e-8)
    data = np.fromfile(args.data, dtype=np.uint8).astype(np.int64)
    model = {"gpt": gpt, "llama": llama}[args.model]
    out = {"model": args.model, "torch": torch.__version__, "loss": [], "grad_norm": []}
    for step in range(args.steps):
        tokens, targets = windows(data, args, step)
        for group in opt.param_groups:
            group["lr"] = rate(args, step)
        opt.zero_grad()
        logits = model(params, tokens, args)
        loss = F.cross_entropy(logits.reshape(-1, logits.shape[-1]), targets.reshape(-1), ignore_index=-100)
        loss.backward()
        # in double: clip_grad_norm_ adds in fp32, and is off by 1e-5
        norm = sum(v.grad.double().square().sum() for v in params.values()).sqrt()
        for v in params.values():
            v.grad.mul_(min(1.0, args.clip / (norm.item() + 1e-6)))
        opt.step()
        out["loss"].append(round(loss.item(), 7))
        out["grad_norm"].append(round(norm.item(), 7))
    print(json.dumps(out, indent=1))


if __name__ == "__main__":
    main()
