#!/usr/bin/env python3
"""gspmd.py - what XLA's SPMD partitioner sends in a training step of GPT-2 and Llama.

    python3 -m venv v && v/bin/pip install jax==0.10.2 'libtpu==0.0.42.*'
    v/bin/python tests/reference/gspmd.py [--tpu] [case ...]    writes tests/reference/data/gspmd.json

Builds the models of tests/gspmd/*.pdsl in JAX: the same einsums and elementwise ops, layers in
lax.scan, cross entropy in the same form, jax.grad, SGD. Params are placed by in_shardings, the values
that ptc anchors (named ones) by with_sharding_constraint. Nothing runs: the step is compiled
for abstract arrays, and the collectives of the compiled HLO are summed. f32 everywhere: XLA on CPUs
upcasts bf16 collectives. See main() for the variants, of which the lowest is what ptc must reach.

A rank sends (k ranks in a group, in/out: bytes of the local operands/results):
all-gather in(k-1), reduce-scatter out(k-1), all-to-all out(k-1)/k, all-reduce 2in(k-1)/k,
collective-permute in. Inside a while loop times its trip count.
"""
import atexit
import functools
import glob
import json
import math
import os
import re
import shutil
import sys
import tempfile

os.environ.setdefault("JAX_PLATFORMS", "cpu")
DUMP = tempfile.mkdtemp(prefix="gspmd.")
atexit.register(shutil.rmtree, DUMP, ignore_errors=True)
# The HLO is read where XLA's CPU pipeline has simplified the partitioned module and not yet fused it: a slice
# of an all-reduce is still visible. What comes after (fusion, code) does not matter and is cut short.
os.environ["XLA_FLAGS"] = ("--xla_force_host_platform_device_count=16 --xla_backend_optimization_level=0 "
                           "--xla_disable_hlo_passes=fusion,fusion-wrapper "
                           f"--xla_dump_to={DUMP} --xla_dump_hlo_pass_re=.*")
os.environ.setdefault("TPU_SKIP_MDS_QUERY", "1")  # nobody to ask
os.environ.setdefault("ALLOW_MULTIPLE_LIBTPU_LOAD", "1")
os.environ.setdefault("TPU_WORKER_HOSTNAMES", "localhost")
os.environ.setdefault("TPU_ACCELERATOR_TYPE", "v5p-16")
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
from jax import lax  # noqa: E402
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec as P  # noqa: E402

jax.config.update("jax_default_matmul_precision", "highest")  # else TPUs gather the operands of f32 dots in bf16
HERE = os.path.dirname(os.path.abspath(__file__))

# -- placement: the rule of docs/SHARDING.md --


