#!/usr/bin/env python3
"""Counts of the IR against the formulas of the literature, for published models at full size.

Params: those published. FLOPs of a token: 6 x matmul params and 12 L a d s for all scores, half of that below the
diagonal (Narayanan et al. 2021, Chowdhery et al. 2022), experts by those that a token meets. Times: TFLOP/s and seconds
of one run, both published, follow from each other. Memory: states by 18 bytes of each param of a layer, activations by what
Korthikanti et al. 2022 count of a layer whose sequence is split too, with all scores kept and with none."""
import json
import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
sys.path.insert(0, os.path.join(HERE, "..", "validate"))
import models  # noqa: E402

PTC = os.environ.get("PTC") or os.path.join(ROOT, os.environ.get("BUILD", "build"), "ptc")


def dense(layers, embed, heads, kv, head, ff, gated, vocab, seq, tied=False, **more):
    return dict(layers=layers, embed=embed, heads=heads, kv=kv, head=head, ff=ff, gated=gated, vocab=vocab, seq=seq, tied=tied, **more)


MLA = dict(q_lora_rank=1536, kv_lora_rank=512, qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128)


def experts(n, topk, ff, shared=0, dense_layers=0, freq=1):
    x = dict(experts=n, topk=topk, shared=shared, d_ff_expert=ff, n_dense_layers=dense_layers)
    return dict(x, moe_layer_freq=freq) if freq > 1 else x


# name, model, published params in 1e9, their last digit
MODELS = [
    ("Llama 2 7B", dense(32, 4096, 32, 32, 128, 11008, True, 32000, 4096), 6.738, 1e-3),
    ("Llama 3.1 8B", dense(32, 4096, 32, 8, 128, 14336, True, 128256, 8192), 8.030, 1e-3),
    ("Llama 3.1 70B", dense(80, 8192, 64, 8, 128, 28672, True, 128256, 8192), 70.55, 1e-2),
    ("Llama 3.1 405B", dense(126, 16384, 128, 8, 128, 53248, True, 128256, 8192), 405.85, 1e-2),
    ("GPT-3 175B", dense(96, 12288, 96, 96, 128, 49152, False, 51200, 2048, tied=True, positions=True), 174.6, 1e-1),
    ("MT-NLG 530B", dense(105, 20480, 128, 128, 160, 81920, False, 51200, 2048, tied=True, positions=True), 529.6, 1e-1),
    ("Mixtral 8x7B", dense(32, 4096, 32, 8, 128, None, True, 32000, 4096, moe=experts(8, 2, 14336)), 46.7, 1e-1),
    ("Mixtral 8x22B", dense(56, 6144, 48, 8, 128, None, True, 32768, 4096, moe=experts(8, 2, 16384)), 140.6, 1e-1),
    ("Qwen3 30B", dense(48, 2048, 32, 4, 128, None, True, 151936, 4096, moe=experts(128, 8, 768)), 30.5, 1e-1),
    ("Qwen3 235B", dense(94, 4096, 64, 4, 128, None, True, 151936, 4096, moe=experts(128, 8, 1536)), 235.1, 1e-1),
    ("Llama 4 Maverick", dense(48, 5120, 40, 8, 128, 16384, True, 202048, 8192, moe=experts(128, 1, 8192, shared=1, freq=2)), 400.7, 1e-1),
    ("DeepSeek-V3", dense(61, 7168, 128, 128, 128, 18432, True, 129280, 4096, mla=MLA, moe=experts(256, 8, 2048, 1, 3)), 671.0, 1e-1),
    ("Kimi K2", dense(61, 7168, 64, 64, 128, 18432, True, 163840, 4096, mla=MLA, moe=experts(384, 8, 2048, 1, 1)), 1026, 1),
]

# model, batch, ranks, seconds, TFLOP/s a rank with recomputation: MT-NLG (Smith et al. 2022), SC21 table 1 (1008B)
MT = MODELS[5][1]
RUNS = [(MT, 1920, 2240, 60.1, 126), (MT, 1920, 2800, 50.2, 121), (MT, 1920, 3360, 44.4, 113)]


