"""Published models as programs: of the row's dims, from the blocks of examples/lib.pdsl."""

HEADER = """include "lib.pdsl"
dim batch = {batch}, seq = {seq}, ctx = seq, vocab = {vocab}, embed = {embed}
dim kv = {kv}, group = {group}, head = {head}
{dims}
input tokens[batch, seq]: token(vocab)
input targets[batch, seq]: token(vocab) = next(tokens)
{defs}
param wte[vocab, embed]{head_param} ~ normal(0.02)
"""

# Layer norms, biases, GELU; heads of keys may be fewer. Products have names for what may be kept.
GPT_DEFS = """def att(x, y) {{
    param wq[embed, kv, group, head], wk[embed, kv, head], wv[embed, kv, head] ~ normal(0.02)
    param wo[kv, group, head, embed] ~ normal(0.02)
    param bq[kv, group, head], bk[kv, head], bv[kv, head], bo[embed] ~ zeros
    q = x @ wq + bq
    k = y @ wk + bk
    v = y @ wv + bv
    s = attention(q, k, v, head, ctx, causal = seq{drop}) @[kv, group, head] wo + bo
    return s
}}
def wide(x) {{
    param wu[embed, ff], wd[ff, embed] ~ normal(0.02)
    param bu[ff], bd[embed] ~ zeros
    u = x @ wu + bu
    return gelu(u, tanh) @ wd + bd
}}"""

# As gqa and swiglu of lib.pdsl, with names for what may be kept.
LLAMA_DEFS = """def att(x, y) {
    param wq[embed, kv, group, head], wk[embed, kv, head], wv[embed, kv, head], wo[kv, group, head, embed] ~ normal(0.02)
    q = rope(x @ wq, seq, head)
    k = rope(y @ wk, ctx, head)
    v = y @ wv
    o = attention(q, k, v, head, ctx, causal = seq)
    s = o @[kv, group, head] wo
    return s
}
def gated(x) {
    param wg[embed, ff], wu[embed, ff], wd[ff, embed] ~ normal(0.02)
    g = x @ wg
    return silu(g) * (x @ wu) @ wd
}"""

LLAMA_LAYER = """    h = rms.attn(x, embed)
    x = x + att(h, h[seq -> ctx])
    x = x + gated(rms.mlp(x, embed))
"""

# Latent attention, as examples/deepseek.pdsl has it.
MLA_DEFS = """def latent(x) {
    param wdq[embed, qrank], wuq[qrank, heads, qk] ~ normal(0.006)
    param wdkv[embed, kvrank], wkr[embed, rot] ~ normal(0.006)
    param wuk[kvrank, heads, nope], wuv[kvrank, heads, vhead] ~ normal(0.006)
    param wo[heads, vhead, embed] ~ normal(0.006)
    h = rms(x, embed)
    hk = h[seq -> ctx]
    u = rms.q(h @ wdq, qrank) @ wuq
    c = rms.kv(hk @ wdkv, kvrank)
    q = concat(u[qk = index(nope)], rope(u[qk = index(rot) + nope], seq, rot), nope, rot, qk)
    k = concat(c @ wuk, rope(hk @ wkr, ctx, rot), nope, rot, qk)
    v = c @ wuv
    return x + attention(q, k, v, qk, ctx, causal = seq) @[heads, vhead] wo
}
"""

# Every rank routes its own part of a sequence; queues have room for the even share, as benchmarks force it.
MOE_DEFS = """def sparse(x) {
    param wr[embed, gate] ~ normal(0.02)
    param wg[experts, embed, eff], wu[experts, embed, eff], wd[experts, eff, embed] ~ normal(0.02)
    h = %s
    r = fp32(h) @ fp32(wr)
    e = topk(r, gate, pick)
    p = rank(e, %s, pick)
    xe[batch%s, experts, slot, embed] = scatter(h, experts = e, slot = p)
    ye = silu(xe @[embed] wg) * (xe @[embed] wu) @[eff] wd
    y[batch%s, %s, embed] = softmax(r[gate = e], pick) @ ye[experts = e, slot = p]
    return %s
}
"""


