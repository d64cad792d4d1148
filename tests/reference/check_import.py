#!/usr/bin/env python3
"""Compares what `ptc import` makes with Hugging Face's own models, family by family.

    pip install transformers        # and torch, safetensors, numpy
    PTC=build/ptc tests/reference/check_import.py [FAMILY...]

A small config of the family is imported, its params are drawn by ptc and shaken by noise, written in
Hugging Face's names and shapes as the file's checkpoint block says, and read by from_pretrained,
which must miss none and know all. Then both compute the loss of one batch: a line a family says how
far apart they are. Dropout is off, experts drop no token, and the balance loss is not counted.
"""
import json
import os
import re
import subprocess
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
import transformers
from safetensors.numpy import load_file, save_file

PTC = os.environ.get("PTC", "build/ptc")
CONFIGS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "import")
BATCH, SEQ, VOCAB = 4, 16, 64


def ptc(*args):
    done = subprocess.run([PTC, *args], capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"ptc {' '.join(args)}\n{done.stdout[-500:]}{done.stderr[-2000:]}")
    return done.stdout


def stored(model, params, options):
    """The params under the names and in the shapes of the checkpoint block."""
    ir = ptc("show", model, "--after", "lower", *options)
    size = {n.strip('"'): int(v) for n, v in re.findall(r'^dim ("?[^=\s]+"?)=(\d+)', ir, re.M)}
    dims = {n: [x.strip().strip('"') for x in d.split(",") if x.strip()]
            for n, d in re.findall(r'^buffer @"([^"]+)" param \w+\[([^\]]*)\]', ir, re.M)}
    out, parts = {}, {}
    block = open(model).read().split("checkpoint hf {")[1]
    for path, name, places in re.findall(r'^ +([\w.]+): "([^"]+)"\[(.*)\]$', block, re.M):
        found = [p for p in params if (p == path if "." in path else p.split(".")[-1] == path)]
        assert len(found) == 1, (path, found)
        groups = [[x.strip() for x in g.strip("() ").split(",")] for g in re.findall(r"\([^)]*\)|[^,()]+", places)
                  if g.strip()]
        counters = re.findall(r"\{(\w+)(?:\+(\d+))?\}", name)
        order = [c for c, _ in counters] + [x for g in groups for x in g if "/" not in x]
        assert sorted(order) == sorted(dims[found[0]]), (path, order, dims[found[0]])
        a = params[found[0]].transpose([dims[found[0]].index(x) for x in order])
        shape = [int(np.prod([size[x] for x in g if "/" not in x])) for g in groups]
        for at in np.ndindex(*a.shape[:len(counters)]):
            full = name
            for (c, plus), i in zip(counters, at):
                full = re.sub(r"\{%s(\+\d+)?\}" % c, str(i + int(plus or 0)), full, count=1)
            cut = [(axis, g[0]) for axis, g in enumerate(groups) if "/" in g[0]]
            if cut:
                parts.setdefault(full, {})[int(cut[0][1].split("/")[0])] = (cut[0][0], a[at].reshape(shape))
            else:
                assert full not in out, full
                out[full] = np.ascontiguousarray(a[at].reshape(shape))
    for name, p in parts.items():
        out[name] = np.ascontiguousarray(np.concatenate([p[i][1] for i in sorted(p)], axis=p[sorted(p)[0]][0]))
    return out


def compare(name, config, kind, settings, data, loss):
    with tempfile.TemporaryDirectory() as d:
        model = d + "/model.pdsl"
        json.dump(config, open(d + "/config.json", "w"))
        ptc("import", d + "/config.json", "-o", model)
        text = open(model).read().replace("precision bf16", "precision fp32")
        open(model, "w").write(text)
        options = ["--mesh", "dp=1", "--set", f"batch={BATCH},microbatches=1" + settings]
        if list(data) == ["tokens"]:
            data["tokens"].astype(np.uint16).tofile(d + "/tokens.bin")
            files = d + "/tokens.bin"
        else:
            for n, a in data.items():
                np.save(f"{d}/{n}.npy", a)
            files = ",".join(f"{n}={d}/{n}.npy" for n in data)
        run = ["run", model, *options, "--data", files]
        ptc(*run, "--steps", "0", "--save", d + "/init")
        rng = np.random.default_rng(1)
        state = "sparse.bias"
        params = {k: v if k.endswith(state) else (v + 0.05 * rng.standard_normal(v.shape)).astype(np.float32)
                  for k, v in load_file(d + "/init").items()}
        save_file(params, d + "/params")
        save_file(stored(model, {k: v for k, v in params.items() if not k.endswith(state)}, options),
                  d + "/model.safetensors", metadata={"format": "pt"})
        ours = json.loads(ptc(*run, "--steps", "1", "--init", d + "/params", "--json").splitlines()[0])["loss"]
        net, info = kind.from_pretrained(d, attn_implementation="eager", dtype=torch.float32, output_loading_info=True)
        net.eval()
        with torch.no_grad():
            theirs = float(loss(net, {k: torch.tensor(v) for k, v in data.items()}))
    missing = [k for k in info["missing_keys"] if "e_score_correction_bias" not in k]
    apart = abs(ours - theirs) / abs(theirs)
    good = apart < 1e-5 and not missing and not info["unexpected_keys"]
    print(f"{name:12} ptc {ours:.7f}  transformers {theirs:.7f}  apart {apart:.1e}  missing {missing}"
          f"  unexpected {list(info['unexpected_keys'])}  {'ok' if good else 'WRONG'}", flush=True)
    return good


