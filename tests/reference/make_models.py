#!/usr/bin/env python3
"""Losses and gradient norms of PyTorch for the models of examples/, three steps at a small size.

    tests/reference/make_models.py [NAME...]     # needs torch, safetensors, numpy and build/ptc

Writes tests/reference/models/NAME.INPUT.npy (the data), NAME.json (the figures, and how ptc is
called) and NAME.moved: of each param some elements, as "place change" pairs, and by how much three
steps made them smaller. The models are written here from their definitions, in the terms of the
papers: one token, one expert at a time where that is simpler. Dropout is off, and no rate warms up
(tests/models/still.sed), for a change that drowns in the param's rounding tells nothing.
"""
import json
import math
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from make_reference import data_order

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
OUT = os.path.join(HERE, "models")
EXAMPLES = 16
E = torch.einsum


def of(p, path):
    """The params below a path: of(p, "layers")[l] is a layer."""
    return {k[len(path) + 1:]: v for k, v in p.items() if k.startswith(path + ".")}


def row(p, i):
    return {k: v[i] for k, v in p.items()}


def layers(p, path):
    q = of(p, path)
    return [row(q, i) for i in range(next(iter(q.values())).shape[0])]


def ln(x, p, path, eps=1e-5):
    return F.layer_norm(x, x.shape[-1:], p[path + ".g"], p[path + ".b"], eps)


def rms(x, g, eps=1e-5):
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * g


