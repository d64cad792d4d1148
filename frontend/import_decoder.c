/* frontend/import_decoder.c - ptc import of decoders with RMSNorm, rotary positions and gated MLPs:
 * llama, mistral, mixtral, qwen2, qwen3, qwen3_moe, gemma2. */
#include "frontend/import.h"

static const char dims[] =
	"dim batch = $batch, seq = $seq, ctx = seq  # positions up to $positions\n"
	"dim vocab = $vocab, embed = $embed, layers = $layers\n"
	"dim kv = $kv, group = $group, head = $head  # kv * group heads of queries, kv of keys and values\n"
	"dim ff = $ff\n"
	"?moe dim experts = $experts, gate = experts, pick = $pick  # 'gate' is experts in the router's role\n"
	"?moe # Room for a quarter more than an even share; slot = seq never drops a token, as in Hugging Face.\n"
	"?moe dim slot = seq * pick * 5 // (4 * experts) + 1\n"
	"\n"
	"input tokens[batch, seq]: token(vocab)\n"
	"input targets[batch, seq]: token(vocab) = next(tokens)\n"
	"\n"
	"def rms(x, e) {\n"
	"?one    param g[e] ~ zeros\n"
	"!one    param g[e] ~ ones\n"
	"?one    return rmsnorm(x, e, eps = $eps) * (1 + g)\n"
	"!one    return rmsnorm(x, e, eps = $eps) * g\n"
	"}\n"
	"\n"
	"?tied param wte[vocab, embed] ~ normal($std)\n"
	"!tied param wte[vocab, embed], wout[vocab, embed] ~ normal($std)\n"
	"\n";

static const char layer[] =
	"x[batch, seq, embed] = wte[vocab = tokens]\n"
	"?moe aux = 0.0\n"
	"repeat layers {\n"
	"    param wq[embed, kv, group, head], wk[embed, kv, head], wv[embed, kv, head] ~ normal($std)\n"
	"    param wo[kv, group, head, embed] ~ normal($std)\n"
	"?qkv_bias    param bq[kv, group, head], bk[kv, head], bv[kv, head] ~ zeros\n"
	"?o_bias    param bo[embed] ~ zeros\n"
	"?reach    reach = $reach\n"
	"    h = rms.attn(x, embed)\n"
	"    hk = h[seq -> ctx]\n"
	"    q = rope(${ql}h @ wq$qr, seq, head, theta = $theta)\n"
	"    k = rope(${kl}hk @ wk$kr, ctx, head, theta = $theta)\n"
	"!qkv_bias    v = hk @ wv\n"
	"?qkv_bias    v = hk @ wv + bv\n"
	"    o = attention(q, k, v, head, ctx, causal = seq$options)\n"
	"!o_bias    x = x + o @[kv, group, head] wo\n"
	"?o_bias    x = x + o @[kv, group, head] wo + bo\n"
	"\n";

static const char mlp[] =
	"    param wg[embed, ff], wu[embed, ff], wd[ff, embed] ~ normal($std)\n"
	"?mlp_bias    param bg[ff], bu[ff], bd[embed] ~ zeros\n"
	"    h = rms.mlp(x, embed)\n"
	"!mlp_bias    x = x + $gated * (h @ wu) @ wd\n"
	"?mlp_bias    x = x + $gated * (h @ wu + bu) @ wd + bd\n"
	"}\n";

static const char moe[] =
	"    param wr[embed, gate] ~ normal($std)\n"
	"    param wg[experts, embed, ff], wu[experts, embed, ff], wd[experts, ff, embed] ~ normal($std)\n"
	"    h = rms.mlp(x, embed)\n"
	"    r = fp32(h) @ fp32(wr)   # [batch, seq, gate]\n"
	"    e = topk(r, gate, pick)  # [batch, seq, pick]\n"
	"    p = rank(e, seq, pick)   # the place in the expert's queue, one queue a sequence\n"
	"    xe[batch, experts, slot, embed] = scatter(h, experts = e, slot = p)\n"
	"    ye = $gated * (xe @[embed] wu) @[ff] wd\n"
	"?renorm    w = softmax(r[gate = e], pick)\n"
	"!renorm    w = softmax(r, gate)[gate = e]\n"
	"    y[batch, seq, embed] = w @ ye[experts = e, slot = p]  # a dropped token reads 0\n"
	"    x = x + y\n"
	"?balance    load = mean(e == index(gate), seq, pick)  # how the experts are used: 1 / experts is even\n"
	"?balance    aux = aux + pick * gate * mean(sum(load * mean(softmax(r, gate), seq), gate))\n"
	"}\n";

