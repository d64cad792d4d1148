/* frontend/import_more.c - ptc import of gpt2, bert, vit and t5. */
#include "frontend/import.h"

#define TRAIN "minimize loss with "

/* Dropout, where there is some: ${dl}x${dr}. */
static void dropout_around(struct import *im, const char *rate, const char *left, const char *right)
{
	bool some = fact_is(im, rate);

	fact_set(im, left, "%s", some ? "dropout(" : "");
	fact_set(im, right, some ? ", %s)" : "%s", fact_text(im, rate));
}

static void attention_dropout(struct import *im)
{
	fact_set(im, "options", fact_is(im, "attn_drop") ? ", dropout = %s" : "%s", fact_text(im, "attn_drop"));
}

static void start(struct import *im, const char *batch, const char *sharded)
{
	fact_set(im, "batch", "%s", batch);
	fact_set(im, "micro", "8");
	fact_set(im, "sharded", "%s", sharded);
	import_write(im, import_head);
}

static const char norm_def[] =
	"def norm(x, e) {\n"
	"    param g[e] ~ ones\n"
	"    param b[e] ~ zeros\n"
	"    return layernorm(x, e, eps = $eps) * g + b\n"
	"}\n"
	"\n";

/* -- gpt2 -- */

static const char gpt2_model[] =
	"dim batch = $batch, seq = $positions, ctx = seq\n"
	"dim vocab = $vocab, embed = $embed, heads = $heads, head = embed / heads, ff = $ff\n"
	"dim layers = $layers\n"
	"\n"
	"input tokens[batch, seq]: token(vocab)\n"
	"input targets[batch, seq]: token(vocab) = next(tokens)\n"
	"\n";

static const char gpt2_body[] =
	"param wte[vocab, embed], wpe[seq, embed] ~ normal($std)\n"
	"!tied param wout[vocab, embed] ~ normal($std)\n"
	"small = $std / sqrt(2 * layers)  # what ends in the residual stream starts smaller\n"
	"\n"
	"x[batch, seq, embed] = ${el}wte[vocab = tokens] + wpe${er}\n"
	"repeat layers {\n"
	"    param wq[embed, heads, head], wk[embed, heads, head], wv[embed, heads, head] ~ normal($std)\n"
	"    param wo[heads, head, embed] ~ normal(small)\n"
	"    param bq[heads, head], bk[heads, head], bv[heads, head], bo[embed] ~ zeros\n"
	"    h = norm.attn(x, embed)\n"
	"    hk = h[seq -> ctx]\n"
	"    q = h @ wq + bq\n"
	"    k = hk @ wk + bk\n"
	"    v = hk @ wv + bv\n"
	"    o = attention(q, k, v, head, ctx, causal = seq$options)\n"
	"    x = x + ${dl}o @[heads, head] wo + bo${dr}\n"
	"\n"
	"    param wu[embed, ff] ~ normal($std)\n"
	"    param wd[ff, embed] ~ normal(small)\n"
	"    param bu[ff], bd[embed] ~ zeros\n"
	"    h = norm.mlp(x, embed)\n"
	"    x = x + ${dl}$act @ wd + bd${dr}\n"
	"}\n"
	"?tied logits[batch, seq, vocab] = norm.final(x, embed) @ wte\n"
	"!tied logits[batch, seq, vocab] = norm.final(x, embed) @ wout\n"
	"loss = cross_entropy(logits, targets, vocab)\n"
	"\n"
	TRAIN "adamw(lr = cosine(6e-4, warmup = 2000, steps = 600000, final = 6e-5), betas = [0.9, 0.95], "
	"weight_decay = 0.1, clip = 1.0) {\n"
	"    \"g\", \"b\", \"b?\": weight_decay = 0\n"
	"}\n";

