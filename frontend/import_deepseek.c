/* frontend/import_deepseek.c - ptc import of deepseek_v3: latent attention, dense layers first, then
 * experts chosen in groups, whose load a bias evens out. */
#include "frontend/import.h"

static const char dims[] =
	"?dense dim batch = $batch, seq = $seq, ctx = seq, vocab = $vocab, embed = $embed, dense = $dense, moe = $moe\n"
	"!dense dim batch = $batch, seq = $seq, ctx = seq, vocab = $vocab, embed = $embed, moe = $moe\n"
	"# Attention: queries and keys have a part without positions and one with; `lat` and `both` are what\n"
	"# two projections make at once.\n"
	"dim heads = $heads, nope = $nope, rot = $rot, half = rot / 2, qk = nope + rot, vhead = $vhead\n"
	"dim qrank = $qrank, kvrank = $kvrank, lat = kvrank + rot, both = nope + vhead\n"
	"# Experts: $cell groups of them, of which a token may use $chosen.\n"
	"dim ff = $ff, eff = $eff, sff = $shared * eff  # of dense layers, of an expert, of the shared ones\n"
	"dim experts = $experts, gate = experts, pick = $pick  # 'gate' is experts in the router's role\n"
	"dim cell = $cell, member = gate / cell, two = 2, chosen = $chosen\n"
	"# Room for a quarter more than an even share; slot = seq never drops a token, as in Hugging Face.\n"
	"dim slot = seq * pick * 5 // (4 * experts) + 1\n"
	"\n"
	"input tokens[batch, seq]: token(vocab)\n"
	"input targets[batch, seq]: token(vocab) = next(tokens)\n"
	"\n"
	"def rms(x, e) {\n"
	"    param g[e] ~ ones\n"
	"    return rmsnorm(x, e, eps = $eps) * g\n"
	"}\n"
	"\n"
	"def swiglu(x, e, f) {\n"
	"    param wg[e, f], wu[e, f], wd[f, e] ~ normal($std)\n"
	"    return $act * (x @ wu) @ wd\n"
	"}\n"
	"\n";

static const char mla[] =
	"def mla(x) {\n"
	"    param wdq[embed, qrank], wuq[qrank, heads, qk], wdkv[embed, lat] ~ normal($std)\n"
	"    param wukv[kvrank, heads, both], wo[heads, vhead, embed] ~ normal($std)\n"
	"    h = rms.attn(x, embed)\n"
	"    u = rms.q(h @ wdq, qrank) @ wuq                       # [batch, seq, heads, qk]\n"
	"    a = h[seq -> ctx] @ wdkv                              # [batch, ctx, lat]\n"
	"    c = rms.kv(a[lat = index(kvrank)], kvrank) @ wukv     # [batch, ctx, heads, both]\n"
	"?pairs    place = 2 * (index(rot) % half) + index(rot) // half  # side by side in the file\n"
	"!pairs    place = index(rot)\n"
	"    q = concat(u[qk = index(nope)], rope(u[qk = place + nope], seq, rot, theta = $theta), nope, rot, qk)\n"
	"    k = concat(c[both = index(nope)], rope(a[lat = place + kvrank], ctx, rot, theta = $theta), nope, rot, qk)\n"
	"    v = c[both = index(vhead) + nope]\n"
	"    return x + attention(q, k, v, qk, ctx, causal = seq$options) @[heads, vhead] wo\n"
	"}\n"
	"\n";

static const char sparse[] =
	"def sparse(x) {\n"
	"    param wr[embed, gate], wg[experts, embed, eff], wu[experts, embed, eff], wd[experts, eff, embed] ~ normal($std)\n"
	"    state bias[gate] ~ zeros\n"
	"    h = rms(x, embed)\n"
	"    s = sigmoid(fp32(h) @ fp32(wr))  # [batch, seq, gate]\n"
	"    b = (s + bias)[gate = index(cell) * member + index(member)]\n"
	"    best = sum(b[member = topk(b, member, two)], two)  # a group's score is its two best experts\n"
	"    open = max(topk(best, cell, chosen) == index(cell), chosen)\n"
	"    e = topk(where(open[cell = index(gate) // member], s + bias, -inf), gate, pick)\n"
	"?renorm    w = $factor * s[gate = e] / sum(s[gate = e], pick)\n"
	"!renorm    w = $factor * s[gate = e]\n"
	"    p = rank(e, seq, pick)  # the place in the expert's queue, one queue a sequence\n"
	"    xe[batch, experts, slot, embed] = scatter(h, experts = e, slot = p)\n"
	"    ye = $gated * (xe @[embed] wu) @[eff] wd\n"
	"    y[batch, seq, embed] = w @ ye[experts = e, slot = p]  # a dropped token reads 0\n"
	"    load = sum(e == index(gate), batch, seq, pick)\n"
	"    update bias = bias + 0.001 * sign(mean(load) - load)  # its rate is not in the config\n"
	"    return x + y + swiglu(h, embed, sff)\n"
	"}\n"
	"\n";