def moe_defs(parts):
    if parts == 1:
        return MOE_DEFS % ("x", "seq", "", "", "seq", "y")
    return MOE_DEFS % ("x[seq = index(part) * place + index(place)]", "place", ", part", ", part", "place",
                       "y[part = index(seq) // place, place = index(seq) % place]")


# GPT-OSS (openai/gpt-oss, torch/model.py): biases on all products, and a gate and a linear part that are clamped.
# Its sinks, a number a head in the sum of each softmax, cost nothing that shows.
OSS_DEFS = """def sparse(x) {
    param wr[embed, gate] ~ normal(0.02)
    param wg[experts, embed, eff], wu[experts, embed, eff], wd[experts, eff, embed] ~ normal(0.02)
    param br[gate], bg[experts, eff], bu[experts, eff], bd[experts, embed] ~ zeros
    r = fp32(x) @ fp32(wr) + br
    e = topk(r, gate, pick)
    p = rank(e, seq, pick)
    xe[batch, experts, slot, embed] = scatter(x, experts = e, slot = p)
    g = min(xe @[embed] wg + bg, 7)
    u = max(min(xe @[embed] wu + bu, 7), -7)
    share[batch, experts, slot] = scatter(softmax(r[gate = e], pick), experts = e, slot = p)
    add[batch, experts, slot, embed] = bd * share
    ye = bf16(bf16(gelu(g, quick) * (u + 1) * share) @[eff] wd + add)
    return sum(ye[experts = e, slot = p], pick)
}
"""

OSS_ATTENTION = """def %s(x, y) {
    param wq[embed, kv, group, head], wk[embed, kv, head], wv[embed, kv, head], wo[kv, group, head, embed] ~ normal(0.02)
    param bq[kv, group, head], bk[kv, head], bv[kv, head], bo[embed] ~ zeros
    q = rope(x @ wq + bq, seq, head)
    k = rope(y @ wk + bk, ctx, head)
    return attention(q, k, y @ wv + bv, head, ctx, causal = seq%s) @[kv, group, head] wo + bo
}
"""

# A layer more that predicts the token after the next, with the head once more (DeepSeek-V3 report, section 2.2).
MTP = """t = (rms.mtpx(x, embed) @[embed] mtpx)[mid -> embed] + (rms.mtpe(wte[vocab = targets], embed) @[embed] mtpe)[mid -> embed]
t = latent.mtp(t)
h = rms.mtp(t, embed)
t = t + sparse.mtp(h)%s
"""


def attention_block(m):
    if m.get("mla"):
        return "    x = latent(x)\n"
    return "    h = rms.attn(x, embed)\n    x = x + gqa(h, h[seq -> ctx], seq, ctx, embed, kv, group, head)\n"


