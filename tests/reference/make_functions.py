#!/usr/bin/env python3
"""Values and gradients of every function of the language, by PyTorch in double precision.

    tests/reference/make_functions.py            # needs torch, safetensors, numpy and build/ptc

Writes tests/reference/functions/NAME.pdsl, the data of its inputs, and NAME.txt with the figures.
Each case is a def with params of its own: its term of the loss is sum(f(x) * c). The gradient of x
is then generic, and that of the param c is the value of f itself. A step of sgd(lr = 1) moves each
param by its gradient, which the test finds by subtracting. Initial params are drawn by ptc.
"""
import math
import os
import re
import subprocess
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import load_file

from make_reference import data_order

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
OUT = os.path.join(HERE, "functions")
E = torch.einsum
DIMS = """dim batch = 4, rows = 5, cols = 6, seq = 8, ctx = seq, keys = 7
dim heads = 2, group = 2, head = 4, wide = 6, vocab = 9, pick = 2
dim left = 3, right = 4, both = left + right, half = 4, pair = 3, duo = 2, layers = 3, slot = 3
"""
INPUTS = {"tok": ("input tok[batch, seq]: token(vocab)\n", (4, 8)),
          "label": ("input label[batch, seq]: token(cols)\n", (4, 8)),
          "seen": ("input seen[batch, ctx]: bool\n", (4, 8))}
PLAN = """
plan {
    mesh dp = 1, tp = 1
    batch, rows -> dp
    cols, heads, vocab, seq -> tp
}
"""
S, T = torch.arange(8)[:, None], torch.arange(8)
PROGRAMS = {}


def case(program, name, params, body, dims, f, scale=1):
    """params: 'x[rows, cols], y[rows]'; body: statements, the last an expression; f: torch, of the params in order."""
    PROGRAMS.setdefault(program, []).append((name, params, body, dims, f, scale))


# -- pointwise --

X, XY, D = "x[rows, cols]", "x[rows, cols], y[rows, cols]", "rows, cols"
for fn, g in (("exp", torch.exp), ("tanh", torch.tanh), ("sigmoid", torch.sigmoid), ("relu", torch.relu), ("silu", F.silu),
              ("abs", torch.abs), ("square", torch.square), ("sign", torch.sign), ("fp32", lambda x: x)):
    case("pointwise", fn, X, f"{fn}(x)", D, g)
for fn, g in (("log", torch.log), ("sqrt", torch.sqrt), ("rsqrt", torch.rsqrt)):
    case("pointwise", fn, X, f"{fn}(square(x) + 0.25)", D, lambda x, g=g: g(x * x + 0.25))
case("pointwise", "gelu", X, "gelu(x)", D, F.gelu)
case("pointwise", "gelu_erf", X, "gelu(x, erf)", D, F.gelu)
case("pointwise", "gelu_tanh", X, "gelu(x, tanh)", D, lambda x: F.gelu(x, approximate="tanh"))
case("pointwise", "gelu_quick", X, "gelu(x, quick)", D, lambda x: x * torch.sigmoid(1.702 * x))
case("pointwise", "detach", X, "x * detach(x)", D, lambda x: x * x.detach())
case("pointwise", "int", X, "x * int(3 * x)", D, lambda x: x * (3 * x).detach().trunc())
case("pointwise", "bf16", X, "fp32(bf16(x))", D, lambda x: x.float().bfloat16().double())
case("pointwise", "pow", XY, "pow(square(x) + 0.25, y)", D, lambda x, y: torch.pow(x * x + 0.25, y))
case("pointwise", "pow_2", X, "pow(x, 2)", D, lambda x: x ** 2)
case("pointwise", "pow_3", X, "pow(x, 3)", D, lambda x: x ** 3)
case("pointwise", "pow_base", X, "pow(2.5, x)", D, lambda x: torch.pow(torch.tensor(2.5, dtype=torch.float64), x))
case("pointwise", "pow_minus", X, "pow(square(x) + 0.5, -1.5)", D, lambda x: (x * x + 0.5) ** -1.5)
case("pointwise", "min", XY, "min(x, y)", D, torch.minimum)
case("pointwise", "max", XY, "max(x, y)", D, torch.maximum)
case("pointwise", "clamp", X, "max(min(x, 0.5), -0.5)", D, lambda x: x.clamp(-0.5, 0.5))
case("pointwise", "where", XY, "where(x > y, 2 * x, x * y)", D, lambda x, y: torch.where(x > y, 2 * x, x * y))
case("pointwise", "where_inf", X, "exp(where(x > 0, -inf, x))", D, lambda x: torch.where(x > 0, 0, x.exp()))
case("pointwise", "logic", XY, "where((x > 0) & !(y > 0) | (x + y < -1), x, y)", D,
     lambda x, y: torch.where((x > 0) & ~(y > 0) | (x + y < -1), x, y))