def explain(model, where, batch=1):
    row = {"model": model, "layout": {"tp": 1, "cp": 1}}
    text, _ = models.program(row, model["vocab"], batch)
    path = os.path.join(where, "model.pdsl")
    with open(path, "w") as f:
        f.write(text + "minimize loss with sgd(lr = 0.1)\nplan { mesh dp = 1 on h100; batch -> dp; precision bf16 }\n")
    run = subprocess.run([PTC, "explain", "--json", path], capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stderr)
    return json.loads(run.stdout)


def matmul_params(m):
    """Of what a token meets, with the head; and attention's heads times dims, of keys and values."""
    h, a, d = m["embed"], m["heads"], m["head"]
    if m.get("mla"):
        x = m["mla"]
        qk = x["qk_nope_head_dim"] + x["qk_rope_head_dim"]
        att = (h * x["q_lora_rank"] + x["q_lora_rank"] * a * qk + h * (x["kv_lora_rank"] + x["qk_rope_head_dim"]) +
               x["kv_lora_rank"] * a * (x["qk_nope_head_dim"] + x["v_head_dim"]) + a * x["v_head_dim"] * h)
        width = a * (qk + x["v_head_dim"]) / 2
    else:
        att, width = 2 * h * a * d + 2 * h * m["kv"] * d, a * d
    ffn = (3 if m["gated"] else 2) * h * (m["ff"] or 0)
    n = m["layers"] * att + m["vocab"] * h
    x = m.get("moe")
    if not x:
        return n + m["layers"] * ffn, width
    sparse = m["layers"] // x.get("moe_layer_freq", 1) - x["n_dense_layers"]
    return n + (m["layers"] - sparse) * ffn + sparse * (3 * h * x["d_ff_expert"] * (x["topk"] + x["shared"]) + h * x["experts"]), width


def near(name, got, want, most):
    good = abs(got / want - 1) <= most
    print("%s %s: %.6g, by the formula %.6g" % ("ok  " if good else "FAIL", name, got, want))
    return good


# BLOOM's 176B on 384 A100, batch 2048: 104.5 s and 150.05 TFLOP/s with recomputation, as its log says both.
BLOOM = dense(70, 14336, 112, 112, 128, 57344, False, 250880, 2048, tied=True, positions=False)


# Korthikanti et al. 2022, figure 1: states of the widest stage in GiB, 18 bytes of 12 L h^2 / (t p); tp, pp, layers, embed, heads
STATES = [("22B", 8, 1, 48, 6144, 64, 45.5625), ("175B", 8, 8, 96, 12288, 96, 45.5625), ("530B", 8, 35, 105, 20480, 128, 31.64),
          ("1T", 8, 64, 128, 25600, 160, 32.96)]