class Layout:
    def __init__(self, mesh, arrows, sizes, devices, guided):
        """arrows: {"batch": ["dp"], ...} in order; "params" and "optimizer" name the two kinds."""
        self.size, self.sizes, self.guided = dict(mesh), sizes, guided
        self.kinds = {k: v for k, v in arrows.items() if k in ("params", "optimizer")}
        self.arrows = [(d, a) for d, axes in arrows.items() if d not in self.kinds for a in axes]
        n = math.prod(self.size.values())
        self.mesh = Mesh(__import__("numpy").array(devices[:n]).reshape(tuple(self.size.values())),
                         tuple(self.size), axis_types=(AxisType.Auto,) * len(self.size))

    def place(self, dims, arrows=None):
        on = {d: [] for d in dims}
        used = set()
        for d, a in arrows or self.arrows:
            if d in on and a not in used:
                on[d].append(a)
                used.add(a)
        return on

    def refine(self, on, axes):
        on = {d: list(a) for d, a in on.items()}
        for a in axes:
            if any(a in x for x in on.values()):
                continue
            local = {d: self.sizes[d] // math.prod([self.size[x] for x in on[d]]) for d in on if d != "layers"}
            fits = [d for d in local if local[d] % self.size[a] == 0]
            on[fits[0] if fits else max(local, key=local.get)].append(a)
        return on

    def sharding(self, on):
        return NamedSharding(self.mesh, P(*[tuple(a) or None for a in on.values()]))

    def compute(self, dims):
        return self.place(dims)

    def storage(self, dims):
        return self.refine(self.place(dims), self.kinds.get("params", []))

    def state(self, dims):
        return self.refine(self.storage(dims), self.kinds.get("optimizer", self.kinds.get("params", [])))

    def pin(self, x, *dims):
        """What ptc anchors: named values."""
        return lax.with_sharding_constraint(x, self.sharding(self.place(dims)))

    def hint(self, x, *dims):
        """Values without a name in ptc's model; XLA is told in the guided variant."""
        return self.pin(x, *dims) if self.guided else x


# -- models --

def lookup(table, tokens, how):
    if how == "onehot":
        return jnp.einsum("bsv,ve->bse", (tokens[..., None] == jnp.arange(table.shape[0])).astype(table.dtype), table)
    return table.at[tokens].get(mode="promise_in_bounds")


def cross_entropy(logits, targets):
    top = lax.stop_gradient(jnp.max(logits, -1))
    z = logits - top[..., None]
    pick = jnp.sum(jnp.where(targets[..., None] == jnp.arange(logits.shape[-1]), logits, 0), -1)
    each = jnp.log(jnp.sum(jnp.exp(z), -1)) + top - pick
    live = targets != -100
    return jnp.sum(jnp.where(live, each, 0)) / jnp.maximum(jnp.sum(live.astype(jnp.float32)), 1)


SCORES = ("batch", "heads", "seq", "ctx")
GROUPED = ("batch", "kv", "group", "seq", "ctx")


def causal(scores):
    s, c = scores.shape[-2:]
    return jax.nn.softmax(jnp.where(jnp.arange(c)[None, :] <= jnp.arange(s)[:, None], scores, -jnp.inf), -1)


# The scores are computed again in the backward pass, as in ptc's attention; that sends nothing.
@functools.partial(jax.checkpoint, static_argnums=0)
def attention(L, q, k, v):
    p = L.hint(causal(L.hint(jnp.einsum("bshd,bthd->bhst", q, k) * q.shape[-1] ** -0.5, *SCORES)), *SCORES)
    return L.hint(jnp.einsum("bhst,bthd->bshd", p, v), "batch", "seq", "heads", "head")


@functools.partial(jax.checkpoint, static_argnums=0)
def grouped(L, q, k, v):
    p = L.hint(causal(L.hint(jnp.einsum("bskgd,btkd->bkgst", q, k) * q.shape[-1] ** -0.5, *GROUPED)), *GROUPED)
    return L.hint(jnp.einsum("bkgst,btkd->bskgd", p, v), "batch", "seq", "kv", "group", "head")


def layernorm(x, g, b):
    c = x - jnp.mean(x, -1, keepdims=True)
    return c * lax.rsqrt(jnp.mean(c * c, -1, keepdims=True) + 1e-5) * g + b


def rmsnorm(x, g):
    return x * lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-5) * g