static const char gpt2_names[] =
	"checkpoint hf {\n"
	"    wte: \"wte.weight\"[vocab, embed]\n"
	"    wpe: \"wpe.weight\"[seq, embed]\n"
	"    layers.norm.attn.g: \"h.{layers}.ln_1.weight\"[embed]\n"
	"    layers.norm.attn.b: \"h.{layers}.ln_1.bias\"[embed]\n"
	"    layers.wq: \"h.{layers}.attn.c_attn.weight\"[embed, (1/3, heads, head)]\n"
	"    layers.wk: \"h.{layers}.attn.c_attn.weight\"[embed, (2/3, heads, head)]\n"
	"    layers.wv: \"h.{layers}.attn.c_attn.weight\"[embed, (3/3, heads, head)]\n"
	"    layers.bq: \"h.{layers}.attn.c_attn.bias\"[(1/3, heads, head)]\n"
	"    layers.bk: \"h.{layers}.attn.c_attn.bias\"[(2/3, heads, head)]\n"
	"    layers.bv: \"h.{layers}.attn.c_attn.bias\"[(3/3, heads, head)]\n"
	"    layers.wo: \"h.{layers}.attn.c_proj.weight\"[(heads, head), embed]\n"
	"    layers.bo: \"h.{layers}.attn.c_proj.bias\"[embed]\n"
	"    layers.norm.mlp.g: \"h.{layers}.ln_2.weight\"[embed]\n"
	"    layers.norm.mlp.b: \"h.{layers}.ln_2.bias\"[embed]\n"
	"    layers.wu: \"h.{layers}.mlp.c_fc.weight\"[embed, ff]\n"
	"    layers.bu: \"h.{layers}.mlp.c_fc.bias\"[ff]\n"
	"    layers.wd: \"h.{layers}.mlp.c_proj.weight\"[ff, embed]\n"
	"    layers.bd: \"h.{layers}.mlp.c_proj.bias\"[embed]\n"
	"    norm.final.g: \"ln_f.weight\"[embed]\n"
	"    norm.final.b: \"ln_f.bias\"[embed]\n"
	"!tied    wout: \"lm_head.weight\"[vocab, embed]\n"
	"}\n";

bool write_gpt2(struct import *im)
{
	if (!import_divide(im, "head", "embed", "heads", "n_head"))
		return false;
	if (!fact_is(im, "ff"))
		fact_set(im, "ff", "4 * embed");
	fact_set(im, "seq", "%s", fact_text(im, "positions"));
	dropout_around(im, "embed_drop", "el", "er");
	dropout_around(im, "drop", "dl", "dr");
	fact_set(im, "options", "%s%s%s", fact_is(im, "scaled") ? "" : ", scale = 1",
		 fact_is(im, "attn_drop") ? ", dropout = " : "", fact_text(im, "attn_drop"));
	fact_set(im, "act", "%s", import_act(im, "act", "h @ wu + bu"));
	start(im, "512", "heads");
	import_write(im, gpt2_model);
	import_write(im, norm_def);
	import_write(im, gpt2_body);
	import_write(im, import_plan);
	import_write(im, gpt2_names);
	return true;
}

/* -- bert -- */

static const char bert_model[] =
	"dim batch = $batch, seq = $positions, ctx = seq, kinds = $kinds\n"
	"dim vocab = $vocab, embed = $embed, out = embed, heads = $heads, head = embed / heads, ff = $ff\n"
	"dim layers = $layers\n"
	"\n"
	"input tokens[batch, seq]: token(vocab)\n"
	"input segments[batch, seq]: token(kinds)\n"
	"input real[batch, seq]: bool  # false where a text has ended\n"
	"input labels[batch, seq]: token(vocab)\n"
	"\n";

static const char encoder_attention[] =
	"    param wq[embed, heads, head], wk[embed, heads, head], wv[embed, heads, head] ~ normal($std)\n"
	"    param wo[heads, head, embed] ~ normal($std)\n"
	"?qkv_bias    param bq[heads, head], bk[heads, head], bv[heads, head], bo[embed] ~ zeros\n"
	"!qkv_bias    param bo[embed] ~ zeros\n"
	"?vit    h = norm.attn(x, embed)\n"
	"    hk = $h[seq -> ctx]\n"
	"?qkv_bias    q = $h @ wq + bq\n"
	"?qkv_bias    k = hk @ wk + bk\n"
	"?qkv_bias    v = hk @ wv + bv\n"
	"!qkv_bias    q = $h @ wq\n"
	"!qkv_bias    k = hk @ wk\n"
	"!qkv_bias    v = hk @ wv\n";

static const char bert_body[] =
	"param wte[vocab, embed], wpe[seq, embed], wse[kinds, embed] ~ normal($std)\n"
	"\n"
	"z[batch, seq, embed] = wte[vocab = tokens] + wpe + wse[kinds = segments]\n"
	"x = ${dl}norm.in(z, embed)${dr}\n"
	"repeat layers {\n";