static const char head[] =
	"?final_cap logits[batch, seq, vocab] = $final_cap * tanh(rms.final(x, embed) @ $out / $final_cap)\n"
	"!final_cap logits[batch, seq, vocab] = rms.final(x, embed) @ $out\n"
	"!balance loss = cross_entropy(logits, targets, vocab)\n"
	"?balance ce = cross_entropy(logits, targets, vocab)\n"
	"?balance metric ce = ce\n"
	"?balance loss = ce + $balance * aux / layers\n"
	"\n"
	"minimize loss with adamw(lr = cosine(3e-4, warmup = 2000, steps = 100000, final = 3e-5), "
	"betas = [0.9, 0.95], weight_decay = 0.1, clip = 1.0) {\n"
	"!biases    g: weight_decay = 0\n"
	"?biases    g, \"b?\": weight_decay = 0\n"
	"}\n";

static const char attention_names[] =
	"checkpoint hf {\n"
	"    wte: \"model.embed_tokens.weight\"[vocab, embed]\n"
	"    layers.rms.attn.g: \"$l.input_layernorm.weight\"[embed]\n"
	"    layers.wq: \"$l.self_attn.q_proj.weight\"[(kv, group, head), embed]\n"
	"    layers.wk: \"$l.self_attn.k_proj.weight\"[(kv, head), embed]\n"
	"    layers.wv: \"$l.self_attn.v_proj.weight\"[(kv, head), embed]\n"
	"    layers.wo: \"$l.self_attn.o_proj.weight\"[embed, (kv, group, head)]\n"
	"?qkv_bias    layers.bq: \"$l.self_attn.q_proj.bias\"[(kv, group, head)]\n"
	"?qkv_bias    layers.bk: \"$l.self_attn.k_proj.bias\"[(kv, head)]\n"
	"?qkv_bias    layers.bv: \"$l.self_attn.v_proj.bias\"[(kv, head)]\n"
	"?o_bias    layers.bo: \"$l.self_attn.o_proj.bias\"[embed]\n"
	"?qk_norm    layers.rms.q.g: \"$l.self_attn.q_norm.weight\"[head]\n"
	"?qk_norm    layers.rms.k.g: \"$l.self_attn.k_norm.weight\"[head]\n";

static const char mlp_names[] =
	"!one    layers.rms.mlp.g: \"$l.post_attention_layernorm.weight\"[embed]\n"
	"?one    layers.rms.after_attn.g: \"$l.post_attention_layernorm.weight\"[embed]\n"
	"?one    layers.rms.mlp.g: \"$l.pre_feedforward_layernorm.weight\"[embed]\n"
	"?one    layers.rms.after_mlp.g: \"$l.post_feedforward_layernorm.weight\"[embed]\n"
	"!moe    layers.wg: \"$l.mlp.gate_proj.weight\"[ff, embed]\n"
	"!moe    layers.wu: \"$l.mlp.up_proj.weight\"[ff, embed]\n"
	"!moe    layers.wd: \"$l.mlp.down_proj.weight\"[embed, ff]\n"
	"?mlp_bias    layers.bg: \"$l.mlp.gate_proj.bias\"[ff]\n"
	"?mlp_bias    layers.bu: \"$l.mlp.up_proj.bias\"[ff]\n"
	"?mlp_bias    layers.bd: \"$l.mlp.down_proj.bias\"[embed]\n"
	"?moe    layers.wr: \"$l.$block.gate.weight\"[gate, embed]\n"
	"?moe    layers.wg: \"$l.$block.experts.{experts}.$gate_name.weight\"[ff, embed]\n"
	"?moe    layers.wu: \"$l.$block.experts.{experts}.$up_name.weight\"[ff, embed]\n"
	"?moe    layers.wd: \"$l.$block.experts.{experts}.$down_name.weight\"[embed, ff]\n"
	"    rms.final.g: \"model.norm.weight\"[embed]\n"
	"!tied    wout: \"lm_head.weight\"[vocab, embed]\n"
	"}\n";

/* -- facts that several fields make -- */