def rope(x, pos):
    """x[batch, pos, ..., head]; halves rotated, written with roll as ptc does."""
    d = x.shape[-1]
    i = jnp.arange(d)
    angle = pos[:, None].astype(jnp.float32) * 500000.0 ** (-(i % (d // 2)) * 2 / d)
    shape = (pos.shape[0],) + (1,) * (x.ndim - 3) + (d,)
    sign = jnp.where(i < d // 2, -1.0, 1.0)
    return x * jnp.cos(angle).reshape(shape) + jnp.roll(x, d // 2, -1) * (sign * jnp.sin(angle)).reshape(shape)


GPT2 = {
    "wte": "vocab embed", "wpe": "seq embed", "gf": "embed", "bf": "embed",
    "layer": {
        "ga": "embed", "ba": "embed", "wq": "embed heads head", "wk": "embed heads head", "wv": "embed heads head",
        "wo": "heads head embed", "bq": "heads head", "bk": "heads head", "bv": "heads head", "bo": "embed",
        "gm": "embed", "bm": "embed", "wu": "embed ff", "bu": "ff", "wd": "ff embed", "bd": "embed",
    },
}
LLAMA = {
    "wte": "vocab embed", "wout": "vocab embed", "gf": "embed",
    "layer": {
        "ga": "embed", "wq": "embed kv group head", "wk": "embed kv head", "wv": "embed kv head",
        "wo": "kv group head embed", "gm": "embed", "wg": "embed ff", "wu": "embed ff", "wd": "ff embed",
    },
}
RES = ("batch", "seq", "embed")
FF = ("batch", "seq", "ff")


def gathered(L, w, spec):
    """A layer's params from storage to compute placement (FSDP); the identity without `params ->`."""
    if "params" not in L.kinds:
        return w
    shards = {k: lax.with_sharding_constraint(v, L.sharding(L.storage(spec[k].split()))) for k, v in w.items()}
    return {k: L.pin(v, *spec[k].split()) for k, v in shards.items()}


def scan(L, body, x, layers):
    if "params" in L.kinds:
        # Whole params must not be kept for the backward pass: that would not be FSDP. So nothing is kept that is
        # pinned, or pinned and renamed, but for activations; all else may be, so that nothing is computed twice.
        def keep(prim, *values, **_):
            return (prim.name not in ("sharding_constraint", "broadcast_in_dim", "reshape", "transpose") or
                    values[0].shape[1:2] == (L.sizes["seq"],))
        body = jax.checkpoint(body, policy=keep)
    return lax.scan(lambda c, w: (body(c, w), None), x, layers)[0]


def gpt2(L, p, tokens, targets, how):
    top = gathered(L, {k: v for k, v in p.items() if k != "layer"}, GPT2)

    def body(x, w):
        w = gathered(L, w, GPT2["layer"])
        h = L.pin(layernorm(x, w["ga"], w["ba"]), *RES)
        q = L.pin(jnp.einsum("bse,ehd->bshd", h, w["wq"]) + w["bq"], "batch", "seq", "heads", "head")
        k = L.pin(jnp.einsum("bse,ehd->bshd", h, w["wk"]) + w["bk"], "batch", "ctx", "heads", "head")
        v = L.pin(jnp.einsum("bse,ehd->bshd", h, w["wv"]) + w["bv"], "batch", "ctx", "heads", "head")
        x = L.pin(x + jnp.einsum("bshd,hde->bse", attention(L, q, k, v), w["wo"]) + w["bo"], *RES)
        n = L.hint(layernorm(x, w["gm"], w["bm"]), *RES)
        u = jax.nn.gelu(L.hint(jnp.einsum("bse,ef->bsf", n, w["wu"]) + w["bu"], *FF))
        return L.pin(x + (jnp.einsum("bsf,fe->bse", L.hint(u, *FF), w["wd"]) + w["bd"]), *RES)

    x = L.pin(lookup(top["wte"], tokens, how) + top["wpe"], *RES)
    x = L.hint(layernorm(scan(L, body, x, p["layer"]), top["gf"], top["bf"]), *RES)
    return cross_entropy(L.pin(jnp.einsum("bse,ve->bsv", x, top["wte"]), "batch", "seq", "vocab"), targets)


def llama(L, p, tokens, targets, how):
    top = gathered(L, {k: v for k, v in p.items() if k != "layer"}, LLAMA)
    pos = jnp.arange(tokens.shape[1])

    def body(x, w):
        w = gathered(L, w, LLAMA["layer"])
        h = L.pin(rmsnorm(x, w["ga"]), *RES)
        q = L.pin(rope(jnp.einsum("bse,ekgd->bskgd", h, w["wq"]), pos), "batch", "seq", "kv", "group", "head")
        k = L.pin(rope(jnp.einsum("bse,ekd->bskd", h, w["wk"]), pos), "batch", "ctx", "kv", "head")
        v = L.pin(jnp.einsum("bse,ekd->bskd", h, w["wv"]), "batch", "ctx", "kv", "head")
        x = L.pin(x + jnp.einsum("bskgd,kgde->bse", grouped(L, q, k, v), w["wo"]), *RES)
        n = L.hint(rmsnorm(x, w["gm"]), *RES)
        u = jax.nn.silu(L.hint(jnp.einsum("bse,ef->bsf", n, w["wg"]), *FF))
        u = u * L.hint(jnp.einsum("bse,ef->bsf", n, w["wu"]), *FF)
        return L.pin(x + jnp.einsum("bsf,fe->bse", L.hint(u, *FF), w["wd"]), *RES)

    x = L.pin(lookup(top["wte"], tokens, how), *RES)
    x = L.hint(rmsnorm(scan(L, body, x, p["layer"]), top["gf"]), *RES)
    return cross_entropy(L.pin(jnp.einsum("bse,ve->bsv", x, top["wout"]), "batch", "seq", "vocab"), targets)


def compile_step(case, devices, how, guided):
    dims = case["dims"]
    spec, model = {"gpt2": (GPT2, gpt2), "llama": (LLAMA, llama)}[case["model"]]
    L = Layout(case["mesh"], case["arrows"], dims, devices, guided)
    lists = {k: v.split() for k, v in spec.items() if k != "layer"}
    lists["layer"] = {k: ["layers"] + v.split() for k, v in spec["layer"].items()}
    leaf = {"is_leaf": lambda v: isinstance(v, list)}

    def shardings(where):
        return jax.tree.map(lambda d: L.sharding(where(d)), lists, **leaf)

    def abstract(where):
        return jax.tree.map(lambda d: jax.ShapeDtypeStruct([dims[x] for x in d], jnp.float32,
                                                           sharding=L.sharding(where(d))), lists, **leaf)

    store, state = shardings(L.storage), shardings(L.state)
    data = jax.ShapeDtypeStruct((dims["batch"], dims["seq"]), jnp.int32,
                                sharding=L.sharding({"batch": L.place(["batch"])["batch"], "seq": []}))
    momentum = "optimizer" in case["arrows"]

    def step(p, m, tokens, targets):
        loss, g = jax.value_and_grad(lambda p: model(L, p, tokens, targets, how))(p)
        pin = lax.with_sharding_constraint
        g = jax.tree.map(pin, g, state)  # to where the optimizer wants it
        norm = jnp.sqrt(sum(jnp.sum(x * x) for x in jax.tree.leaves(g)))  # ptc reports it too
        if momentum:
            m = jax.tree.map(lambda m, g, s: pin(0.9 * m + g, s), m, g, state)
            p = jax.tree.map(lambda p, m, s, t: pin(pin(p, s) - 0.1 * m, t), p, m, state, store)
        else:
            p = jax.tree.map(lambda p, g: p - 0.1 * g, p, g)
        return p, m, loss, norm

    mom = abstract(L.state) if momentum else None
    out = (store, state if momentum else None) + (NamedSharding(L.mesh, P()),) * 2
    lowered = jax.jit(step, out_shardings=out).lower(abstract(L.storage), mom, data, data)
    if devices[0].platform != "cpu":
        return lowered.compile().as_text()
    for f in glob.glob(DUMP + "/*"):
        shutil.rmtree(f) if os.path.isdir(f) else os.remove(f)
    try:
        lowered.compile()
    except jax.errors.JaxRuntimeError as e:  # the code generator misses passes that were cut
        if "UNIMPLEMENTED" not in str(e):
            raise
    file, = glob.glob(DUMP + "/*jit_step*HLO_passes_after_layout_assignment.after_pipeline-start*")
    with open(file) as f:
        return f.read()


# -- HLO text --

BYTES = {"pred": 1, "s8": 1, "u8": 1, "s16": 2, "u16": 2, "bf16": 2, "f16": 2, "s32": 4, "u32": 4, "f32": 4,
         "s64": 8, "u64": 8, "f64": 8}
COLLECTIVES = ("all-reduce", "all-gather", "reduce-scatter", "all-to-all", "collective-permute",
               "collective-broadcast", "ragged-all-to-all")
HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$")
OP = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (.*)$")
CODE = re.compile(r" ([a-z][a-z0-9\-]*)\((.*)$")


def shape_bytes(text):
    return sum(BYTES[t] * math.prod(int(x) for x in d.split(",") if x)
               for t, d in re.findall(r"\b([a-z]+\d*)\[([\d,]*)\]", text) if t in BYTES)


class Op:
    def __init__(self, name, text, root):
        self.name, self.root = name, root
        if text.startswith("("):  # a tuple's shape, which may hold spaces
            depth = 0
            for i, c in enumerate(text):
                depth += (c == "(") - (c == ")")
                if depth == 0:
                    break
            self.shape, rest = text[:i + 1], text[i + 1:]
        else:
            self.shape, rest = text.split(" ", 1)
            rest = " " + rest
        self.shape = re.sub(r"/\*.*?\*/", "", self.shape)
        m = CODE.match(rest)
        self.code = m.group(1)
        depth, i = 1, 0
        for i, c in enumerate(m.group(2)):
            depth += (c == "(") - (c == ")")
            if depth == 0:
                break
        self.args, self.attrs = m.group(2)[:i], m.group(2)[i + 1:]
        self.operands = re.findall(r"%([\w.\-]+)", self.args)
        self.bytes = shape_bytes(self.shape)
        self.users = []


def parse(hlo):
    comps, entry, now = {}, None, None
    for line in hlo.splitlines():
        if m := HEAD.match(line):
            now = comps.setdefault(m.group(2), {})
            if m.group(1):
                entry = m.group(2)
        elif line.startswith("}"):
            now = None
        elif now is not None and (m := OP.match(line)):
            now[m.group(2)] = Op(m.group(2), m.group(3), bool(m.group(1)))
    for ops in comps.values():
        for op in ops.values():
            for o in op.operands:
                if o in ops:
                    ops[o].users.append(op)
    return comps, entry


def groups_of(attrs, ranks):
    if m := re.search(r"source_target_pairs=\{(.*?)\}\}", attrs):
        return [[int(x) for x in p.split(",")] for p in re.findall(r"(\d+,\d+)", m.group(1))]
    if m := re.search(r"replica_groups=\{(\{.*?\})\}", attrs):
        return [[int(x) for x in g.split(",")] for g in re.findall(r"\{([\d,]+)\}", m.group(1))]
    if m := re.search(r"replica_groups=\[([\d,]+)\]<=\[([\d,]+)\](?:T\(([\d,]+)\))?", attrs):
        import numpy as np
        shape = [int(x) for x in m.group(1).split(",")]
        ids = np.arange(ranks).reshape([int(x) for x in m.group(2).split(",")])
        if m.group(3):
            ids = ids.transpose([int(x) for x in m.group(3).split(",")])
        return ids.reshape(shape).tolist()
    if m := re.search(r"replica_groups=mesh\[([^\]]*)\](?:, device_ids=\((.*?)\))? \{([^}]*)\}", attrs):
        import numpy as np
        axes = [(a, int(n)) for a, n in re.findall(r"'(\w+)'=(\d+)", m.group(1))]
        over = re.findall(r"'(\w+)'(?::\((\d+)\)(\d+))?", m.group(3))
        shape, moved = [], []
        for a, n in axes:  # an axis is split in three where only a part of it is meant
            part = next(((int(b), int(c)) if b else (1, n) for x, b, c in over if x == a), (1, 1))
            moved.append(len(shape) + 1)
            shape += [part[0], part[1], n // part[0] // part[1]]
        ids = np.arange(ranks)
        if m.group(2):
            t = re.fullmatch(r"\[([\d,]+)\](?:T\(([\d,]+)\))?", m.group(2))
            ids = ids.reshape([int(x) for x in t.group(1).split(",")])
            ids = ids.transpose([int(x) for x in t.group(2).split(",")]) if t.group(2) else ids
        ids = ids.reshape(shape)
        order = [i for i in range(len(shape)) if i not in moved] + moved
        return ids.transpose(order).reshape(-1, math.prod(shape[i] for i in moved)).tolist()
    if "replica_groups={}" in attrs:
        return [list(range(ranks))]
    raise SystemExit("which ranks? " + attrs)


def axes_of(groups, mesh):
    """The mesh axes along which the ranks of a group differ, as 'dp.tp'; tp0 and tp1 are parts of tp."""
    axes, size = [], math.prod(mesh.values())
    for a, n in mesh.items():
        size //= n
        if any(len({r // size % n for r in g}) > 1 for g in groups):
            axes.append(a.rstrip("01"))
    return ".".join(dict.fromkeys(axes))


def trips(op, comps):
    if m := re.search(r'known_trip_count":\{"n":"(\d+)"', op.attrs):
        return int(m.group(1))
    cond = comps[re.search(r"condition=%?([\w.\-]+)", op.attrs).group(1)]
    root = next(o for o in cond.values() if o.root)
    n = [int(cond[o].args) for o in root.operands if o in cond and cond[o].code == "constant"]
    if root.code == "compare" and "direction=LT" in root.attrs and n:
        return n[0]
    raise SystemExit(f"{op.name}: how many trips?")


PLAIN = ("bitcast", "reshape", "copy", "transpose", "convert")


def through(op):
    """The users of op behind ops that only rename it."""
    users = []
    for u in op.users:
        users += through(u) if u.code in PLAIN and not u.root else [u]
    return users


def sliced(op, k):
    """Is an all-reduce over k ranks only read by slices of 1/k of it? (What XLA's ReduceScatterCreator
    looks for on GPUs and TPUs.)"""
    users = through(op)
    return bool(users) and all(u.code == "dynamic-slice" and u.bytes * k <= op.bytes + k * 64 for u in users)


def rows(hlo, mesh, backend="cpu"):
    """[{op, axis, count, bytes, fair}]: fair also does what XLA's passes for accelerators would do: an
    all-reduce that is only sliced becomes a reduce-scatter (in HLO for TPUs the two stand in one fusion),
    and, for CPUs, a sum of reduced values is reduced once."""
    comps, entry = parse(hlo)
    ranks = math.prod(mesh.values())
    found = []

    def walk(name, times):
        ops = comps[name]
        freed, scattered = set(), set()

        def leaves(v):
            """The all-reduces of which v is the sum, if none has another reader, else None."""
            while v.code in PLAIN and len(v.users) == 1 and v.operands[0] in ops:
                v = ops[v.operands[0]]
            if len(through(v)) > 1:
                return None
            if v.code == "dynamic-slice" and v.operands[0] in ops:
                return leaves(ops[v.operands[0]])
            if v.code == "all-reduce":
                return [v]
            x, y = (leaves(ops[o]) if o in ops else None for o in v.operands) if v.code == "add" else (None, None)
            return x + y if x and y else None

        for op in ops.values():
            if backend == "cpu" and op.code == "add" and not any(u.code == "add" for u in through(op)):
                x, y = (leaves(ops[o]) if o in ops else None for o in op.operands)
                got = x + y if x and y else []
                if len({str(sorted(groups_of(g.attrs, ranks))) for g in got}) == 1:
                    freed |= {g.name for g in got[1:]}
                    if sliced(op, len(groups_of(got[0].attrs, ranks)[0])):
                        scattered.add(got[0].name)
        for op in ops.values():
            code = op.code.removesuffix("-start")
            if code in COLLECTIVES:
                groups = groups_of(op.attrs, ranks)
                k = len(groups[0])
                size = sum(ops[o].bytes for o in op.operands)
                if code == "collective-permute":
                    groups = [g for g in groups if g[0] != g[1]]
                    k = 2
                if k == 1 or not groups:
                    continue
                if code == "reduce-scatter":
                    sent = size / k * (k - 1)
                elif code == "all-gather":
                    sent = size * (k - 1)
                elif code == "all-to-all":
                    sent = size * (k - 1) / k
                elif code == "all-reduce":
                    sent = size * 2 * (k - 1) / k
                elif code == "collective-permute":
                    sent = size
                else:
                    raise SystemExit(f"{code}: how many bytes?")
                fair, into = sent, code
                if code == "all-reduce" and (op.name in scattered or sliced(op, k)):
                    fair, into = sent / 2, "reduce-scatter"
                if op.name in freed:
                    fair = 0
                where = re.search(r'op_name="([^"]*)"', op.attrs)
                found.append({"op": code, "fair_op": into, "axis": axes_of(groups, mesh), "count": times,
                              "bytes": sent * times, "fair": fair * times, "shape": op.shape,
                              "at": where.group(1) if where else ""})
            elif op.code == "while":
                n = trips(op, comps)
                walk(re.search(r"body=%?([\w.\-]+)", op.attrs).group(1), times * n)
                walk(re.search(r"condition=%?([\w.\-]+)", op.attrs).group(1), times * n)
            elif op.code in ("fusion", "call", "async-start", "conditional", "custom-call"):
                for c in re.findall(r"(?:calls|to_apply|true_computation|false_computation)=%?([\w.\-]+)", op.attrs):
                    walk(c, times)
                for c in re.findall(r"branch_computations=\{(.*?)\}", op.attrs):
                    for b in re.findall(r"%([\w.\-]+)", c):
                        walk(b, times)

    walk(entry, 1)
    return found


# -- cases --

GPT2_DIMS = {"batch": 8, "seq": 1024, "ctx": 1024, "vocab": 50304, "embed": 768, "heads": 12, "head": 64,
             "ff": 3072, "layers": 12}
LLAMA_DIMS = {"batch": 8, "seq": 2048, "ctx": 2048, "vocab": 128256, "embed": 4096, "kv": 8, "group": 4,
              "head": 128, "ff": 14336, "layers": 32}


def case(name, model, plan, mesh, arrows, dims=None):
    return {"name": name, "model": model, "plan": plan, "mesh": mesh, "arrows": arrows,
            "dims": dims or {"gpt2": GPT2_DIMS, "llama": LLAMA_DIMS}[model]}


def cases():
    out = []
    for model in ("gpt2", "llama"):
        tp = {d: ["tp"] for d in (("heads",) if model == "gpt2" else ("kv", "group")) + ("ff", "vocab")}
        dp, sp, z1, z3 = {"batch": ["dp"]}, {"seq": ["tp"]}, {"optimizer": ["dp"]}, {"params": ["dp"]}
        cp = {"seq": ["cp"]}
        for plan, mesh, arrows in (
                ("dp", {"dp": 8}, dp),
                ("tp", {"tp": 4}, tp),
                ("sp", {"tp": 4}, {**tp, **sp}),
                ("dp_tp", {"dp": 2, "tp": 4}, {**dp, **tp}),
                ("dp_sp", {"dp": 2, "tp": 4}, {**dp, **tp, **sp}),
                ("zero1", {"dp": 8}, {**dp, **z1}),
                ("zero1_tp", {"dp": 2, "tp": 4}, {**dp, **tp, **z1}),
                ("zero1_sp", {"dp": 2, "tp": 4}, {**dp, **tp, **sp, **z1}),
                ("fsdp", {"dp": 8}, {**dp, **z3}),
                ("fsdp_tp", {"dp": 2, "tp": 4}, {**dp, **tp, **z3}),
                ("cp", {"cp": 4}, cp),
                ("cp_tp", {"cp": 2, "tp": 4}, {**tp, **cp}),
                ("dp_cp_tp", {"dp": 2, "cp": 2, "tp": 4}, {**dp, **tp, **cp})):
            out.append(case(f"{model}-{plan}", model, plan, mesh, arrows))
    # 8 heads of keys and values on 16 ranks: kv takes 8 of them, group 2. ptc splits tp by itself.
    both = ["tp0", "tp1"]
    tp = {"kv": ["tp0"], "group": ["tp1"], "ff": both, "vocab": both}
    out.append(case("llama-tp16", "llama", "tp", {"tp0": 8, "tp1": 2}, tp))
    out.append(case("llama-sp16", "llama", "sp", {"tp0": 8, "tp1": 2}, tp | {"seq": both}))
    # With more tokens in a step it does not pay any more to gather the cotangent of a lookup.
    for c in [c for c in out if c["name"] in ("llama-zero1", "llama-zero1_tp")]:
        out.append(c | {"name": c["name"] + "-b64", "dims": c["dims"] | {"batch": 64}})
    return out


SOURCES = {
    "SC21": "Narayanan et al. 2021, arXiv:2104.04473", "K22": "Korthikanti et al. 2022, arXiv:2205.05198",
    "MLM": "NVIDIA/Megatron-LM, docs/user-guide/features/dist_optimizer.md and vocab-parallel cross entropy",
    "FSDP": "Zhao et al. 2023, arXiv:2304.11277", "Llama 3": "arXiv:2407.21783, context parallelism",
}


def formula(c):
    """What is published for this layout, with the bytes of f32. Sources: see SOURCES."""
    d, mesh, arrows = c["dims"], c["mesh"], c["arrows"]
    dp, cp, tp = (math.prod([n for a, n in mesh.items() if a.rstrip("01") == x]) for x in ("dp", "cp", "tp"))
    sp = arrows.get("seq", ["cp"])[0].startswith("tp")
    ring = lambda k: (k - 1) / k  # noqa: E731
    axis, source, L = {}, [], Layout(mesh, arrows, d, jax.devices(), False)

    def send(axes, size):
        axes = ".".join(axes)
        axis[axes] = axis.get(axes, 0) + size

    spec = {"gpt2": GPT2, "llama": LLAMA}[c["model"]]
    params = [(v.split(), 1) for k, v in spec.items() if k != "layer"]
    params += [(v.split(), d["layers"]) for v in spec["layer"].values()]
    for dims, n in params:
        on = L.place(dims)
        local = 4 * n * math.prod(d[x] / math.prod([mesh[a] for a in on[x]]) for x in dims)
        over = [a for a in ("dp", "cp") if a in mesh and not any(a in x for x in on.values())]
        k = math.prod(mesh[a] for a in over)
        send(over, (3 if "params" in arrows else 2) * ring(k) * local)
        if sp and not any(a.startswith("tp") for x in on.values() for a in x):  # sees a part of the sequence
            send(["tp"], 2 * ring(tp) * local)
    axis.pop("", None)
    if "params" in arrows:
        source.append("ZeRO-3: gathers forward and backward, reduce-scatter, 3(d-1)/d N [FSDP]")
    elif "optimizer" in arrows:
        source.append("ZeRO-1: reduce-scatter + all-gather, 2(d-1)/d N [MLM]")
    elif dp * cp > 1:
        source.append("gradients: 2(d-1)/d N")
    rows_ = 4 * d["batch"] * d["seq"] / dp / cp
    regather = None
    if tp > 1:
        send(["tp"], 2 * ring(tp) * rows_ * (d["embed"] * (4 * d["layers"] + 2) + 3))
        source.append("TP: 4 all-reduces of [b,s,h] a layer [SC21], embedding, head, 3 of [b,s] [MLM]")
        if sp:
            regather = ring(tp) * rows_ * d["embed"] * (2 * d["layers"] + 1)
            source.append("SP: the same bytes; inputs not stored: 2 all-gathers a layer more, and the head's [K22]")
    if cp > 1:
        heads = d.get("kv", d.get("heads")) * d["head"] / tp
        send(["cp"], 4 * d["layers"] * ring(cp) * rows_ * cp * heads)
        source.append("CP: all-gather of K and V, reduce-scatter of dK and dV [Llama 3]")
    total = sum(axis.values())
    out = {"axis": {a: round(b) for a, b in sorted(axis.items())}, "total": round(total), "source": "; ".join(source)}
    if regather:
        out["regather"] = round(total + regather)
    return out


def summary(found, key):
    axis = {}
    for r in found:
        axis[r["axis"]] = axis.get(r["axis"], 0) + r[key]
    return {"axis": {a: round(b) for a, b in sorted(axis.items())}, "total": round(sum(axis.values()))}


def by_op(found, key, name):
    ops = {}
    for r in found:
        if r[key]:
            n = ops.setdefault((r[name], r["axis"]), [0, 0])
            n[0] += r["count"]
            n[1] += r[key]
    return [{"op": o, "axis": a, "count": n, "bytes": round(b)} for (o, a), (n, b) in sorted(ops.items())]


VARIANTS = [(p, how, anchors) for p in ("gspmd", "shardy") for how, anchors in (("gather", "named"), ("gather", "all"))]
# ("onehot", ...) never sent less than ("gather", ...), where tried: all of GPT-2


def measure(found, backend, partitioner, how, anchors):
    """One run: as compiled, and `fair`, see rows()."""
    return {"backend": backend, "partitioner": partitioner, "lookup": how, "anchors": anchors,
            "compiled": summary(found, "bytes"), "fair": summary(found, "fair"), "ops": by_op(found, "fair", "fair_op")}


def main():
    """Writes data/gspmd.json. For each case several variants are compiled:
    partitioner  GSPMD's own propagation of shardings, or Shardy's, which has replaced it in JAX
    lookup       the embedding as gather, or as an einsum with a one-hot matrix
    anchors      XLA is told the shardings of the values that ptc anchors (named), or those of all
                 activations (all: ff, scores, the output of attention, what the norms give)
    backend      cpu, or with --tpu the compiler for TPUs (libtpu compiles without one; minutes)
    XLA's CPU pipeline has no ReduceScatterCreator, AllReduceReassociate or ReduceScatterReassociate. `fair`
    counts what these would make of the CPU's HLO. `lowest` is the lowest fair total of all variants.

    Compiled once for TPUs (libtpu 0.0.42, v5p, Shardy): gpt2-tp sends what `fair` says, to the byte; gpt2-sp has the
    collectives that `fair` has (a layer 4 reduce-scatters, 6 all-gathers), with the default precision of dots the
    gathers in bf16; gpt2-dp reduces the two gradients of the tied table one by one, as on the CPU: `fair` is below
    what XLA does there. GPUs have not been tried."""
    args = sys.argv[1:]
    tpu = "--tpu" in args
    want = [a for a in args if a != "--tpu"]
    backend, new = "tpu" if tpu else "cpu", {}
    for c in cases():
        if want and c["name"] not in want:
            continue
        runs = new.setdefault(c["name"], [])
        devices = jax.devices()
        if tpu:
            from jax.experimental import topologies
            name = {4: "v5p:2x2x1", 8: "v5p:2x2x2", 16: "v5p:2x2x4"}[math.prod(c["mesh"].values())]
            devices = topologies.get_topology_desc(platform="tpu", topology_name=name).devices
        for partitioner, how, anchors in [("shardy", "gather", "all")] if tpu else VARIANTS:
            jax.config.update("jax_use_shardy_partitioner", partitioner == "shardy")
            found = rows(compile_step(c, devices, how, anchors == "all"), c["mesh"], backend)
            runs.append(measure(found, backend, partitioner, how, anchors))
            print(c["name"], partitioner, how, anchors, runs[-1]["compiled"]["total"], runs[-1]["fair"]["total"],
                  file=sys.stderr, flush=True)
    path = os.path.join(HERE, "data", "gspmd.json")
    old = {c["name"]: c["runs"] for c in json.load(open(path))["cases"]} if os.path.exists(path) else {}
    for name, runs in new.items():
        old[name] = [r for r in old.get(name, []) if r["backend"] != backend] + runs
    write(path, [finish(c, old[c["name"]]) for c in cases() if old.get(c["name"])])


def finish(c, runs):
    """Ops are kept for the lowest only."""
    best = min(runs, key=lambda r: r["fair"]["total"])
    lowest = {k: best[k] for k in ("backend", "partitioner", "lookup", "anchors")} | best["fair"]
    kept = [r if r is best or r["backend"] == "tpu" else {k: v for k, v in r.items() if k != "ops"} for r in runs]
    spec = {"gpt2": GPT2, "llama": LLAMA}[c["model"]]
    size = lambda dims: math.prod(c["dims"][d] for d in dims.split())  # noqa: E731
    params = sum(size(v) for k, v in spec.items() if k != "layer") + c["dims"]["layers"] * sum(
        map(size, spec["layer"].values()))
    return c | {"params": params} | {"runs": kept, "lowest": lowest, "formula": formula(c)}


def write(path, done):
    with open(path, "w") as f:
        head = {"made_by": "tests/reference/gspmd.py", "jax": jax.__version__, "unit": "bytes a rank sends a step, f32",
                "sources": SOURCES}
        f.write("{" + json.dumps(head)[1:-1] + ',\n"cases": [\n')
        f.write(",\n".join(" {" + ",\n  ".join(
            f"{json.dumps(k)}: " + (json.dumps(v) if k != "runs" else "[\n   " + ",\n   ".join(map(json.dumps, v)) + "]")
            for k, v in c.items()) + "}" for c in done))
        f.write("\n]}\n")


if __name__ == "__main__":
    main()