static const char bert_rest[] =
	"    o = attention(q, k, v, head, ctx, mask = real[seq -> ctx]$options)\n"
	"    x = norm.attn(x + ${dl}o @[heads, head] wo + bo${dr}, embed)\n"
	"\n"
	"    param wu[embed, ff], wd[ff, embed] ~ normal($std)\n"
	"    param bu[ff], bd[embed] ~ zeros\n"
	"    x = norm.mlp(x + ${dl}$act @ wd + bd${dr}, embed)\n"
	"}\n"
	"\n"
	"# The head: one more layer, then the embedding again.\n"
	"param wt[embed, out] ~ normal($std)\n"
	"param bt[out], bout[vocab] ~ zeros\n"
	"t = $head_act\n"
	"logits[batch, seq, vocab] = norm.head(t[out -> embed], embed) @ wte + bout\n"
	"loss = cross_entropy(logits, labels, vocab)\n"
	"metric accuracy = sum(argmax(logits, vocab) == labels) / sum(labels != -100)\n"
	"\n"
	TRAIN "adamw(lr = linear(1e-4, warmup = 10000, steps = 1000000), weight_decay = 0.01) {\n"
	"    \"g\", \"b\", \"b?\", bout: weight_decay = 0\n"
	"}\n";

static const char bert_names[] =
	"checkpoint hf {\n"
	"    wte: \"bert.embeddings.word_embeddings.weight\"[vocab, embed]\n"
	"    wpe: \"bert.embeddings.position_embeddings.weight\"[seq, embed]\n"
	"    wse: \"bert.embeddings.token_type_embeddings.weight\"[kinds, embed]\n"
	"    norm.in.g: \"bert.embeddings.LayerNorm.weight\"[embed]\n"
	"    norm.in.b: \"bert.embeddings.LayerNorm.bias\"[embed]\n"
	"    layers.wq: \"$l.attention.self.query.weight\"[(heads, head), embed]\n"
	"    layers.bq: \"$l.attention.self.query.bias\"[(heads, head)]\n"
	"    layers.wk: \"$l.attention.self.key.weight\"[(heads, head), embed]\n"
	"    layers.bk: \"$l.attention.self.key.bias\"[(heads, head)]\n"
	"    layers.wv: \"$l.attention.self.value.weight\"[(heads, head), embed]\n"
	"    layers.bv: \"$l.attention.self.value.bias\"[(heads, head)]\n"
	"    layers.wo: \"$l.attention.output.dense.weight\"[embed, (heads, head)]\n"
	"    layers.bo: \"$l.attention.output.dense.bias\"[embed]\n"
	"    layers.norm.attn.g: \"$l.attention.output.LayerNorm.weight\"[embed]\n"
	"    layers.norm.attn.b: \"$l.attention.output.LayerNorm.bias\"[embed]\n"
	"    layers.wu: \"$l.intermediate.dense.weight\"[ff, embed]\n"
	"    layers.bu: \"$l.intermediate.dense.bias\"[ff]\n"
	"    layers.wd: \"$l.output.dense.weight\"[embed, ff]\n"
	"    layers.bd: \"$l.output.dense.bias\"[embed]\n"
	"    layers.norm.mlp.g: \"$l.output.LayerNorm.weight\"[embed]\n"
	"    layers.norm.mlp.b: \"$l.output.LayerNorm.bias\"[embed]\n"
	"    wt: \"cls.predictions.transform.dense.weight\"[out, embed]\n"
	"    bt: \"cls.predictions.transform.dense.bias\"[out]\n"
	"    norm.head.g: \"cls.predictions.transform.LayerNorm.weight\"[embed]\n"
	"    norm.head.b: \"cls.predictions.transform.LayerNorm.bias\"[embed]\n"
	"    bout: \"cls.predictions.bias\"[vocab]\n"
	"}\n";