static bool shapes(struct import *im)
{
	int64_t positions = fact_count(im, "positions");

	if (!fact_is(im, "kv"))
		fact_set(im, "kv", "%s", fact_text(im, "heads"));
	if (!import_divide(im, "group", "heads", "kv", "num_key_value_heads"))
		return false;
	if (!fact_is(im, "head") && !import_divide(im, "head", "embed", "heads", "num_attention_heads"))
		return false;
	if (fact_count(im, "head") % 2)
		return import_wrong(im, "head_dim", "rotary positions turn pairs, and a head has %s", fact_text(im, "head"));
	fact_set(im, "seq", "%lld", (long long)(positions < 8192 ? positions : 8192));
	fact_set(im, "batch", "64");
	fact_set(im, "micro", "8");
	fact_set(im, "sharded", "kv, group");
	fact_set(im, "l", "model.layers.{layers}");
	fact_set(im, "out", fact_is(im, "tied") ? "wte" : "wout");
	return import_rope(im);
}

/* layer_types, if it is there, must say what the other fields say: layers from `first` on look
 * back a window, every `every`-th of them. */
static bool layer_types(struct import *im, int64_t first, int64_t every)
{
	const json_t *list = json_object_get(im->root, "layer_types");
	int64_t layers = fact_count(im, "layers");

	if (!list || json_is_null(list))
		return true;
	if (!json_is_array(list) || (int64_t)json_array_size(list) != layers)
		return import_wrong(im, "layer_types", "'layer_types' must be a list of %lld names", (long long)layers);
	for (int64_t i = 0; i < layers; i++) {
		const char *is = json_string_value(json_array_get(list, (size_t)i));
		bool window = i >= first && i % every == 0;

		if (!streq(is, window ? "sliding_attention" : "full_attention"))
			return import_wrong(im, "layer_types", "layer %lld is \"%.40s\", and by the other fields it is \"%s\"",
					    (long long)i, is ? is : "?", window ? "sliding_attention" : "full_attention");
	}
	return true;
}

/* A window as wide as the positions is none. */
static bool window_matters(const struct import *im)
{
	return fact_is(im, "window") && fact_count(im, "window") < fact_count(im, "positions");
}

static bool qwen_window(struct import *im)
{
	const json_t *v = json_object_get(im->root, "max_window_layers");
	int64_t layers = fact_count(im, "layers"), first = 28;

	if (v && !json_is_null(v)) {
		if (!json_is_integer(v) || json_integer_value(v) < 0)
			return import_wrong(im, "max_window_layers", "'max_window_layers' must be an integer, 0 or more");
		first = json_integer_value(v);
	}
	bool some = fact_is(im, "sliding") && fact_is(im, "window") && first < layers;
	if (!layer_types(im, some ? first : layers, 1))
		return false;
	if (!some || !window_matters(im))
		fact_set(im, "window", "%s", "");
	else if (first > 0)
		fact_set(im, "reach", "where(index(layers) < %lld, seq, %s)  # the first layers see all",
			 (long long)first, fact_text(im, "window"));
	return true;
}

static void attention_options(struct import *im)
{
	struct text t = { .mem = im->mem };

	text_bytes(&t, "", 0);
	if (fact_is(im, "reach"))
		text_put(&t, ", window = reach");
	else if (fact_is(im, "window"))
		text_put(&t, ", window = %s", fact_text(im, "window"));
	if (fact_is(im, "cap"))
		text_put(&t, ", cap = %s", fact_text(im, "cap"));
	if (fact_is(im, "scalar") && !streq(fact_text(im, "scalar"), fact_text(im, "head")))
		text_put(&t, ", scale = rsqrt(%s)", fact_text(im, "scalar"));
	if (fact_is(im, "attn_drop"))
		text_put(&t, ", dropout = %s", fact_text(im, "attn_drop"));
	fact_set(im, "options", "%s", t.s);
}

/* What stands around a query: rms.q(h @ wq + bq, head). */
static void query_and_key(struct import *im)
{
	const char *names[] = { "ql", "qr", "kl", "kr" };

	for (int i = 0; i < 2; i++) {
		const char *bias = fact_is(im, "qkv_bias") ? (i ? " + bk" : " + bq") : "";

		fact_set(im, names[2 * i], "%s", fact_is(im, "qk_norm") ? (i ? "rms.k(" : "rms.q(") : "");
		fact_set(im, names[2 * i + 1], "%s%s", bias, fact_is(im, "qk_norm") ? ", head)" : "");
	}
	if (fact_is(im, "qkv_bias") || fact_is(im, "mlp_bias"))
		fact_set(im, "biases", "true");
}