def states(where, tp, pp, layers, embed, heads):
    """Of the params of layers alone, in the middle of the pipeline: bf16 and fp32 params, fp32 gradients, two of Adam's."""
    row = {"model": dense(layers, embed, heads, heads, embed // heads, 4 * embed, False, 256, 64, tied=True), "layout": {"tp": 1, "cp": 1}}
    text, repeats = models.program(row, 256, 8)
    path = os.path.join(where, "states.pdsl")
    with open(path, "w") as f:
        f.write(text + "minimize loss with adamw(lr = 1e-4)\nplan {\n mesh pp = %d, dp = 1, tp = %d on a100\n batch -> dp\n"
                " kv, group, ff, vocab -> tp\n%s precision bf16\n}\n" %
                (pp, tp, " microbatches = 8\n" + (" layers -> pp\n pipeline 1f1b\n" if pp > 1 else "")))
    run = subprocess.run([PTC, "explain", "--json", path], capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stderr)
    stages = json.loads(run.stdout)["memory"]["stages"]
    s = stages[len(stages) // 2]
    return s["params"] + s["grads"] + s["optimizer"]


def activations(where, tp, batch, embed, heads, software):
    """Bytes that a layer holds for backward, with sequence parallelism: what four layers more take, but for their states."""
    peak = []
    for layers in (4, 8):
        m = dense(layers, embed, heads, heads, embed // heads, 4 * embed, False, 256 * tp, 2048, tied=True, dropout=0.1)
        text, _ = models.program({"model": m, "layout": {"tp": 1, "cp": 1}}, 256 * tp, batch)
        path = os.path.join(where, "activations.pdsl")
        with open(path, "w") as f:
            f.write(text + "minimize loss with adamw(lr = 1e-4)\nplan {\n mesh dp = 1, tp = %d on a100\n batch -> dp\n"
                    " kv, group, ff, vocab -> tp\n seq -> tp\n precision bf16\n software %s\n}\n" % (tp, software))
        run = subprocess.run([PTC, "explain", "--json", path], capture_output=True, text=True)
        if run.returncode:
            sys.exit(run.stderr)
        peak.append(json.loads(run.stdout)["memory"]["stages"][0]["software"])
    return (peak[1] - peak[0]) / 4 - 18 * 12 * embed**2 / tp


def main():
    good = True
    with tempfile.TemporaryDirectory() as where:
        with open(os.path.join(ROOT, "examples", "lib.pdsl")) as f, open(os.path.join(where, "lib.pdsl"), "w") as g:
            g.write(f.read())
        for name, m, published, digit in MODELS:
            said = explain(m, where)
            good &= near(name + ", params", said["params"], published * 1e9, digit / published)
            n, width = matmul_params(m)
            scores = 12 * m["layers"] * width * m["seq"]
            good &= near(name + ", FLOPs with all scores", said["flops"]["full"] / m["seq"], 6 * n + scores, 3e-3)  # queues of whole slots
            good &= near(name + ", FLOPs", said["flops"]["model"] / m["seq"], 6 * n + scores / 2, 3e-3)
        for m, batch, ranks, seconds, tflops in RUNS:
            full = explain(m, where)["flops"]["full"] * batch
            head = 6 * batch * m["seq"] * m["vocab"] * m["embed"]
            good &= near("%d ranks, TFLOP/s" % ranks, ((full - head) * 4 / 3 + head) / ranks / seconds / 1e12, tflops, 0.6 / tflops)
        # Public reports R91 and R92: FLOPs of a token of GPT-2, as products count them and with half of the scores (they take
        # (T + 1) / 2 of them), and of a step of Llama 2 before and after MaxText's fix.
        said = explain(dense(12, 768, 12, 12, 64, 3072, False, 50257, 1024, tied=True, positions=True), where)["flops"]
        good &= near("R91, below the diagonal", said["model"] / 1024, 797870592, 1e-4)
        good &= near("R91, above the diagonal", (said["full"] - said["model"]) / 1024, 859885056 - 803261952, 1e-9)
        said = explain(dense(32, 4096, 32, 32, 128, 11008, True, 32000, 8192), where)["flops"]
        good &= near("R92, all scores", said["full"] * 4 / 1e12, 1721.2, 1e-4)
        good &= near("R92, below the diagonal", said["model"] * 4 / 1e12, 1510.1, 1e-4)
        good &= near("R92, weights", (2 * said["model"] - said["full"]) * 4 / 1e12, 1299.0, 1e-4)
        full = explain(BLOOM, where)["flops"]["full"] * 2048
        head = 6 * 2048 * BLOOM["seq"] * BLOOM["vocab"] * BLOOM["embed"]
        good &= near("BLOOM, TFLOP/s", ((full - head) * 4 / 3 + head) / 384 / 104.5 / 1e12, 150.05, 5e-3)
        for name, tp, pp, layers, embed, heads, gib in STATES:
            good &= near(name + ", GiB of states", states(where, tp, pp, layers, embed, heads) / 2**30, gib,
                         5e-3 if pp > 1 else 0.08)  # without stages the peak is in the update, where some gradients are gone
            b, s = 4 if name == "22B" else 1, 2048
            for software, all_scores, most in (("megatron_2021", 5 * heads * s / embed, 0.02), ("megatron_2021, attention = fa2", 0, 0.06)):
                good &= near("%s, activations of a layer, %s" % (name, software), activations(where, tp, b, embed, heads, software),
                             s * b * embed / tp * (34 + all_scores), most)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