bool write_bert(struct import *im)
{
	if (!import_divide(im, "head", "embed", "heads", "num_attention_heads"))
		return false;
	fact_set(im, "qkv_bias", "true");
	fact_set(im, "h", "x");
	fact_set(im, "seq", "%s", fact_text(im, "positions"));
	fact_set(im, "l", "bert.encoder.layer.{layers}");
	dropout_around(im, "drop", "dl", "dr");
	attention_dropout(im);
	fact_set(im, "head_act", "%s", import_act(im, "act", "x @ wt + bt"));
	fact_set(im, "act", "%s", import_act(im, "act", "x @ wu + bu"));
	start(im, "256", "heads");
	import_write(im, bert_model);
	import_write(im, norm_def);
	import_write(im, bert_body);
	import_write(im, encoder_attention);
	import_write(im, bert_rest);
	import_write(im, import_plan);
	import_write(im, bert_names);
	return true;
}

/* -- vit -- */

static const char vit_model[] =
	"dim batch = $batch, chan = $chan, rows = $rows, cols = rows, side = $side\n"
	"dim prow = rows / side, pcol = cols / side, py = side, px = side  # patches, and what is in one\n"
	"dim seq = prow * pcol + 1, ctx = seq, classes = $classes\n"
	"dim one = 1, unit = 1  # in the shapes of Hugging Face's files\n"
	"dim embed = $embed, heads = $heads, head = embed / heads, ff = $ff\n"
	"dim layers = $layers\n"
	"\n"
	"input image[batch, chan, rows, cols]: float\n"
	"input label[batch]: token(classes)\n"
	"\n";

static const char vit_body[] =
	"param wp[chan, py, px, embed], cls[one, unit, embed], wpe[one, seq, embed] ~ normal($std)\n"
	"param bp[embed] ~ zeros\n"
	"\n"
	"p = image[rows = index(prow) * side + index(py), cols = index(pcol) * side + index(px)]\n"
	"t = p @[chan, py, px] wp + bp\n"
	"i = index(seq) - 1  # the class token stands at 0\n"
	"z[batch, seq, embed] = where(i < 0, cls[one = 0, unit = 0], t[prow = i // pcol, pcol = i % pcol])\n"
	"x = ${dl}z + wpe[one = 0]${dr}\n"
	"repeat layers {\n";

static const char vit_rest[] =
	"    o = attention(q, k, v, head, ctx$options)\n"
	"    x = x + ${dl}o @[heads, head] wo + bo${dr}\n"
	"\n"
	"    param wu[embed, ff], wd[ff, embed] ~ normal($std)\n"
	"    param bu[ff], bd[embed] ~ zeros\n"
	"    h = norm.mlp(x, embed)\n"
	"    x = x + ${dl}$act @ wd + bd${dr}\n"
	"}\n"
	"\n"
	"param wc[embed, classes], bc[classes] ~ zeros\n"
	"logits[batch, classes] = norm.final(x, embed)[seq = 0] @ wc + bc\n"
	"loss = cross_entropy(logits, label, classes)\n"
	"metric accuracy = mean(argmax(logits, classes) == label)\n"
	"\n"
	TRAIN "adamw(lr = cosine(3e-3, warmup = 10000, steps = 300000), weight_decay = 0.3, clip = 1.0) {\n"
	"    \"g\", \"b\", \"b?\", cls: weight_decay = 0\n"
	"}\n"
	"\n"
	"# ptc MODEL --mesh dp=4,tp=2 gives other sizes to these axes.\n"
	"plan {\n"
	"    mesh dp = 8, tp = 1 on h100\n"
	"    batch -> dp\n"
	"    heads, ff -> tp\n"
	"    optimizer -> dp\n"
	"    microbatches = $micro\n"
	"    precision bf16\n"
	"}\n"
	"\n"
	"# Where each param lies in Hugging Face's files.\n";