def program(row, vocab, batch):
    """The text of the row's model, and its repeats in order with their sizes."""
    m, parts = row["model"], row["layout"]["tp"] * row["layout"]["cp"]
    moe, mla = m.get("moe"), m.get("mla")
    dims, defs, repeats = [], "", []
    drop = ", dropout = %g" % m["dropout"] if m.get("dropout") else ""
    tied = m["tied"]
    x = "wte[vocab = tokens]"
    if not moe:
        dims.append("dim ff = %d, layers = %d" % (m["ff"], m["layers"]))
        repeats = [("layers", m["layers"])]
        if m["gated"]:
            body, defs = LLAMA_LAYER, LLAMA_DEFS
        else:
            defs = GPT_DEFS.format(drop=drop)
            act = "wide(norm.mlp(x, embed))"
            if m.get("activation") == "squared relu":
                defs += "\ndef squared(x) { param wu[embed, ff], wd[ff, embed] ~ normal(0.02); return square(relu(x @ wu)) @ wd }"
                act = "squared(norm.mlp(x, embed))"
            d = "dropout(%%s, %g)" % m["dropout"] if drop else "%s"
            body = "    h = norm.attn(x, embed)\n    x = x + %s\n    x = x + %s\n" % (d % "att(h, h[seq -> ctx])", d % act)
        loops = "repeat layers {\n%s}\n" % body
    else:
        every, dense = moe.get("moe_layer_freq", 1), moe.get("n_dense_layers", 0)
        eff = moe["d_ff_expert"]
        parts = parts if m["seq"] % parts == 0 else 1
        slot = m["seq"] // parts * moe["topk"] // moe["experts"]
        dims.append("dim experts = %d, gate = experts, pick = %d, slot = %d, eff = %d" % (moe["experts"], moe["topk"], max(1, slot), eff))
        if parts > 1:
            dims.append("dim part = %d, place = seq / part" % parts)
        if m.get("ff"):
            dims.append("dim ff = %d" % m["ff"])
        if mla:
            dims.append("dim heads = %d, nope = %d, rot = %d, qk = nope + rot, vhead = %d, qrank = %d, kvrank = %d" % (
                m["heads"], mla["qk_nope_head_dim"], mla["qk_rope_head_dim"], mla["v_head_dim"], mla["q_lora_rank"], mla["kv_lora_rank"]))
            defs += MLA_DEFS
        clamped = m.get("activation") == "clamped swiglu"
        defs += OSS_DEFS if clamped else moe_defs(parts)
        shared = " + swiglu.shared(h, embed, %s)" % ("shared") if moe.get("shared") else ""
        if shared:
            dims.append("dim shared = %d" % (moe["shared"] * eff))
        att = attention_block(m)
        dense_body = att + "    x = x + swiglu(rms.mlp(x, embed), embed, ff)\n"
        moe_body = att + "    h = rms.moe(x, embed)\n    x = x + sparse(h)%s\n" % shared
        if clamped:  # every second layer has a window
            n = m["layers"] // 2
            dims.append("dim pairs = %d" % n)
            repeats = [("pairs", n)]
            defs += OSS_ATTENTION % ("near", ", window = %d" % m["window"]) + OSS_ATTENTION % ("far", "")
            layer = "    h = rms.{0}(x, embed)\n    x = x + {0}(h, h[seq -> ctx])\n    h = rms.moe{0}(x, embed)\n    x = x + sparse.{0}(h)\n"
            first, second = layer.format("near"), layer.format("far")
            loops = "repeat pairs {\n%s%s}\n" % (first, second)
        elif every > 1:
            n = m["layers"] // every
            dims.append("dim pairs = %d" % n)
            repeats = [("pairs", n)]
            second = moe_body.replace("rms.attn", "rms.attn2").replace("gqa(", "gqa.two(").replace("rms.moe", "rms.moe2")
            loops = "repeat pairs {\n%s%s}\n" % (dense_body, second)
        else:
            loops = ""
            if dense:
                dims.append("dim dense = %d" % dense)
                repeats.append(("dense", dense))
                loops = "repeat dense {\n%s}\n" % dense_body
            dims.append("dim moe = %d" % (m["layers"] - dense))
            repeats.append(("moe", m["layers"] - dense))
            loops += "repeat moe {\n%s}\n" % moe_body
    head = "" if tied else ", wout[vocab, embed]"
    text = HEADER.format(batch=batch, seq=m["seq"], vocab=vocab, embed=m["embed"], kv=m["kv"], group=m["heads"] // m["kv"], head=m["head"],
                         dims="\n".join(dims), defs=defs, head_param=head)
    if m.get("positions"):
        text += "param wpe[seq, embed] ~ normal(0.02)\n"
        x += " + wpe"
    if drop:
        x = "dropout(%s, %g)" % (x, m["dropout"])
    mtp = bool(m.get("mtp_layers")) and bool(mla)
    if mtp:
        text += "dim mid = embed\nparam mtpx[embed, mid], mtpe[embed, mid] ~ normal(0.006)\n"
        loops += MTP % shared.replace("shared(", "mtp(")
    norm = "norm" if not m["gated"] else "rms"
    text += "x[batch, seq, embed] = %s\n%s" % (x, loops)
    text += "logits[batch, seq, vocab] = %s.final(x, embed) @ %s\nloss = cross_entropy(logits, targets, vocab)%s\n" % (
        norm, "wte" if tied else "wout", " + 0.3 * cross_entropy(%s.mtpf(t, embed) @ %s, targets, vocab)" % (norm, "wte" if tied else "wout") if mtp else "")
    return text, repeats