static const char body[] =
	"?tied param wte[vocab, embed] ~ normal($std)\n"
	"!tied param wte[vocab, embed], wout[vocab, embed] ~ normal($std)\n"
	"\n"
	"x[batch, seq, embed] = wte[vocab = tokens]\n"
	"?dense repeat dense {\n"
	"?dense    x = mla(x)\n"
	"?dense    x = x + swiglu(rms.mlp(x, embed), embed, ff)\n"
	"?dense }\n"
	"repeat moe {\n"
	"    x = mla(x)\n"
	"    x = sparse(x)\n"
	"}\n"
	"?tied logits[batch, seq, vocab] = rms.final(x, embed) @ wte\n"
	"!tied logits[batch, seq, vocab] = rms.final(x, embed) @ wout\n"
	"loss = cross_entropy(logits, targets, vocab)\n"
	"\n"
	"minimize loss with adamw(lr = wsd(2.2e-4, warmup = 2000, steps = 480000, decay = 60000), "
	"betas = [0.9, 0.95], weight_decay = 0.1, clip = 1.0) {\n"
	"    g: weight_decay = 0\n"
	"}\n";

static const char mla_names[] =
	"    $rep.mla.rms.attn.g: \"model.layers.{$num}.input_layernorm.weight\"[embed]\n"
	"    $rep.mla.wdq: \"model.layers.{$num}.self_attn.q_a_proj.weight\"[qrank, embed]\n"
	"    $rep.mla.rms.q.g: \"model.layers.{$num}.self_attn.q_a_layernorm.weight\"[qrank]\n"
	"    $rep.mla.wuq: \"model.layers.{$num}.self_attn.q_b_proj.weight\"[(heads, qk), qrank]\n"
	"    $rep.mla.wdkv: \"model.layers.{$num}.self_attn.kv_a_proj_with_mqa.weight\"[lat, embed]\n"
	"    $rep.mla.rms.kv.g: \"model.layers.{$num}.self_attn.kv_a_layernorm.weight\"[kvrank]\n"
	"    $rep.mla.wukv: \"model.layers.{$num}.self_attn.kv_b_proj.weight\"[(heads, both), kvrank]\n"
	"    $rep.mla.wo: \"model.layers.{$num}.self_attn.o_proj.weight\"[embed, (heads, vhead)]\n"
	"    $rep.$norm.g: \"model.layers.{$num}.post_attention_layernorm.weight\"[embed]\n"
	"    $rep.$glu.wg: \"model.layers.{$num}.mlp.${own}gate_proj.weight\"[$wide, embed]\n"
	"    $rep.$glu.wu: \"model.layers.{$num}.mlp.${own}up_proj.weight\"[$wide, embed]\n"
	"    $rep.$glu.wd: \"model.layers.{$num}.mlp.${own}down_proj.weight\"[embed, $wide]\n";

static const char names[] =
	"    moe.sparse.wr: \"model.layers.{$num}.mlp.gate.weight\"[gate, embed]\n"
	"    # The state moe.sparse.bias is there too, as mlp.gate.e_score_correction_bias.\n"
	"    moe.sparse.wg: \"model.layers.{$num}.mlp.experts.{experts}.gate_proj.weight\"[eff, embed]\n"
	"    moe.sparse.wu: \"model.layers.{$num}.mlp.experts.{experts}.up_proj.weight\"[eff, embed]\n"
	"    moe.sparse.wd: \"model.layers.{$num}.mlp.experts.{experts}.down_proj.weight\"[embed, eff]\n"
	"    rms.final.g: \"model.norm.weight\"[embed]\n"
	"!tied    wout: \"lm_head.weight\"[vocab, embed]\n"
	"}\n";