static const char vit_names[] =
	"checkpoint hf {\n"
	"    cls: \"vit.embeddings.cls_token\"[one, unit, embed]\n"
	"    wpe: \"vit.embeddings.position_embeddings\"[one, seq, embed]\n"
	"    wp: \"vit.embeddings.patch_embeddings.projection.weight\"[embed, chan, py, px]\n"
	"    bp: \"vit.embeddings.patch_embeddings.projection.bias\"[embed]\n"
	"    layers.norm.attn.g: \"$l.layernorm_before.weight\"[embed]\n"
	"    layers.norm.attn.b: \"$l.layernorm_before.bias\"[embed]\n"
	"    layers.wq: \"$l.attention.attention.query.weight\"[(heads, head), embed]\n"
	"    layers.wk: \"$l.attention.attention.key.weight\"[(heads, head), embed]\n"
	"    layers.wv: \"$l.attention.attention.value.weight\"[(heads, head), embed]\n"
	"?qkv_bias    layers.bq: \"$l.attention.attention.query.bias\"[(heads, head)]\n"
	"?qkv_bias    layers.bk: \"$l.attention.attention.key.bias\"[(heads, head)]\n"
	"?qkv_bias    layers.bv: \"$l.attention.attention.value.bias\"[(heads, head)]\n"
	"    layers.wo: \"$l.attention.output.dense.weight\"[embed, (heads, head)]\n"
	"    layers.bo: \"$l.attention.output.dense.bias\"[embed]\n"
	"    layers.norm.mlp.g: \"$l.layernorm_after.weight\"[embed]\n"
	"    layers.norm.mlp.b: \"$l.layernorm_after.bias\"[embed]\n"
	"    layers.wu: \"$l.intermediate.dense.weight\"[ff, embed]\n"
	"    layers.bu: \"$l.intermediate.dense.bias\"[ff]\n"
	"    layers.wd: \"$l.output.dense.weight\"[embed, ff]\n"
	"    layers.bd: \"$l.output.dense.bias\"[embed]\n"
	"    norm.final.g: \"vit.layernorm.weight\"[embed]\n"
	"    norm.final.b: \"vit.layernorm.bias\"[embed]\n"
	"    wc: \"classifier.weight\"[classes, embed]\n"
	"    bc: \"classifier.bias\"[classes]\n"
	"}\n";

/* The labels by their names, else num_labels, else Hugging Face's default. */
static bool classes(struct import *im)
{
	const json_t *names = json_object_get(im->root, "id2label"), *n = json_object_get(im->root, "num_labels");

	if (json_is_object(names) && json_object_size(names) > 0)
		fact_set(im, "classes", "%zu", json_object_size(names));
	else if (!n || json_is_null(n))
		fact_set(im, "classes", "2");
	else if (json_is_integer(n) && json_integer_value(n) > 0)
		fact_set(im, "classes", "%lld", (long long)json_integer_value(n));
	else
		return import_wrong(im, "num_labels", "'num_labels' must be a positive integer");
	return true;
}

bool write_vit(struct import *im)
{
	if (!import_divide(im, "head", "embed", "heads", "num_attention_heads") ||
	    !import_divide(im, "prow", "rows", "side", "patch_size") || !classes(im))
		return false;
	fact_set(im, "vit", "true");
	fact_set(im, "h", "h");
	fact_set(im, "l", "vit.encoder.layer.{layers}");
	dropout_around(im, "drop", "dl", "dr");
	attention_dropout(im);
	fact_set(im, "act", "%s", import_act(im, "act", "h @ wu + bu"));
	start(im, "4096", "heads");
	import_write(im, vit_model);
	import_write(im, norm_def);
	import_write(im, vit_body);
	import_write(im, encoder_attention);
	import_write(im, vit_rest);
	import_write(im, vit_names);
	return true;
}

/* -- t5 -- */