case("pointwise", "compare", XY, "x * (x >= y) + y * (index(cols) != 2) + x * y * (index(cols) <= index(rows))", D,
     lambda x, y: x * (x >= y) + y * (T[:6] != 2) + x * y * (T[:6] <= S[:5]))
case("pointwise", "equal", XY, "x * y * (sign(x) == sign(y))", D, lambda x, y: x * y * (x.sign() == y.sign()))
case("pointwise", "add", XY, "x + y - 1", D, lambda x, y: x + y - 1)
case("pointwise", "sub", XY, "3 - x - 2 * y", D, lambda x, y: 3 - x - 2 * y)
case("pointwise", "mul", XY, "-x * y", D, lambda x, y: -x * y)
case("pointwise", "div", XY, "x / (square(y) + 0.5)", D, lambda x, y: x / (y * y + 0.5))
case("pointwise", "div_int", X, "x * ((index(cols) + 1) / 4) + (7 - index(rows)) // 2", D,
     lambda x: x * ((T[:6] + 1) / 4) + (7 - S[:5]) // 2)
case("pointwise", "floor", X, "x * (2 * x // 1)", D, lambda x: x * (2 * x).detach().floor())
case("pointwise", "remainder", XY, "x * (x % 0.75) + y * ((index(cols) - 4) % 3)", D,
     lambda x, y: x * (x % 0.75) + y * ((T[:6] - 4) % 3))
case("pointwise", "repeat_rows", "x[rows, cols], y[cols], z[rows]", "x * y + z", D, lambda x, y, z: x * y + z[:, None])
case("pointwise", "index", X, "x * index(cols) + index(rows)", D, lambda x: x * T[:6] + S[:5])
case("pointwise", "dropout_0", X, "dropout(x, 0)", D, lambda x: x)
case("pointwise", "dropout_rows", X, "dropout(x, 0, rows)", D, lambda x: x)

# -- reductions, softmax, norms --

for fn, g in (("sum", torch.sum), ("mean", torch.mean), ("max", torch.amax), ("min", torch.amin), ("lse", torch.logsumexp)):
    case("reduce", fn, X, f"{fn}(x, cols)", "rows", lambda x, g=g: g(x, 1))
    case("reduce", fn + "_first", X, f"{fn}(x, rows)", "cols", lambda x, g=g: g(x, 0))
    if fn != "lse":
        case("reduce", fn + "_two", "x[seq, rows, cols]", f"{fn}(x, seq, cols)", "rows", lambda x, g=g: g(x, (0, 2)))
        case("reduce", fn + "_all", X, f"{fn}(x)", "", lambda x, g=g: g(x, (0, 1)))
case("reduce", "sum_bool", X, "sum(x > 0, cols) * mean(x, cols)", "rows", lambda x: (x > 0).sum(1) * x.mean(1))
case("reduce", "lse_big", X, "lse(100 * x, cols)", "rows", lambda x: torch.logsumexp(100 * x, 1), 0.1)
case("reduce", "softmax", X, "softmax(x, cols)", D, lambda x: x.softmax(1))
case("reduce", "softmax_first", X, "softmax(3 * x, rows)", D, lambda x: (3 * x).softmax(0))
case("reduce", "softmax_inf", X, "softmax(where(index(cols) > index(rows), -inf, x), cols)", D,
     lambda x: torch.where(T[:6] > S[:5], -math.inf, x).softmax(1))
case("reduce", "layernorm", X, "layernorm(x, cols)", D, lambda x: F.layer_norm(x, (6,), eps=1e-5))
case("reduce", "layernorm_eps", X, "layernorm(x, cols, eps = 0.1)", D, lambda x: F.layer_norm(x, (6,), eps=0.1))
case("reduce", "layernorm_first", X, "layernorm(x, rows)", D, lambda x: F.layer_norm(x.T, (5,), eps=1e-5).T)
case("reduce", "rmsnorm", X, "rmsnorm(x, cols)", D, lambda x: F.rms_norm(x, (6,), eps=1e-5))
case("reduce", "rmsnorm_eps", X, "rmsnorm(x, cols, eps = 0.1)", D, lambda x: F.rms_norm(x, (6,), eps=0.1))
case("reduce", "l2norm", X, "l2norm(x, cols)", D, lambda x: F.normalize(x, dim=1))
case("reduce", "l2norm_first", X, "l2norm(x, rows)", D, lambda x: F.normalize(x, dim=0))
case("reduce", "argmax", X, "x[cols = argmax(x, cols)] + argmax(x, cols)", "rows", lambda x: x.amax(1) + x.argmax(1))
case("reduce", "topk", X, "x[cols = topk(x, cols, pick)]", "rows, pick", lambda x: x.topk(2, 1).values)
case("reduce", "topk_at", X, "e = topk(x, cols, pick)\nx[cols = e] * e", "rows, pick",
     lambda x: x.topk(2, 1).values * x.topk(2, 1).indices)


def rank(e):
    """Of each element, how many earlier ones in the row are equal."""
    return (e[..., None, :] == e[..., :, None]).tril(-1).sum(-1)


case("reduce", "rank", "x[seq, rows]", "x * rank(int(2 * x), seq)", "seq, rows", lambda x: x * rank((2 * x).T.trunc()).T)
case("reduce", "rank_two", "x[batch, seq, pick]", "x * rank(int(2 * x), seq, pick)", "batch, seq, pick",
     lambda x: x * rank((2 * x).trunc().flatten(1)).view(4, 8, 2))

# -- losses --

B = "z[batch, seq, cols]"


def ce(z, t, reduction="mean"):
    return F.cross_entropy(z.reshape(-1, z.shape[-1]), t.reshape(-1), ignore_index=-100, reduction=reduction)


case("loss", "cross_entropy", B, "cross_entropy(z, label, cols)", "", lambda z: ce(z, DATA["label"]))
case("loss", "cross_entropy_first", "z[cols, batch, seq]", "cross_entropy(z, label, cols)", "",
     lambda z: ce(z.permute(1, 2, 0), DATA["label"]))
case("loss", "cross_entropy_sharp", B, "cross_entropy(20 * z, label, cols)", "", lambda z: ce(20 * z, DATA["label"]))
case("loss", "cross_entropy_none", B, "cross_entropy(z, 0 * label - 100, cols)", "", lambda z: 0 * z.sum())
case("loss", "nll", B, "nll(z, label, cols)", "batch, seq", lambda z: ce(z, DATA["label"], "none").view(4, 8))
case("loss", "nll_argmax", X, "nll(x, argmax(x, cols), cols)", "rows", lambda x: F.cross_entropy(x, x.argmax(1), reduction="none"))

# -- products, moves --

case("moves", "product", "x[rows, cols], y[cols, wide]", "x @ y", "rows, wide", lambda x, y: x @ y)
case("moves", "product_two", "x[rows, cols, heads], y[heads, cols, wide]", "x @[cols, heads] y", "rows, wide",
     lambda x, y: E("rch,hcw->rw", x, y))
case("moves", "product_batch", "x[batch, rows, cols], y[batch, cols, wide]", "x @ y", "batch, rows, wide", lambda x, y: x @ y)
case("moves", "product_chain", "x[rows, cols], y[cols, wide], z[wide, left]", "x @ y @ z", "rows, left", lambda x, y, z: x @ y @ z)
case("moves", "outer", "x[seq, head]", "x @[head] x[seq -> ctx]", "seq, ctx", lambda x: x @ x.T)
case("moves", "rename", "x[seq, head]", "softmax(x @[head] x[seq -> ctx], ctx) @ x[seq -> ctx]", "seq, head",
     lambda x: (x @ x.T).softmax(1) @ x)
case("moves", "lookup", "x[vocab, cols]", "x[vocab = tok]", "batch, seq, cols", lambda x: x[DATA["tok"]])
case("moves", "lookup_shared", "x[batch, seq, cols]", "x[cols = tok % cols]", "batch, seq",
     lambda x: x.gather(2, (DATA["tok"] % 6)[..., None])[..., 0])
case("moves", "lookup_outside", "x[vocab, cols]", "x[vocab = tok + 3]", "batch, seq, cols",
     lambda x: F.pad(x, (0, 0, 0, 3))[DATA["tok"] + 3])
case("moves", "lookup_two", "x[vocab, cols]", "x[vocab = tok, cols = (tok + index(seq)) % cols]", "batch, seq",
     lambda x: x[DATA["tok"], (DATA["tok"] + T) % 6])
case("moves", "one", "x[seq, cols]", "x[seq = 5]", "cols", lambda x: x[5])
case("moves", "slice", "x[seq, cols]", "x[seq = index(half) + 3]", "half, cols", lambda x: x[3:7])
case("moves", "stride", "x[seq, cols]", "x[seq = 2 * index(half) + 1]", "half, cols", lambda x: x[1::2])
case("moves", "shift", "x[seq, cols]", "x[seq = index(seq) - 1]", "seq, cols", lambda x: F.pad(x, (0, 0, 1, -1)))
case("moves", "shift_left", "x[seq, cols]", "x[seq = index(seq) + 2]", "seq, cols", lambda x: F.pad(x, (0, 0, -2, 2)))
case("moves", "reverse", "x[seq, cols]", "x[seq = 7 - index(seq)]", "seq, cols", lambda x: x.flip(0))
case("moves", "split", X, "x[cols = index(pair) * duo + index(duo)]", "rows, pair, duo", lambda x: x.view(5, 3, 2))
case("moves", "merge", "x[rows, pair, duo]", "x[pair = index(cols) // duo, duo = index(cols) % duo]", D, lambda x: x.reshape(5, 6))
case("moves", "concat", "x[left, cols], y[right, cols]", "concat(x, y, left, right, both)", "both, cols",
     lambda x, y: torch.cat([x, y]))
case("moves", "concat_last", "x[cols, left], y[cols, right]", "concat(x, y, left, right, both)", "cols, both",
     lambda x, y: torch.cat([x, y], 1))
case("moves", "scatter", "x[batch, seq, cols]", "h[batch, vocab, cols] = scatter(x, vocab = tok)\nh", "batch, vocab, cols",
     lambda x: E("bsv,bsc->bvc", F.one_hot(DATA["tok"], 9).double(), x))
case("moves", "scatter_summed", "x[batch, seq, cols]", "h[vocab, cols] = scatter(x, vocab = tok)\nh", "vocab, cols",
     lambda x: E("bsv,bsc->vc", F.one_hot(DATA["tok"], 9).double(), x))
case("moves", "scatter_outside", "x[batch, seq, cols]", "h[batch, vocab, cols] = scatter(x, vocab = tok * 2 - 2)\nh",
     "batch, vocab, cols", lambda x: E("bsv,bsc->bvc", (DATA["tok"][..., None] * 2 - 2 == torch.arange(9)).double(), x))
case("moves", "scatter_slots", "x[batch, seq, cols]",
     "h[batch, vocab, slot, cols] = scatter(x, vocab = tok, slot = rank(tok, seq))\nh", "batch, vocab, slot, cols",
     lambda x: E("bsv,bsk,bsc->bvkc", F.one_hot(DATA["tok"], 9).double(),
                 (rank(DATA["tok"])[..., None] == torch.arange(3)).double(), x))


def rope(x, theta=10000.0, at=None):
    """x[seq, ..., d]: the halves of d are the two parts of each pair."""
    d = x.shape[-1]
    p = torch.arange(x.shape[0]) if at is None else at
    angle = (p.double()[:, None] * theta ** (-torch.arange(0, d, 2).double() / d)).view(-1, *[1] * (x.dim() - 2), d // 2)
    a, b = x[..., : d // 2], x[..., d // 2:]
    return torch.cat([a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin()], -1)


case("moves", "rope", "x[seq, head]", "rope(x, seq, head)", "seq, head", rope)
case("moves", "rope_theta", "x[seq, heads, wide]", "rope(x, seq, wide, theta = 100)", "seq, heads, wide",
     lambda x: rope(x, 100.0))
case("moves", "rope_at", "x[seq, head]", "rope(x, index(seq) * 2 + 5, head)", "seq, head", lambda x: rope(x, at=T * 2 + 5))
case("moves", "repeat", "x[cols], w[layers, cols]", None, "cols",
     lambda x, w: [x := torch.tanh(x * w[i]) + i for i in range(3)][-1])

# -- attention: of values in bf16, not of params, whose gradients are fp32 --

Q = "q[batch, heads, seq, head], k[batch, heads, ctx, head], v[batch, heads, ctx, head]"
QD = "batch, heads, seq, head"


def attend(q, k, v, bad=None, bias=0, cap=None, scale=None):
    u = E("...sd,...td->...st", 0.9 * q, 1.1 * k) * (scale or 1 / math.sqrt(q.shape[-1]))
    u = (cap * torch.tanh(u / cap) if cap else u) + bias
    return torch.nan_to_num((u if bad is None else u.masked_fill(bad, -math.inf)).softmax(-1)) @ (0.8 * v)


def unseen():
    return ~DATA["seen"][:, None, None, :]


case("attention_params", "params", Q, "attention(q, k, v, head, ctx)", QD,
     lambda q, k, v: attend(q / 0.9, k / 1.1, v / 0.8))
case("attention", "plain", Q, "attention(0.9 * q, 1.1 * k, 0.8 * v, head, ctx)", QD, attend)
case("attention", "causal", Q, "attention(0.9 * q, 1.1 * k, 0.8 * v, head, ctx, causal = seq)", QD, lambda q, k, v: attend(q, k, v, T > S))
case("attention", "window", Q, "attention(0.9 * q, 1.1 * k, 0.8 * v, head, ctx, causal = seq, window = 3)", QD,
     lambda q, k, v: attend(q, k, v, (T > S) | (S - T >= 3)))
case("attention", "mask", Q, "attention(0.9 * q, 1.1 * k, 0.8 * v, head, ctx, mask = seen)", QD, lambda q, k, v: attend(q, k, v, unseen()))
case("attention", "mask_causal", Q, "attention(0.9 * q, 1.1 * k, 0.8 * v, head, ctx, causal = seq, mask = seen)", QD,  # rows that see no key
     lambda q, k, v: nan_free(q, k, v, (T > S) | unseen()))
case("attention", "bias", Q + ", b[heads, seq, ctx]", "attention(0.9 * q, 1.1 * k, 0.8 * v, head, ctx, bias = b)", QD,
     lambda q, k, v, b: attend(q, k, v, bias=b))
case("attention", "bias_far", Q + ", b[heads]", "far[seq, ctx] = index(ctx) - index(seq)\n"
     "attention(0.9 * q, 1.1 * k, 0.8 * v, head, ctx, causal = seq, bias = b * far)", QD,
     lambda q, k, v, b: attend(q, k, v, T > S, bias=b[:, None, None] * (T - S)))
case("attention", "cap", Q, "attention(0.9 * q, 1.1 * k, 0.8 * v, head, ctx, causal = seq, cap = 0.7)", QD,
     lambda q, k, v: attend(q, k, v, T > S, cap=0.7))
case("attention", "scale", Q, "attention(0.9 * q, 1.1 * k, 0.8 * v, head, ctx, scale = 1.5)", QD, lambda q, k, v: attend(q, k, v, scale=1.5))
case("attention", "grouped", "q[batch, seq, heads, group, head], k[batch, ctx, heads, head], v[batch, ctx, heads, head]",
     "attention(0.9 * q, 1.1 * k, 0.8 * v, head, ctx, causal = seq)", "batch, seq, heads, group, head",
     lambda q, k, v: attend(q.permute(0, 2, 3, 1, 4), k.permute(0, 2, 1, 3)[:, :, None].expand(-1, -1, 2, -1, -1),
                            v.permute(0, 2, 1, 3)[:, :, None].expand(-1, -1, 2, -1, -1), T > S).permute(0, 3, 1, 2, 4))
case("attention", "cross", "q[batch, seq, heads, head], k[batch, keys, heads, head], v[batch, keys, heads, wide]",
     "attention(0.9 * q, 1.1 * k, 0.8 * v, head, keys)", "batch, seq, heads, wide",
     lambda q, k, v: attend(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)).transpose(1, 2))
case("attention", "one_value", "q[batch, seq, heads, head], k[batch, ctx, head], v[batch, ctx, wide]",
     "attention(0.9 * q, 1.1 * k, 0.8 * v, head, ctx, causal = seq)", "batch, seq, heads, wide",
     lambda q, k, v: attend(q.transpose(1, 2), k[:, None], v[:, None], T > S).transpose(1, 2))
case("attention", "all", Q + ", b[heads, seq, ctx]",
     "attention(0.9 * q, 1.1 * k, 0.8 * v, head, ctx, causal = seq, window = 4, mask = seen, bias = b, cap = 2, scale = 0.8)", QD,
     lambda q, k, v, b: nan_free(q, k, v, (T > S) | (S - T >= 4) | unseen(), bias=b, cap=2.0, scale=0.8))
case("attention", "window_each", Q, "h[batch, heads, seq, head] = q\nrepeat layers {\n"
     "    h = attention(0.9 * h, 1.1 * k, 0.8 * v, head, ctx, causal = seq, window = index(layers) + 2)\n}\nh", QD,
     lambda q, k, v: [q := attend(q, k, v, (T > S) | (S - T >= i + 2)) for i in range(3)][-1])


def nan_free(q, k, v, bad, **how):
    """Rows that see no key give 0, and no gradient."""
    none = bad.all(-1, keepdim=True)
    return torch.where(none, 0.0, attend(q, k, v, bad & ~none, **how))


# -- writing --

DATA = {}


def draw():
    """The inputs: a batch of examples, which the order of the data permutes."""
    rng = np.random.default_rng(3)
    tok = rng.integers(0, 9, (4, 8)).astype(np.int32)
    label = rng.integers(0, 6, (4, 8)).astype(np.int32)
    label[rng.random((4, 8)) < 0.3] = -100
    seen = rng.random((4, 8)) < 0.7
    seen[:, 0] = [False, True, True, True]
    at = [data_order(0, 0, 4, j) for j in range(4)]
    for n, a in (("tok", tok), ("label", label), ("seen", seen)):
        np.save(os.path.join(OUT, n + ".npy"), a)
        DATA[n] = torch.tensor(a[at]).long() if n != "seen" else torch.tensor(a[at])


def text_of(name, params, body, dims):
    inner = ["param %s ~ normal(s)" % params]
    inner += ["param c%s ~ normal(1)" % (f"[{dims}]" if dims else "")]
    if body is None:  # the case of repeat
        inner[0] = "param x[cols] ~ normal(s)"
        inner += ["h[cols] = x", "repeat layers {", "    param w[cols] ~ normal(s)", "    h = tanh(h * w) + index(layers)", "}"]
        body = "h"
    lines = body.split("\n")
    inner += lines[:-1] + [("f[%s] = " % dims if dims else "f = ") + lines[-1], "return sum(f * c)" if dims else "return f * c"]
    return "def t_%s(s) {\n%s\n}\n" % (name, "\n".join("    " + x for x in inner))


def make(program):
    cases = PROGRAMS[program]
    body = "".join(text_of(*x[:4]) for x in cases)
    used = [k for k in INPUTS if re.search(r"\b%s\b" % k, body)]
    text = "# Made by tests/reference/make_functions.py: a term of the loss for each function.\n" + DIMS
    text += "".join(INPUTS[k][0] for k in used) + "\n" + body + "\n"
    text += "total = 0.0\n" + "".join("total = total + t_%s(%g)\n" % (c[0], c[5]) for c in cases)
    text += "loss = total\nminimize loss with sgd(lr = 1)\n" + PLAN
    path = "tests/reference/functions/%s.pdsl" % program
    open(os.path.join(ROOT, path), "w").write(text)
    ptc = os.environ.get("PTC", os.path.join(ROOT, "build/ptc"))
    args = ["run", path] + (["--data", ",".join("%s=tests/reference/functions/%s.npy" % (k, k) for k in used)] if used else [])
    with tempfile.TemporaryDirectory() as tmp:
        subprocess.run([ptc] + args + ["--mesh", "dp=1", "--steps", "0", "--save", tmp + "/init"], check=True, cwd=ROOT,
                       stdout=subprocess.DEVNULL)
        init = {k: v.double().requires_grad_() for k, v in load_file(tmp + "/init").items()}
    loss = torch.zeros((), dtype=torch.float64)
    for name, params, _, _, f, _ in cases:
        own = [init[p] for p in init if p.startswith("t_%s." % name)]
        names = ["x", "layers.w"] if name == "repeat" else re.findall(r"(\w+)\[", params)
        assert len(own) == len(names) + 1, (name, list(init))
        loss = loss + (f(*[init["t_%s.%s" % (name, n)] for n in names]) * init["t_%s.c" % name]).sum()
    loss.backward()
    with open(os.path.join(OUT, program + ".txt"), "w") as out:
        out.write("# args: %s\nloss %.9g\n" % (" ".join(args), loss.item()))
        for k, v in sorted(init.items()):
            g = torch.zeros_like(v) if v.grad is None else v.grad
            assert torch.isfinite(g).all(), k
            out.write(k + "".join(" %.7g" % a for a in g.reshape(-1).tolist()) + "\n")
    print(program, len(cases), loss.item())


if __name__ == "__main__":
    os.makedirs(OUT, exist_ok=True)
    draw()
    for p in PROGRAMS:
        make(p)