static bool layers(struct import *im)
{
	const json_t *first = json_object_get(im->root, "first_k_dense_replace");
	const json_t *mtp = json_object_get(im->root, "num_nextn_predict_layers");
	int64_t all = fact_count(im, "layers");
	json_int_t dense = first && !json_is_null(first) ? json_integer_value(first) : 3;

	if ((first && !json_is_null(first) && !json_is_integer(first)) || dense < 0 || dense >= all)
		return import_wrong(im, "first_k_dense_replace",
				    "'first_k_dense_replace' must be an integer, at least 0 and below the %lld layers",
				    (long long)all);
	if (dense)
		fact_set(im, "dense", "%lld", (long long)dense);
	fact_set(im, "moe", "%lld", (long long)(all - dense));
	if (json_is_integer(mtp) && json_integer_value(mtp) > 0)
		diag_warn(im->diag, import_place(im, "num_nextn_predict_layers"),
			  "the layer that predicts further tokens is left out, as Hugging Face does");
	return true;
}

static bool experts(struct import *im)
{
	if (!import_divide(im, "member", "experts", "cell", "n_group"))
		return false;
	if (fact_count(im, "member") < 2)
		return import_wrong(im, "n_group", "a group must have 2 experts or more");
	if (fact_count(im, "chosen") > fact_count(im, "cell"))
		return import_wrong(im, "topk_group", "'topk_group' is %s, of %s groups", fact_text(im, "chosen"),
				    fact_text(im, "cell"));
	if (fact_count(im, "pick") > fact_count(im, "chosen") * fact_count(im, "member"))
		return import_wrong(im, "num_experts_per_tok", "'num_experts_per_tok' is %s, but %s groups have %lld experts",
				    fact_text(im, "pick"), fact_text(im, "chosen"),
				    (long long)(fact_count(im, "chosen") * fact_count(im, "member")));
	if (fact_count(im, "rot") % 2)
		return import_wrong(im, "qk_rope_head_dim", "rotary positions turn pairs, and there are %s", fact_text(im, "rot"));
	if (fact_is(im, "kv") && fact_count(im, "kv") != fact_count(im, "heads"))
		return import_wrong(im, "num_key_value_heads", "'num_key_value_heads' must be the %s heads", fact_text(im, "heads"));
	return true;
}

static void checkpoint(struct import *im)
{
	import_write(im, "checkpoint hf {\n    wte: \"model.embed_tokens.weight\"[vocab, embed]\n");
	if (fact_is(im, "dense")) {
		fact_set(im, "rep", "dense");
		fact_set(im, "num", "dense");
		fact_set(im, "norm", "rms.mlp");
		fact_set(im, "glu", "swiglu");
		fact_set(im, "own", "%s", "");
		fact_set(im, "wide", "ff");
		import_write(im, mla_names);
	}
	fact_set(im, "rep", "moe");
	fact_set(im, "num", fact_is(im, "dense") ? "moe+%s" : "moe%s", fact_text(im, "dense"));
	fact_set(im, "norm", "sparse.rms");
	fact_set(im, "glu", "sparse.swiglu");
	fact_set(im, "own", "shared_experts.");
	fact_set(im, "wide", "sff");
	import_write(im, mla_names);
	import_write(im, names);
}

bool write_deepseek(struct import *im)
{
	int64_t positions = fact_count(im, "positions");

	if (!layers(im) || !experts(im) || !import_rope(im))
		return false;
	fact_set(im, "batch", "256");
	fact_set(im, "micro", "32");
	fact_set(im, "seq", "%lld", (long long)(positions < 4096 ? positions : 4096));
	fact_set(im, "gated", "%s", import_act(im, "act", "xe @[embed] wg"));
	fact_set(im, "act", "%s", import_act(im, "act", "x @ wg"));
	fact_set(im, "options", fact_is(im, "attn_drop") ? ", dropout = %s" : "%s", fact_text(im, "attn_drop"));
	import_write(im, import_head);
	import_write(im, dims);
	import_write(im, mla);
	import_write(im, sparse);
	import_write(im, body);
	import_write(im, import_plan);
	checkpoint(im);
	return true;
}
