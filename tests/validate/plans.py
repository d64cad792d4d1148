"""Published layouts as plans: mesh, arrows, order, recompute, software."""
import re


def stage_list(n, chunks, mtp=False):
    """Iterations of each chunk, as Megatron divides layers: evenly, or with the embedding, the head or both in
    the place of a layer; else what is over goes to the middle. With a layer that predicts one token more, that and
    the two heads take places of three (pp_layout of Megatron-Bridge's recipes: Et*4|(t*4|)*14tmL, Et|(tt|)*30mL)."""
    for first, last in ((0, 3), (1, 2)) if mtp else ((0, 0), (1, 1), (0, 1), (1, 0)):
        if (n + first + last) % chunks == 0:
            k = (n + first + last) // chunks
            sizes = [k] * chunks
            sizes[0] -= first
            sizes[-1] -= last
            if min(sizes) >= 0:
                return sizes
    k, over = divmod(n, chunks)
    start = (chunks - over) // 2
    return [k + (start <= i < start + over) for i in range(chunks)]


def zb_2p(row):
    """ZB-H2 (Qi et al. 2023), which ptc has no name for, as a CSV: twice as many microbatches in flight as stages.
    Each stage takes the backward of the oldest, else a forward if it may hold one more, else a W; all as long."""
    lay = row["layout"]
    p, m = lay["pp"], lay["batch"] // (lay["dp"] * lay["micro"])
    done = [{"F": [], "I": [], "W": []} for _ in range(p)]  # times at which they end
    lists, now = [[] for _ in range(p)], 0
    while any(len(d["W"]) < m for d in done):
        step = []
        for s, d in enumerate(done):
            f, i, w = (len(d[k]) for k in "FIW")
            if i < f and (s == p - 1 or (len(done[s + 1]["I"]) > i and done[s + 1]["I"][i] <= now)):
                step.append((s, "I", i))
            elif f < m and f - w < 2 * p - 1 and (s == 0 or (len(done[s - 1]["F"]) > f and done[s - 1]["F"][f] <= now)):
                step.append((s, "F", f))
            elif w < i:
                step.append((s, "W", w))
        now += 1
        for s, kind, n in step:
            done[s][kind].append(now)
            lists[s].append("%d%s%d" % (s, kind, n))
    return "".join(",".join(x) + "\n" for x in lists)


def schedule(row, repeats):
    lay = row["layout"]
    pp, vp, order = lay["pp"], lay["vp"], lay["schedule"] or ""
    if pp == 1:
        return ""
    if vp > 1 or order.startswith("interleaved"):
        kind = "interleaved, chunks = %d" % max(vp, 1)
    elif order == "zb-1p":
        kind = "zb_h1, inflight = %d" % pp
    elif order == "zb-2p":
        kind = "zb_h1"  # and its order as a CSV
    else:
        kind = "1f1b"
    sizes = stage_list(sum(n for _, n in repeats), pp * max(vp, 1), bool(row["model"].get("mtp_layers")))
    if max(vp, 1) == 1:
        kind = kind.replace("interleaved, chunks = 1", "1f1b")
    return "    pipeline %s, stages = %s\n" % (kind, sizes)


def room(row):
    """Bytes that a run may fill: what is left of the memory by fragments, contexts and buffers."""
    return int(0.97 * row["memory_gb"] * 1e9 - 2e9)


def recompute(row):
    """Where a source does not say, the runner tries none, then what is needed, then all."""
    how = row["layout"]["recompute"] or "none"
    if how == "auto":
        return "auto, memory = %d" % room(row)
    if "keep" in how:
        return how
    if "per-op" in how:  # torchtitan: every second product again, attention never
        return 'full, keep = ["*.att.q", "*.att.v", "*.att.o", "*.g"]'
    return how.split()[0]


def axes(row):
    """Axes of the mesh, and what they split. An expert axis is a part of dp, above it the ranks of cp and tp."""
    lay = row["layout"]
    tp, cp, dp, pp, ep = lay["tp"], lay["cp"], lay["dp"], lay["pp"], lay["ep"]
    etp = lay.get("etp") or 1
    inner = ep
    own = []
    if ep > 1:
        for name, size in (("tp", tp if etp == 1 else 1), ("cp", cp)):
            if size > 1 and inner % size == 0:
                inner //= size
                own.append(name)
    shard = lay.get("shard") or 0
    if shard and shard < dp and dp % shard == 0:
        mesh = [("pp", pp), ("rep", dp // shard), ("dp", shard), ("cp", cp), ("tp", tp)]
        return mesh, ["rep", "dp"], ["dp"], []
    if inner > 1 or own:
        mesh = [("pp", pp), ("dp", dp // inner), ("ep", inner), ("cp", cp), ("tp", tp)]
        return mesh, ["dp", "ep"], ["dp", "ep"], [a for a in (["ep"] if inner > 1 else []) + own[::-1]]
    return [("pp", pp), ("dp", dp), ("cp", cp), ("tp", tp)], ["dp"], ["dp"], []


def plan(row, repeats, hardware):
    lay, m = row["layout"], row["model"]
    mesh, data, state, experts = axes(row)
    tp, cp, zero = lay["tp"], lay["cp"], lay["zero"] or 0
    size = dict(mesh)
    lines = ["mesh %s on %s" % (", ".join("%s = %d" % a for a in mesh), hardware)]
    if experts:
        lines.append("experts -> %s" % ", ".join(experts))
    lines.append("batch -> %s" % ", ".join(data))
    moe = m.get("moe")
    parts = tp * cp
    if cp > 1:
        lines.append("seq, ctx -> cp%s" % ("" if moe and parts > 1 else ", order = zigzag"))
    if tp > 1:
        names = ["heads" if m.get("mla") else "kv, group", "vocab"]
        if m.get("ff"):
            names.append("ff")
        if moe and moe.get("shared"):
            names.append("shared")
        if moe and (lay.get("etp") or 1) > 1:
            names.append("eff")
        lines.append("%s -> tp" % ", ".join(names))
        if moe and parts > 1:
            lines.append("part -> tp")
        if lay["sp"]:
            lines.append("seq -> tp")
    if lay["pp"] > 1:
        lines.append("%s -> pp" % ", ".join(r for r, _ in repeats))
    what = {1: "optimizer", 2: "grads", 3: "params"}.get(zero)
    own = [a for a in state + (["cp"] if zero in (1, 3) else []) if size[a] > 1]  # ranks of cp hold the same params
    if what and own:
        lines.append("%s -> %s%s" % (what, ", ".join(own), ", gather = step" if zero == 3 and lay["pp"] > 1 else ""))
    ranks = 1
    for a in data:
        ranks *= size[a]
    lines.append("microbatches = %d" % max(1, lay["batch"] // (ranks * lay["micro"])))
    lines.append("recompute %s" % recompute(row))
    lines.append("precision bf16")
    lines.append("software %s" % row["software"])
    return "plan {\n%s%s}\n" % ("".join("    %s\n" % x for x in lines), schedule(row, repeats))


def hardware(row, table):
    """The row's machine: the built-in block, with its own nodes and network cards."""
    text = re.search(r"hardware %s \{\n.*?\n\}\n" % row["gpu"], table, re.S).group(0).replace(row["gpu"], "here", 1)
    if not row["gpu"].startswith("tpu"):
        text = re.sub(r"(link \w+, group = )\d+", r"\g<1>%d" % row["node"], text)
    if row.get("nic_gb_s"):
        text = re.sub(r"(link net, bandwidth = )[\d.]+G", r"\g<1>%gG" % row["nic_gb_s"], text)
    return text