def rope(x, theta=10000.0):
    """x[batch, seq, ..., d]: halves, as Hugging Face has them."""
    n, d = x.shape[1], x.shape[-1]
    angle = torch.arange(n, dtype=torch.float64)[:, None] * theta ** (-torch.arange(0, d, 2, dtype=torch.float64) / d)
    shape = [1, n] + [1] * (x.dim() - 3) + [d]
    cos = torch.cat([angle.cos()] * 2, -1).float().view(shape)
    sin = torch.cat([angle.sin()] * 2, -1).float().view(shape)
    turned = torch.cat([-x[..., d // 2:], x[..., : d // 2]], -1)
    return x * cos + turned * sin


def attend(q, k, v, scale, causal=False, seen=None, bias=None, cap=None, window=None):
    """[batch, positions, heads, d]; seen[batch, keys]; bias[heads, queries, keys]."""
    u = E("bshd,bthd->bhst", q, k) * scale
    if cap:
        u = cap * torch.tanh(u / cap)
    if bias is not None:
        u = u + bias
    s, t = torch.arange(u.shape[-2])[:, None], torch.arange(u.shape[-1])
    bad = torch.zeros_like(u, dtype=torch.bool)
    if causal:
        bad = bad | (t > s)
    if window:
        bad = bad | (s - t >= window)
    if seen is not None:
        bad = bad | ~seen[:, None, None, :]
    w = u.masked_fill(bad, -math.inf).softmax(-1)
    return E("bhst,bthd->bshd", torch.nan_to_num(w), v)


def mha(x, y, p, **how):
    q, k, v = (E("bse,ehd->bshd", z, p["w" + c]) + p["b" + c] for z, c in ((x, "q"), (y, "k"), (y, "v")))
    return E("bshd,hde->bse", attend(q, k, v, 1 / math.sqrt(q.shape[-1]), **how), p["wo"]) + p["bo"]


def mlp(x, p, form):
    h = x @ p["wu"] + p["bu"]
    h = h * torch.sigmoid(1.702 * h) if form == "quick" else F.gelu(h, approximate=form)
    return h @ p["wd"] + p["bd"]


def grouped(q, k, v, scale, **how):
    """q[batch, seq, kv, group, d]; each group reads one head of k and v."""
    b, s, n, g, d = q.shape
    rep = [z.repeat_interleave(g, dim=2) for z in (k, v)]
    return attend(q.reshape(b, s, n * g, d), *rep, scale, **how).reshape(b, s, n, g, d)


def gqa(x, p, theta, sharp=1.0):
    q = rope(E("bse,ekgd->bskgd", x, p["wq"]), theta)
    k = rope(E("bse,ekd->bskd", x, p["wk"]), theta)
    v = E("bse,ekd->bskd", x, p["wv"])
    return E("bskgd,kgde->bse", grouped(q, k, v, sharp / math.sqrt(q.shape[-1]), causal=True), p["wo"])


def swiglu(x, p):
    return (F.silu(x @ p["wg"]) * (x @ p["wu"])) @ p["wd"]


def ce(z, t):
    return F.cross_entropy(z.reshape(-1, z.shape[-1]).float(), t.reshape(-1), ignore_index=-100)


def patches(img, p, side):
    """The convolution of ViT, a class token, positions."""
    w = p["w"].permute(3, 0, 1, 2)
    t = F.conv2d(img, w, stride=side).flatten(2).transpose(1, 2)
    cls = p["cls"].expand(t.shape[0], 1, -1)
    return torch.cat([cls, t], 1) + p["pos"]


def experts(h, e, weight, p, slot):
    """Each token through its experts, as long as their queues have room: first come, first served."""
    out = torch.zeros_like(h)
    for b in range(h.shape[0]):
        queue = {}
        rows = []
        for s in range(h.shape[1]):
            y = torch.zeros_like(h[b, s])
            for j in range(e.shape[2]):
                x = int(e[b, s, j])
                queue[x] = queue.get(x, 0) + 1
                if queue[x] <= slot:
                    y = y + weight[b, s, j] * swiglu(h[b, s], {c: p[c][x] for c in ("wg", "wu", "wd")})
            rows.append(y)
        out[b] = torch.stack(rows)
    return out


def gpt2(p, x, n, _):
    h = p["wte"][x["tokens"]] + p["wpe"]
    for q in layers(p, "layers"):
        z = ln(h, q, "norm.attn")
        h = h + mha(z, z, of(q, "mha"), causal=True)
        h = h + mlp(ln(h, q, "norm.mlp"), of(q, "mlp"), "tanh")
    return ce(ln(h, p, "norm") @ p["wte"].T, x["targets"])


def llama(p, x, n, _):
    h = p["wte"][x["tokens"]]
    for q in layers(p, "layers"):
        h = h + gqa(rms(h, q["rms.attn.g"]), of(q, "gqa"), 5e5)
        h = h + swiglu(rms(h, q["rms.mlp.g"]), of(q, "swiglu"))
    return ce(rms(h, p["rms.g"]) @ p["wout"].T, x["targets"])


def mixtral(p, x, n, _):
    slot = n["seq"] * 2 * 5 // (4 * n["experts"])
    h, aux = p["wte"][x["tokens"]], 0.0
    for q in layers(p, "layers"):
        h = h + gqa(rms(h, q["rms.attn.g"]), of(q, "gqa"), 1e6)
        z, m = rms(h, q["rms.mlp.g"]), of(q, "moe")
        r = z @ m["wr"]
        top = r.topk(2, dim=-1)
        share = torch.stack([(top.indices == g).float().mean((1, 2)) for g in range(n["experts"])], -1)
        aux = aux + n["experts"] * (share * r.softmax(-1).mean(1)).sum(-1).mean()
        h = h + experts(z, top.indices, top.values.softmax(-1), m, slot)
    return ce(rms(h, p["rms.g"]) @ p["wout"].T, x["targets"]) + 0.02 * aux / n["layers"]


def mla(x, p):
    h = rms(x, p["rms.g"])
    nope = p["wuk"].shape[-1]
    u = E("bsr,rhd->bshd", rms(h @ p["wdq"], p["rms.q.g"]), p["wuq"])
    c = rms(h @ p["wdkv"], p["rms.kv.g"])
    kr = rope(h @ p["wkr"])[:, :, None].expand(-1, -1, u.shape[2], -1)
    q = torch.cat([u[..., :nope], rope(u[..., nope:])], -1)
    k = torch.cat([E("bsr,rhd->bshd", c, p["wuk"]), kr], -1)
    o = attend(q, k, E("bsr,rhd->bshd", c, p["wuv"]), 1 / math.sqrt(q.shape[-1]), causal=True)
    return x + E("bshd,hde->bse", o, p["wo"])


def sparse(x, p, bias, n):
    """bias: the state, changed in place for the next step."""
    h = rms(x, p["rms.g"])
    s = torch.sigmoid(h @ p["wr"])
    gate, cells = n["experts"], n["cell"]
    size = gate // cells
    b = s.detach() + bias
    best = b.reshape(*b.shape[:2], cells, size).topk(2, dim=-1).values.sum(-1)
    keep = torch.zeros_like(best, dtype=torch.bool).scatter(-1, best.topk(n["chosen"], dim=-1).indices, True)
    e = b.masked_fill(~keep.repeat_interleave(size, -1), -math.inf).topk(n["pick"], dim=-1).indices
    w = s.gather(-1, e)
    slot = n["seq"] * n["pick"] * 5 // (4 * gate)
    y = experts(h, e, 2.5 * w / w.sum(-1, keepdim=True), p, slot)
    hit = F.one_hot(e, gate).float()
    load = hit.sum((0, 1, 2))
    even = gate * (hit.mean((1, 2)) * (s / s.sum(-1, keepdim=True)).mean(1)).sum(-1).mean()
    bias += 0.001 * torch.sign(load.mean() - load)
    return x + y + swiglu(h, of(p, "swiglu")), even


def deepseek(p, x, n, state):
    h, aux = p["wte"][x["tokens"]], 0.0
    for q in layers(p, "dense"):
        h = mla(h, of(q, "mla"))
        h = h + swiglu(rms(h, q["rms.g"]), of(q, "swiglu"))
    for i, q in enumerate(layers(p, "moe")):
        h = mla(h, of(q, "mla"))
        h, a = sparse(h, of(q, "sparse"), state["moe.sparse.bias"][i], n)
        aux = aux + a
    logits = rms(h, p["rms.g"]) @ p["wout"].T
    labels = x["targets"]
    nxt = torch.where(labels[..., None] >= 0, p["wte"][labels.clamp(min=0)], torch.zeros(()))
    z = rms(h, p["rms.hid.g"]) @ p["wx"] + rms(nxt, p["rms.emb.g"]) @ p["we"]
    z, az = sparse(mla(z, of(p, "mla.mtp")), of(p, "sparse.mtp"), state["sparse.mtp.bias"], n)
    mtp = rms(z, p["rms.mtp.g"]) @ p["wout"].T
    return ce(logits, labels) + 0.3 * ce(mtp, x["later"]) + 0.0001 * (aux + az)


def bert(p, x, n, _):
    h = ln(p["wte"][x["tokens"]] + p["wpe"] + p["wse"][x["segments"]], p, "norm.in", 1e-12)
    for q in layers(p, "layers"):
        h = ln(h + mha(h, h, of(q, "mha"), seen=x["real"]), q, "norm.attn", 1e-12)
        h = ln(h + mlp(h, of(q, "mlp"), "none"), q, "norm.mlp", 1e-12)
    h = ln(F.gelu(h @ p["wt"] + p["bt"]), p, "norm.head", 1e-12)
    return ce(h @ p["wte"].T + p["bv"], x["labels"])


def vit(p, x, n, _):
    h = patches(x["image"], of(p, "patches"), n["side"])
    h = torch.cat([h[:, :1], h[:, 1:] + p["bp"]], 1)
    for q in layers(p, "layers"):
        z = ln(h, q, "norm.attn", 1e-6)
        h = h + mha(z, z, of(q, "mha"))
        h = h + mlp(ln(h, q, "norm.mlp", 1e-6), of(q, "mlp"), "none")
    return ce(ln(h[:, 0], p, "norm", 1e-6) @ p["wc"] + p["bc"], x["label"])


def t5_buckets(far, room):
    """As transformers' T5 has it, for distances >= 0 and a largest distance of 128."""
    near = room // 2
    big = near + (torch.log(far.clamp(min=1).float() / near) / math.log(128 / near) * (room - near)).long()
    return torch.where(far < near, far, big.clamp(max=room - 1))


def t5_attn(x, y, p, bias=None, causal=False):
    q, k, v = (E("bse,ehd->bshd", z, p["w" + c]) for z, c in ((x, "q"), (y, "k"), (y, "v")))
    return E("bshd,hde->bse", attend(q, k, v, 1.0, bias=bias, causal=causal), p["wo"])


def t5(p, x, n, _):
    room = n["buckets"]
    s, d = torch.arange(n["src"]), torch.arange(n["dst"])
    ahead = s[None, :] - s[:, None]
    both = p["re"][t5_buckets(ahead.abs(), room // 2) + (ahead > 0).long() * (room // 2)].permute(2, 0, 1)
    back = p["rd"][t5_buckets((d[:, None] - d[None, :]).clamp(min=0), room)].permute(2, 0, 1)
    h = p["wte"][x["tokens"]]
    for q in layers(p, "enc"):
        z = rms(h, q["rms.attn.g"], 1e-6)
        h = h + t5_attn(z, z, of(q, "attn"), both)
        h = h + F.relu(rms(h, q["rms.mlp.g"], 1e-6) @ q["ffn.wu"]) @ q["ffn.wd"]
    mem = rms(h, p["rms.enc.g"], 1e-6)
    h = p["wte"][x["given"]]
    for q in layers(p, "dec"):
        z = rms(h, q["rms.attn.g"], 1e-6)
        a = {k: v for k, v in of(q, "attn").items() if not k.startswith("cross")}
        h = h + t5_attn(z, z, a, back, True)
        h = h + t5_attn(rms(h, q["rms.cross.g"], 1e-6), mem, of(q, "attn.cross"))
        h = h + F.relu(rms(h, q["rms.mlp.g"], 1e-6) @ q["ffn.wu"]) @ q["ffn.wd"]
    return ce(rms(h, p["rms.dec.g"], 1e-6) / math.sqrt(n["embed"]) @ p["wte"].T, x["answer"])


def mlp_bn(p, x, n, _):
    h = x["image"]
    for w, path in (("w1", "bn.one"), ("w2", "bn.two")):
        h = F.relu(F.batch_norm(h @ p[w], None, None, p[path + ".g"], p[path + ".b"], training=True))
    return ce(h @ p["w3"] + p["b3"], x["label"])


def clip(p, x, n, _):
    def tower(h, path, causal):
        for q in layers(p, path):
            z = ln(h, q, "block.norm.attn")
            h = h + mha(z, z, of(q, "block.mha"), causal=causal)
            h = h + mlp(ln(h, q, "block.norm.mlp"), of(q, "block.mlp"), "quick")
        return h

    a = tower(ln(patches(x["image"], of(p, "patches"), n["side"]), p, "norm.pre"), "ilayers", False)
    b = tower(p["wte"][x["text"]] + p["tpe"], "tlayers", True)
    fi = F.normalize(ln(a, p, "norm.image")[:, 0] @ p["wi"], dim=-1)
    end = x["text"].argmax(-1)
    ft = F.normalize(ln(b, p, "norm.text")[torch.arange(len(end)), end] @ p["wt"], dim=-1)
    s = fi @ ft.T * p["scale"].exp().clamp(max=100)
    t = torch.arange(len(end))
    return (F.cross_entropy(s, t) + F.cross_entropy(s.T, t)) / 2


def gemma2(p, x, n, _):
    h = p["wte"][x["tokens"]] * math.sqrt(n["embed"])
    for i, q in enumerate(layers(p, "layers")):
        z = rms(h, 1 + q["rms.one.g"])
        a, b = rope(E("bse,ekgd->bskgd", z, q["wq"])), rope(E("bse,ekd->bskd", z, q["wk"]))
        o = grouped(a, b, E("bse,ekd->bskd", z, q["wv"]), 1 / math.sqrt(a.shape[-1]), causal=True, cap=50.0,
                    window=n["local"] if i % 2 == 0 else None)
        h = h + rms(E("bskgd,kgde->bse", o, q["wo"]), 1 + q["rms.two.g"])
        z = rms(h, 1 + q["rms.three.g"])
        z = F.gelu(z @ q["wg"], approximate="tanh") * (z @ q["wu"])
        h = h + rms(z @ q["wd"], 1 + q["rms.four.g"])
    return ce(30 * torch.tanh(rms(h, 1 + p["rms.g"]) @ p["wte"].T / 30), x["targets"])


def lora(p, x, n, _):
    h = p["wte"][x["tokens"]]
    for q in layers(p, "layers"):
        z = rms(h, q["rms.attn.g"])
        wq = q["wq"] + 2 * E("el,lkgd->ekgd", q["lora_qa"], q["lora_qb"])
        wv = q["wv"] + 2 * E("el,lkd->ekd", q["lora_va"], q["lora_vb"])
        h = h + gqa(z, {"wq": wq, "wk": q["wk"], "wv": wv, "wo": q["wo"]}, 5e5)
        h = h + swiglu(rms(h, q["rms.mlp.g"]), of(q, "swiglu"))
    return ce(rms(h, p["rms.g"]) @ p["wout"].T, x["labels"])


def mup(p, x, n, _):
    head = n["embed"] // (n["kv"] * n["group"])
    h = p["wte"][x["tokens"]]
    for q in layers(p, "layers"):
        h = h + gqa(rms(h, q["rms.attn.g"]), of(q, "gqa"), 1e4, 8 / math.sqrt(head))
        h = h + mlp(rms(h, q["rms.mlp.g"]), of(q, "mlp"), "tanh")
    return ce(rms(h, p["rms.g"]) @ p["wout"].T * n["base"] / n["embed"], x["targets"])


# -- training --

def cosine(peak, steps, final=0.0):
    return lambda step: final + (peak - final) * (1 + math.cos(math.pi * max(step - 1, 0) / (steps - 1))) / 2


def linear(peak, steps):
    return lambda step: peak * (1 - max(step - 1, 0) / (steps - 1))


def last(path):
    return path.split(".")[-1]


GAINS = {"g", "b", "bq", "bk", "bv", "bo", "bu", "bd", "bp", "bc", "bt"}


def stacked(path):
    return path.split(".")[0] in ("enc", "dec")


class Adafactor:
    """Shazeer and Stern 2018, algorithm 4 without momentum and relative steps. Each layer is a param."""

    def __init__(self, params):
        self.params = {(k, i): v[i] if stacked(k) else v
                       for k, v in params.items() for i in range(len(v) if stacked(k) else 1)}
        self.whole, self.state, self.t = params, {}, 0

    def step(self, lr):
        self.t += 1
        beta = 1 - self.t ** -0.8
        for (k, i), v in self.params.items():
            g = self.whole[k].grad
            g = g[i] if stacked(k) else g
            u = g.square() + 1e-30
            r, c = self.state.get((k, i), (0.0, 0.0))
            if g.dim() >= 2:
                r = beta * r + (1 - beta) * u.mean(-1)
                c = beta * c + (1 - beta) * u.mean(-2)
                second = r[..., None] * c[..., None, :] / r.mean(-1)[..., None, None]
            else:
                second = r = beta * r + (1 - beta) * u
            self.state[k, i] = (r, c)
            update = g / second.sqrt()
            v.data -= lr * update / max(1.0, update.square().mean().sqrt().item())


# name: loss, kind of optimizer, rate, options, which params it trains, inputs
TOKENS = {"tokens": "tokens"}
MODELS = {
    "gpt2": (gpt2, "adamw", cosine(6e-4, 600000, 6e-5), dict(wd=0.1, clip=1.0, plain=GAINS, betas=(0.9, 0.95)), None, TOKENS),
    "llama": (llama, "adamw", cosine(8e-5, 1200000), dict(wd=0.1, clip=1.0, plain={"g"}, betas=(0.9, 0.95)), None, TOKENS),
    "mixtral": (mixtral, "adamw", cosine(3e-4, 100000), dict(wd=0.1, clip=1.0, plain={"g"}), None, TOKENS),
    "deepseek": (deepseek, "adamw", lambda step: 2.2e-4, dict(wd=0.1, clip=1.0, plain={"g"}, betas=(0.9, 0.95)), None, TOKENS),
    "bert": (bert, "adamw", linear(1e-4, 1000000), dict(wd=0.01, plain=GAINS), None,
             {"tokens": "tokens", "segments": "kinds", "real": "bool", "labels": "labels"}),
    "vit": (vit, "adamw", cosine(3e-3, 300000), dict(wd=0.3, clip=1.0, plain=GAINS | {"cls"}), None,
            {"image": "float", "label": "classes"}),
    "t5": (t5, "adafactor", lambda step: 1 / math.sqrt(max(step, 10000)), {}, None,
           {"tokens": "tokens", "given": "tokens", "answer": "tokens"}),
    "mlp_bn": (mlp_bn, "sgd", lambda step: 0.1, dict(momentum=0.9), None, {"image": "float", "label": "classes"}),
    "clip": (clip, "adamw", cosine(5e-4, 400000), dict(wd=0.2, plain=GAINS | {"scale"}), None,
             {"image": "float", "text": "tokens"}),
    "gemma2": (gemma2, "adamw", cosine(1e-4, 500000), dict(wd=0.1, clip=1.0, plain={"g"}), None, TOKENS),
    "lora": (lora, "adamw", lambda step: 2e-4, dict(wd=0.01), "lora_", {"tokens": "tokens", "labels": "labels"}),
    "mup": (mup, "adamw", lambda step: 6e-3, dict(wd=0.1, scale=True), None, TOKENS),
}


def groups(params, opt):
    """One group a param: decay and scale may differ."""
    out = []
    for k, v in params.items():
        scale = 0.5 if opt.get("scale") and k.startswith("layers.") and last(k).startswith("w") else 1.0
        out.append({"params": [v], "weight_decay": 0.0 if last(k) in opt.get("plain", ()) else opt["wd"], "scale": scale})
    return out


def draw(name, inputs, shapes, n):
    """The data, by input; 16 examples."""
    rng = np.random.default_rng(sum(map(ord, name)))
    data = {}
    for k, kind in inputs.items():
        shape = (EXAMPLES,) + shapes[k]
        if kind == "float":
            x = rng.standard_normal(shape).astype(np.float32)
        elif kind == "bool":
            x = rng.random(shape) < 0.75
        else:
            x = rng.integers(0, {"kinds": 2, "classes": n.get("classes", 0)}.get(kind, n.get("vocab", 0)), shape).astype(np.int32)
            if kind == "labels":
                x[rng.random(shape) < 0.3] = -100
        data[k] = x
    return data


def following(x, k):
    flat = np.concatenate([x.reshape(-1)[k:], np.full(k, -100, x.dtype)])
    return flat.reshape(x.shape)


def sizes_of(name):
    text = open(os.path.join(ROOT, "tests/models", name + ".pdsl")).read()
    sets = text.split("# SET: ")[1].split("\n")[0]
    return sets, {k: int(v) for k, v in (x.split("=") for x in sets.split(","))}


def shapes_of(name, n):
    seq = {"tokens": (n.get("seq", n.get("src")),), "segments": (n.get("seq"),), "real": (n.get("seq"),),
           "labels": (n.get("seq"),), "label": (), "given": (n.get("dst"),), "answer": (n.get("dst"),), "text": (n.get("ts"),)}
    seq["image"] = (n["pixels"],) if "pixels" in n else (3, n.get("rows"), n.get("cols"))
    return seq


def still(args, tmp):
    """The same with copies of the models that still.sed changed."""
    subprocess.run("mkdir -p %s/examples %s/tests/models && cp tests/models/*.pdsl %s/tests/models && for f in examples/*.pdsl; do "
                   "sed -f tests/models/still.sed $f >%s/$f; done" % (tmp, tmp, tmp, tmp), shell=True, check=True, cwd=ROOT)
    return [os.path.join(tmp, a) if a.startswith("tests/models/") else a for a in args]


def train(name, params, state, data, n):
    loss_of, kind, rate, opt, only, _ = MODELS[name]
    chosen = {k: v for k, v in params.items() if not only or last(k).startswith(only)}
    for v in chosen.values():
        v.requires_grad_()
    if kind == "adamw":
        optim = torch.optim.AdamW(groups(chosen, opt), lr=1.0, betas=opt.get("betas", (0.9, 0.999)), eps=1e-8)
    elif kind == "sgd":
        optim = torch.optim.SGD(chosen.values(), lr=1.0, momentum=opt["momentum"])
    else:
        optim = Adafactor(chosen)
    losses, norms, sure = [], [], {k: True for k in chosen}
    for step in range(3):
        at = [data_order(0, (step * n["batch"] + j) // EXAMPLES, EXAMPLES, (step * n["batch"] + j) % EXAMPLES)
              for j in range(n["batch"])]
        x = {k: torch.tensor(v[at]) for k, v in data.items()}
        x = {k: v.long() if v.dtype == torch.int32 else v for k, v in x.items()}
        for v in chosen.values():
            v.grad = None
        loss = loss_of(params, x, n, state)
        loss.backward()
        norm = sum(v.grad.double().square().sum() for v in chosen.values() if v.grad is not None).sqrt().item()
        for k, v in chosen.items():  # that of a bias of keys is 0 but for rounding
            g = v.grad.abs()
            sure[k] = sure[k] & (g >= 0.01 * g.max()) & (last(k) != "bk")
        if opt.get("clip"):
            for v in chosen.values():
                v.grad.mul_(min(1.0, opt["clip"] / (norm + 1e-6)))
        if kind == "adafactor":
            optim.step(rate(step))
        else:
            for g in optim.param_groups:
                g["lr"] = rate(step) * g.get("scale", 1.0)
            optim.step()
        losses.append(round(loss.item(), 7))
        norms.append(float("%.7g" % norm))
    return losses, norms, sure


def samples(before, after, sure):
    """Some elements of each tensor with a gradient that is not of rounding."""
    for k in sorted(sure):
        at = torch.nonzero(sure[k].reshape(-1)).reshape(-1)
        at = at[:: max(1, len(at) // 8)][:12]
        by = (before[k].double() - after[k].detach().double()).reshape(-1)
        yield k + "".join(" %d %.7g" % (i, by[i]) for i in at.tolist()) + "\n"


def make(name):
    sets, n = sizes_of(name)
    n.setdefault("side", 4)
    inputs = MODELS[name][5]
    data = draw(name, inputs, shapes_of(name, n), n)
    if name in ("bert", "t5", "lora"):
        sets += ",drop=0"
    files = []
    for k, v in data.items():
        path = os.path.join("tests/reference/models", "%s.%s.npy" % (name, k))
        np.save(os.path.join(ROOT, path), v)
        files.append("%s=%s" % (k, path))
    ptc = os.environ.get("PTC", os.path.join(ROOT, "build/ptc"))
    args = ["run", "tests/models/%s.pdsl" % name, "--plan", "small", "--set", sets, "--data", ",".join(files)]
    with tempfile.TemporaryDirectory() as tmp:
        init = os.path.join(tmp, "init")
        subprocess.run([ptc] + still(args, tmp) + ["--mesh", "dp=1", "--steps", "0", "--save", init], check=True, cwd=ROOT,
                       stdout=subprocess.DEVNULL)
        loaded = {k: v.float().clone() for k, v in load_file(init).items() if ":" not in k}
    state = {k: v for k, v in loaded.items() if last(k) in ("bias", "run_mean", "run_var")}
    params = {k: v for k, v in loaded.items() if k not in state}
    if "tokens" in data and name in ("gpt2", "llama", "mixtral", "deepseek", "gemma2", "mup"):
        data["targets"] = following(data["tokens"], 1)
        data["later"] = following(data["tokens"], 2)
    before = {k: v.detach().clone() for k, v in {**params, **state}.items()}
    losses, norms, sure = train(name, params, state, data, n)
    with open(os.path.join(OUT, name + ".moved"), "w") as f:
        f.writelines(samples(before, params, sure))
        if name == "deepseek":
            f.writelines(samples(before, state, {k: torch.ones_like(v, dtype=torch.bool) for k, v in state.items()}))
    with open(os.path.join(OUT, name + ".json"), "w") as f:
        json.dump({"args": args, "torch": torch.__version__, "loss": losses, "grad_norm": norms}, f, indent=1)
        f.write("\n")
    print(name, losses, norms)


if __name__ == "__main__":
    torch.manual_seed(0)
    os.makedirs(OUT, exist_ok=True)
    for model in sys.argv[1:] or MODELS:
        make(model)