static const char t5_model[] =
	"dim batch = $batch, src = 512, srck = src, dst = 512, dstk = dst  # positions in and out, and as keys\n"
	"dim vocab = $vocab, embed = $embed, heads = $heads, head = $head, ff = $ff, buckets = $buckets\n"
	"dim enc = $enc, dec = $dec\n"
	"\n"
	"input tokens[batch, src]: token(vocab)\n"
	"input given[batch, dst]: token(vocab)  # the answer, shifted right\n"
	"input answer[batch, dst]: token(vocab)\n"
	"\n"
	"# One attention for three uses: x's positions look at y's, which are called `key`.\n"
	"def attn(x, y, key, bias, order) {\n"
	"    param wq[embed, heads, head] ~ normal(rsqrt(embed * head))\n"
	"    param wk[embed, heads, head], wv[embed, heads, head] ~ normal(rsqrt(embed))\n"
	"    param wo[heads, head, embed] ~ normal(rsqrt(heads * head))\n"
	"    q = x @ wq\n"
	"    k = y @ wk\n"
	"    v = y @ wv\n"
	"    o = attention(q, k, v, head, key, scale = 1, bias = bias, causal = order$options)\n"
	"    return ${dl}o @[heads, head] wo${dr}\n"
	"}\n"
	"\n"
	"def ffn(x) {\n"
	"    param wu[embed, ff] ~ normal(rsqrt(embed))\n"
	"?glu    param wg[embed, ff] ~ normal(rsqrt(embed))\n"
	"    param wd[ff, embed] ~ normal(rsqrt(ff))\n"
	"!glu    return ${dl}${dl}$act${dr} @ wd${dr}\n"
	"?glu    return ${dl}${dl}$act * (x @ wu)${dr} @ wd${dr}\n"
	"}\n"
	"\n"
	"def rms(x) {\n"
	"    param g[embed] ~ ones\n"
	"    return rmsnorm(x, embed, eps = $eps) * g\n"
	"}\n"
	"\n"
	"# The bucket of a distance n >= 0: exact below room / 2, then logarithmic up to $far.\n"
	"def bucket(n, room) {\n"
	"    near = room // 2\n"
	"    far = near + int(log(max(n, 1) / near) / log($far / near) * (room - near))\n"
	"    return where(n < near, n, min(far, room - 1))\n"
	"}\n"
	"\n";

static const char t5_body[] =
	"param wte[vocab, embed] ~ normal(1)\n"
	"!tied param wout[vocab, embed] ~ normal(rsqrt(embed))\n"
	"param re[buckets, heads], rd[buckets, heads] ~ normal(rsqrt(embed))\n"
	"\n"
	"# The relative positions of a tower are shared by its layers.\n"
	"ne = index(srck) - index(src)\n"
	"be = re[buckets = bucket(abs(ne), buckets // 2) + where(ne > 0, buckets // 2, 0)]\n"
	"bd = rd[buckets = bucket(max(index(dst) - index(dstk), 0), buckets)]\n"
	"\n"
	"x[batch, src, embed] = ${dl}wte[vocab = tokens]${dr}\n"
	"repeat enc {\n"
	"    h = rms.attn(x)\n"
	"    x = x + attn(h, h[src -> srck], srck, be, none)\n"
	"    x = x + ffn(rms.mlp(x))\n"
	"}\n"
	"mem = ${dl}rms.enc(x)${dr}\n"
	"\n"
	"y[batch, dst, embed] = ${dl}wte[vocab = given]${dr}\n"
	"repeat dec {\n"
	"    h = rms.attn(y)\n"
	"    y = y + attn(h, h[dst -> dstk], dstk, bd, dst)\n"
	"    y = y + attn.cross(rms.cross(y), mem, src, 0, none)\n"
	"    y = y + ffn(rms.mlp(y))\n"
	"}\n"
	"?tied logits[batch, dst, vocab] = ${dl}rms.dec(y)${dr} * rsqrt(embed) @ wte\n"
	"!tied logits[batch, dst, vocab] = ${dl}rms.dec(y)${dr} @ wout\n"
	"loss = cross_entropy(logits, answer, vocab)\n"
	"\n"
	TRAIN "adafactor(lr = rsqrt(max(step, 10000)))\n"
	"\n"
	"# ptc MODEL --mesh dp=4,tp=2 gives other sizes to these axes.\n"
	"plan {\n"
	"    mesh dp = 8, tp = 1 on h100\n"
	"    batch -> dp\n"
	"    heads, ff, vocab -> tp\n"
	"    src, dst -> tp\n"
	"    optimizer -> dp\n"
	"    microbatches = $micro\n"
	"    precision bf16\n"
	"}\n"
	"\n"
	"# Where each param lies in Hugging Face's files.\n"
	"checkpoint hf {\n"
	"    wte: \"shared.weight\"[vocab, embed]\n"
	"    re: \"encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight\"[buckets, heads]\n"
	"    rd: \"decoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight\"[buckets, heads]\n";

static const char t5_attention[] =
	"    $path.wq: \"$l.$module.q.weight\"[(heads, head), embed]\n"
	"    $path.wk: \"$l.$module.k.weight\"[(heads, head), embed]\n"
	"    $path.wv: \"$l.$module.v.weight\"[(heads, head), embed]\n"
	"    $path.wo: \"$l.$module.o.weight\"[embed, (heads, head)]\n"
	"    $norm.g: \"$l.layer_norm.weight\"[embed]\n";