def config(name, *changes):
    c = json.load(open(f"{CONFIGS}/{name}.json"))
    for change in changes:
        c.update(change)
    for k in ("quantization_config", "auto_map"):
        c.pop(k, None)
    return c


def next_token(net, d):
    t = d["tokens"].long()
    z = net(input_ids=t[:-1].reshape(BATCH, SEQ)).logits
    return F.cross_entropy(z.reshape(BATCH * SEQ, -1), t[1:])


def masked_words(net, d):
    z = net(input_ids=d["tokens"].long(), token_type_ids=d["segments"].long(), attention_mask=d["real"].long()).logits
    return F.cross_entropy(z.reshape(BATCH * SEQ, -1), d["labels"].long().reshape(-1), ignore_index=-100)


def image_class(net, d):
    return F.cross_entropy(net(pixel_values=d["image"]).logits, d["label"].long())


def answer(net, d):
    z = net(input_ids=d["tokens"].long(), decoder_input_ids=d["given"].long()).logits
    return F.cross_entropy(z.reshape(BATCH * SEQ, -1), d["answer"].long().reshape(-1))


def cases():
    rng = np.random.default_rng(0)
    tokens = {"tokens": rng.integers(0, VOCAB, BATCH * SEQ + 1)}
    ints = lambda n, *shape: rng.integers(0, n, shape).astype(np.int32)  # noqa: E731
    small = dict(hidden_size=32, intermediate_size=48, num_hidden_layers=3, num_attention_heads=4)
    rms = dict(small, num_key_value_heads=2, vocab_size=VOCAB, max_position_embeddings=SEQ)
    experts = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=24, router_aux_loss_coef=0.0, head_dim=8)
    causal = transformers.AutoModelForCausalLM
    whole = f",slot={SEQ}"
    quiet = dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
    for name, c, settings in (
            ("gpt2", config("gpt2", dict(n_embd=32, n_head=4, n_layer=3, n_positions=SEQ, n_ctx=SEQ, vocab_size=VOCAB,
                                         attn_pdrop=0.0, embd_pdrop=0.0, resid_pdrop=0.0)), ""),
            ("llama", config("llama3-8b", rms), ""),
            ("llama-bias", config("llama3-8b", rms, dict(attention_bias=True, mlp_bias=True, tie_word_embeddings=True)), ""),
            ("mistral", config("mistral-7b", rms, dict(sliding_window=5)), ""),
            ("qwen2", config("qwen2-7b", rms, dict(use_sliding_window=True, sliding_window=5, max_window_layers=1)), ""),
            ("qwen3", config("qwen3-8b", rms, dict(attention_bias=True, head_dim=10)), ""),
            ("gemma2", config("gemma2-9b", rms, dict(query_pre_attn_scalar=12, head_dim=8, sliding_window=5,
                                                     attn_logit_softcapping=0.5, final_logit_softcapping=2.0)), ""),
            ("mixtral", config("mixtral-8x7b", rms, dict(num_local_experts=4, router_aux_loss_coef=0.0)), whole),
            ("qwen3_moe", config("qwen3-30b-a3b", rms, experts), whole),
            ("qwen3_moe-2", config("qwen3-30b-a3b", rms, experts, dict(norm_topk_prob=False)), whole),
            ("deepseek_v3", config("deepseek-v3", rms, dict(
                num_key_value_heads=4, first_k_dense_replace=1, q_lora_rank=12, kv_lora_rank=10, qk_nope_head_dim=6,
                qk_rope_head_dim=4, v_head_dim=8, n_routed_experts=8, n_group=4, topk_group=2, num_experts_per_tok=2,
                moe_intermediate_size=16, n_shared_experts=2, num_nextn_predict_layers=0)), whole)):
        yield name, c, causal, settings, tokens, next_token
    real = np.ones((BATCH, SEQ), np.bool_)
    real[1, 10:] = False
    labels = ints(VOCAB, BATCH, SEQ)
    labels[:, ::2] = -100
    yield ("bert", config("bert-base", small, quiet, dict(vocab_size=VOCAB, max_position_embeddings=SEQ)),
           transformers.BertForMaskedLM, "",
           {"tokens": ints(VOCAB, BATCH, SEQ), "segments": ints(2, BATCH, SEQ), "real": real, "labels": labels}, masked_words)
    yield ("vit", config("vit-base", small, quiet, dict(image_size=8, patch_size=4, num_labels=6)),
           transformers.ViTForImageClassification, "",
           {"image": rng.standard_normal((BATCH, 3, 8, 8)).astype(np.float32), "label": ints(6, BATCH)}, image_class)
    for name, more in (("t5", {}), ("t5-gated", dict(feed_forward_proj="gated-gelu", tie_word_embeddings=False))):
        yield (name, config("t5-base", dict(
            d_model=32, d_ff=48, num_layers=3, num_decoder_layers=2, num_heads=4, vocab_size=VOCAB, d_kv=8, dropout_rate=0.0,
            relative_attention_num_buckets=8, relative_attention_max_distance=12), more),
               transformers.T5ForConditionalGeneration, f",src={SEQ},dst={SEQ}",
               {k: ints(VOCAB, BATCH, SEQ) for k in ("tokens", "given", "answer")}, answer)


def main():
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    results = [compare(*c) for c in cases() if len(sys.argv) < 2 or c[0] in sys.argv[1:]]
    sys.exit(0 if results and all(results) else 1)


if __name__ == "__main__":
    main()