static bool mixture(struct import *im)
{
	bool mixtral = streq(im->family->type, "mixtral");

	if (!fact_is(im, "experts"))
		return true;
	if (fact_count(im, "pick") > fact_count(im, "experts"))
		return import_wrong(im, "num_experts_per_tok", "'num_experts_per_tok' is %s, of %s experts",
				    fact_text(im, "pick"), fact_text(im, "experts"));
	fact_set(im, "moe", "true");
	fact_set(im, "block", mixtral ? "block_sparse_moe" : "mlp");
	fact_set(im, "gate_name", mixtral ? "w1" : "gate_proj");
	fact_set(im, "up_name", mixtral ? "w3" : "up_proj");
	fact_set(im, "down_name", mixtral ? "w2" : "down_proj");
	if (mixtral)
		fact_set(im, "renorm", "true");
	return true;
}

bool write_decoder(struct import *im)
{
	const char *type = im->family->type;
	bool qwen = strncmp(type, "qwen", 4) == 0;

	if (!shapes(im) || !mixture(im))
		return false;
	if (qwen ? !qwen_window(im) : !layer_types(im, fact_is(im, "window") ? 0 : INT64_MAX, 1))
		return false;
	if (!window_matters(im))
		fact_set(im, "window", "%s", "");
	if (fact_is(im, "attention_bias") || streq(type, "qwen2"))
		fact_set(im, "qkv_bias", "true");
	if (fact_is(im, "attention_bias"))
		fact_set(im, "o_bias", "true");
	if (strncmp(type, "qwen3", 5) == 0)
		fact_set(im, "qk_norm", "true");
	query_and_key(im);
	attention_options(im);
	fact_set(im, "gated", "%s", import_act(im, "act", fact_is(im, "moe") ? "xe @[embed] wg" :
					       fact_is(im, "mlp_bias") ? "h @ wg + bg" : "h @ wg"));
	import_write(im, import_head);
	import_write(im, dims);
	import_write(im, layer);
	import_write(im, fact_is(im, "moe") ? moe : mlp);
	import_write(im, head);
	import_write(im, import_plan);
	import_write(im, attention_names);
	import_write(im, mlp_names);
	return true;
}

static const char gemma_layer[] =
	"x[batch, seq, embed] = wte[vocab = tokens] * sqrt(embed)\n"
	"repeat layers {\n"
	"    param wq[embed, kv, group, head], wk[embed, kv, head], wv[embed, kv, head] ~ normal($std)\n"
	"    param wo[kv, group, head, embed] ~ normal($std)\n"
	"?reach    reach = $reach  # a number known for each layer when compiled\n"
	"    h = rms.attn(x, embed)\n"
	"    hk = h[seq -> ctx]\n"
	"    q = rope(h @ wq, seq, head, theta = $theta)\n"
	"    k = rope(hk @ wk, ctx, head, theta = $theta)\n"
	"    v = hk @ wv\n"
	"    o = attention(q, k, v, head, ctx, causal = seq$options)\n"
	"    x = x + rms.after_attn(o @[kv, group, head] wo, embed)\n"
	"\n"
	"    param wg[embed, ff], wu[embed, ff], wd[ff, embed] ~ normal($std)\n"
	"    h = rms.mlp(x, embed)\n"
	"    x = x + rms.after_mlp($gated * (h @ wu) @ wd, embed)\n"
	"}\n";

bool write_gemma2(struct import *im)
{
	if (!shapes(im) || !layer_types(im, fact_is(im, "window") ? 0 : INT64_MAX, 2))
		return false;
	if (fact_is(im, "scalar") && fact_count(im, "scalar") < 1)
		return import_wrong(im, "query_pre_attn_scalar", "'query_pre_attn_scalar' must be positive");
	if (window_matters(im))
		fact_set(im, "reach", "where(index(layers) %% 2 == 0, %s, seq)", fact_text(im, "window"));
	fact_set(im, "window", "%s", "");
	fact_set(im, "one", "true");
	attention_options(im);
	fact_set(im, "gated", "%s", import_act(im, "act", "h @ wg"));
	import_write(im, import_head);
	import_write(im, dims);
	import_write(im, gemma_layer);
	import_write(im, head);
	import_write(im, import_plan);
	import_write(im, attention_names);
	import_write(im, mlp_names);
	return true;
}