static const char t5_mlp[] =
	"?glu    $path.wg: \"$l.DenseReluDense.wi_0.weight\"[ff, embed]\n"
	"?glu    $path.wu: \"$l.DenseReluDense.wi_1.weight\"[ff, embed]\n"
	"!glu    $path.wu: \"$l.DenseReluDense.wi.weight\"[ff, embed]\n"
	"    $path.wd: \"$l.DenseReluDense.wo.weight\"[embed, ff]\n"
	"    $norm.g: \"$l.layer_norm.weight\"[embed]\n";

static const char t5_rest[] =
	"    rms.enc.g: \"encoder.final_layer_norm.weight\"[embed]\n"
	"    rms.dec.g: \"decoder.final_layer_norm.weight\"[embed]\n"
	"!tied    wout: \"lm_head.weight\"[vocab, embed]\n"
	"}\n";

static void t5_names(struct import *im)
{
	static const struct {
		const char *path, *layer, *module, *norm;
	} parts[] = {
		{ "enc.attn", "encoder.block.{enc}.layer.0", "SelfAttention", "enc.rms.attn" },
		{ "enc.ffn", "encoder.block.{enc}.layer.1", NULL, "enc.rms.mlp" },
		{ "dec.attn", "decoder.block.{dec}.layer.0", "SelfAttention", "dec.rms.attn" },
		{ "dec.attn.cross", "decoder.block.{dec}.layer.1", "EncDecAttention", "dec.rms.cross" },
		{ "dec.ffn", "decoder.block.{dec}.layer.2", NULL, "dec.rms.mlp" },
	};

	for (size_t i = 0; i < LEN(parts); i++) {
		fact_set(im, "path", "%s", parts[i].path);
		fact_set(im, "l", "%s", parts[i].layer);
		fact_set(im, "module", "%s", parts[i].module ? parts[i].module : "");
		fact_set(im, "norm", "%s", parts[i].norm);
		import_write(im, parts[i].module ? t5_attention : t5_mlp);
	}
	import_write(im, t5_rest);
}

/* "relu", "gated-gelu": the gated one's gelu is the tanh form. */
static bool feed_forward(struct import *im)
{
	const json_t *v = json_object_get(im->root, "feed_forward_proj");
	const char *name = v && !json_is_null(v) ? json_string_value(v) : "relu";
	static const struct {
		const char *name, *act;
		bool gated;
	} legal[] = {
		{ "relu", "relu", false }, { "gelu", "gelu", false }, { "gelu_new", "gelu_new", false },
		{ "silu", "silu", false }, { "gated-gelu", "gelu_new", true }, { "gated-relu", "relu", true },
		{ "gated-silu", "silu", true },
	};

	for (size_t i = 0; i < LEN(legal); i++) {
		if (!streq(legal[i].name, name))
			continue;
		fact_set(im, "act", "%s", legal[i].act);
		fact_set(im, "glu", "%s", legal[i].gated ? "true" : "");
		fact_set(im, "act", "%s", import_act(im, "act", legal[i].gated ? "x @ wg" : "x @ wu"));
		return true;
	}
	import_wrong(im, "feed_forward_proj", "'feed_forward_proj' can't be \"%.40s\"", name ? name : "?");
	diag_note(im->diag, (struct span){ 0 }, "legal: relu, gelu, gelu_new, silu, gated-gelu, gated-relu, gated-silu");
	return false;
}

bool write_t5(struct import *im)
{
	if (!feed_forward(im))
		return false;
	if (fact_count(im, "buckets") < 4 || fact_count(im, "far") <= fact_count(im, "buckets") / 2)
		return import_wrong(im, "relative_attention_num_buckets",
				    "there must be 4 buckets or more, and half of them below the greatest distance");
	if (!fact_is(im, "dec"))
		fact_set(im, "dec", "%s", fact_text(im, "enc"));
	dropout_around(im, "drop", "dl", "dr");
	fact_set(im, "options", fact_is(im, "drop") ? ", dropout = %s" : "%s", fact_text(im, "drop"));
	start(im, "128", "heads");
	import_write(im, t5_model);
	import_write(im, t5_body);
	t5_names(im);
	return true;
}
