/* frontend/import.c - reads a config.json by a family's table: every field of it is known, and
 * either becomes a fact or is known to change nothing. */
#include "frontend/import.h"

#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* -- places and messages -- */

/* Where "key": stands in the outermost object. */
struct span import_place(const struct import *im, const char *key)
{
	struct span at = { im->file, 1, 1, 1 };
	size_t n = strlen(key), line = 0;
	int depth = 0;
	uint32_t lines = 1;

	for (size_t p = 0; p < im->len; p++) {
		char c = im->text[p];
		size_t begin = p + 1, end;

		if (c == '\n') {
			lines++;
			line = p + 1;
		}
		depth += c == '{' || c == '[';
		depth -= c == '}' || c == ']';
		if (c != '"')
			continue;
		for (p++; p < im->len && im->text[p] != '"'; p++)
			p += im->text[p] == '\\';
		end = p + 1;
		while (end < im->len && isspace((unsigned char)im->text[end]))
			end++;
		if (depth != 1 || p - begin != n || memcmp(im->text + begin, key, n) != 0 ||
		    end >= im->len || im->text[end] != ':')
			continue;
		return (struct span){ im->file, lines, (uint32_t)(begin - line), (uint32_t)n + 2 };
	}
	return at;
}

bool import_wrong(struct import *im, const char *key, const char *fmt, ...)
{
	va_list ap;
	char what[400];

	va_start(ap, fmt);
	vsnprintf(what, sizeof what, fmt, ap);
	va_end(ap);
	return diag_error(im->diag, import_place(im, key), "%s", what);
}

static const char *json_text(struct import *im, const json_t *v)
{
	char *s = json_dumps(v, JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(15));
	const char *text = arena_printf(im->mem, "%.60s%s", s ? s : "?", s && strlen(s) > 60 ? "..." : "");

	free(s);
	return text;
}

/* -- facts -- */

static struct fact *find_fact(const struct import *im, const char *name, size_t n)
{
	for (uint32_t i = 0; i < im->facts.n; i++)
		if (strncmp(im->facts.at[i].name, name, n) == 0 && !im->facts.at[i].name[n])
			return &im->facts.at[i];
	return NULL;
}

void fact_set(struct import *im, const char *name, const char *fmt, ...)
{
	struct fact *f = find_fact(im, name, strlen(name));
	va_list ap;
	char text[400];

	va_start(ap, fmt);
	vsnprintf(text, sizeof text, fmt, ap);
	va_end(ap);
	if (!f) {
		PUSH(im->mem, &im->facts, ((struct fact){ name, NULL }));
		f = &im->facts.at[im->facts.n - 1];
	}
	f->text = arena_strdup(im->mem, text);
}

const char *fact_text(const struct import *im, const char *name)
{
	const struct fact *f = find_fact(im, name, strlen(name));

	return f ? f->text : "";
}

bool fact_is(const struct import *im, const char *name)
{
	return *fact_text(im, name) != 0;
}

int64_t fact_count(const struct import *im, const char *name)
{
	return strtoll(fact_text(im, name), NULL, 10);
}

bool import_divide(struct import *im, const char *quotient, const char *a, const char *b, const char *key)
{
	int64_t x = fact_count(im, a), y = fact_count(im, b);

	if (y < 1 || x % y)
		return import_wrong(im, key, "'%s': %lld can't be divided by %lld", key, (long long)x, (long long)y);
	fact_set(im, quotient, "%lld", (long long)(x / y));
	return true;
}

/* -- fields -- */

/* As short as reads back the same, in the language's form: 1e-5, 500000. */
static void set_number(struct import *im, const char *fact, double x)
{
	char s[40], *e;

	if (x == nearbyint(x) && x < 1e15) {
		fact_set(im, fact, "%.0f", x);
		return;
	}
	for (int digits = 1; digits <= 17; digits++) {
		snprintf(s, sizeof s, "%.*g", digits, x);
		if (strtod(s, NULL) == x)
			break;
	}
	e = strchr(s, 'e');
	if (e && (e[1] == '-' || e[1] == '+') && e[2] == '0')
		memmove(e + 2, e + 3, strlen(e + 3) + 1);
	fact_set(im, fact, "%s", s);
}

static const struct {
	const char *name, *before, *after;
} acts[] = {
	{ "silu", "silu(", ")" },
	{ "swish", "silu(", ")" },
	{ "gelu", "gelu(", ", erf)" },
	{ "gelu_new", "gelu(", ", tanh)" },
	{ "gelu_pytorch_tanh", "gelu(", ", tanh)" },
	{ "gelu_fast", "gelu(", ", tanh)" },
	{ "quick_gelu", "gelu(", ", quick)" },
	{ "relu", "relu(", ")" },
	{ "relu2", "square(relu(", "))" },
	{ "tanh", "tanh(", ")" },
	{ "sigmoid", "sigmoid(", ")" },
};

const char *import_act(struct import *im, const char *fact, const char *x)
{
	for (size_t i = 0; i < LEN(acts); i++)
		if (streq(acts[i].name, fact_text(im, fact)))
			return arena_printf(im->mem, "%s%s%s", acts[i].before, x, acts[i].after);
	die("import: no activation '%s'", fact_text(im, fact));
}

static bool read_act(struct import *im, const struct field *f, const json_t *v)
{
	const char *name = json_is_string(v) ? json_string_value(v) : "";
	struct text all = { .mem = im->mem };

	for (size_t i = 0; i < LEN(acts); i++) {
		text_put(&all, "%s%s", i ? ", " : "", acts[i].name);
		if (streq(acts[i].name, name)) {
			fact_set(im, f->fact, "%s", name);
			return true;
		}
	}
	import_wrong(im, f->key, "'%s' can't be %s", f->key, json_text(im, v));
	diag_note(im->diag, (struct span){ 0 }, "legal: %s", all.s);
	return false;
}

static bool read_fixed(struct import *im, const struct field *f, const json_t *v)
{
	const char *text = json_text(im, v), *p = f->legal;
	size_t n = strlen(text);

	while (p) {
		if (strncmp(p, text, n) == 0 && (!p[n] || p[n] == ','))
			return true;
		p = strstr(p, ", ");
		p = p ? p + 2 : NULL;
	}
	import_wrong(im, f->key, "'%s' is %s, which ptc import can't express for %s", f->key, text, im->family->type);
	diag_note(im->diag, (struct span){ 0 }, "legal: %s", f->legal);
	return false;
}

static bool wanted(struct import *im, const struct field *f, const json_t *v, const char *what)
{
	return import_wrong(im, f->key, "'%s' is %s; it must be %s", f->key, json_text(im, v), what);
}

static bool read_count(struct import *im, const struct field *f, const json_t *v)
{
	json_int_t n = json_is_integer(v) ? json_integer_value(v) : 0;

	if (n < 1 || n > (json_int_t)1 << 40)
		return wanted(im, f, v, "a positive integer");
	fact_set(im, f->fact, "%lld", (long long)n);
	return true;
}

static bool read_field(struct import *im, const struct field *f)
{
	const json_t *v = json_object_get(im->root, f->key);
	bool null = json_is_null(v), may = f->type == COUNT_OR_NULL || f->type == REAL_OR_NULL;

	if (f->type == ANY || (f->type == FIXED && !v))
		return true;
	if (f->type == FIXED)
		return read_fixed(im, f, v);
	if (!v || null) {
		if (!f->absent && !(null && may))
			return import_wrong(im, f->key, v ? "'%s' is null" : "the config has no '%s'", f->key);
		fact_set(im, f->fact, "%s", null && may ? "" : f->absent);
		return true;
	}
	switch (f->type) {
	case COUNT: case COUNT_OR_NULL:
		return read_count(im, f, v);
	case REAL: case REAL_OR_NULL: case RATE: {
		double x = json_number_value(v);

		if (!json_is_number(v) || !(x >= 0) || (f->type == RATE && !(x < 1)))
			return wanted(im, f, v, f->type == RATE ? "at least 0 and below 1" : "a number, 0 or more");
		set_number(im, f->fact, x);
		if (f->type == RATE && x == 0)
			fact_set(im, f->fact, "%s", "");
		return true;
	}
	case FLAG:
		if (!json_is_boolean(v))
			return wanted(im, f, v, "true or false");
		fact_set(im, f->fact, "%s", json_is_true(v) ? "true" : "");
		return true;
	default:
		return read_act(im, f, v);
	}
}

/* Fields of any family that change nothing in the model or its training. */
static const char *const harmless[] = {
	"_attn_implementation", "_attn_implementation_autoset", "_commit_hash", "_name_or_path", "auto_map",
	"bad_words_ids", "begin_suppress_tokens", "bos_token_id", "cache_implementation",
	"chunk_size_feed_forward", "classifier_dropout", "cls_token_id", "decoder_start_token_id",
	"diversity_penalty", "do_sample", "dtype", "early_stopping", "encoder_no_repeat_ngram_size",
	"eos_token_id", "exponential_decay_length_penalty", "finetuning_task", "forced_bos_token_id",
	"forced_eos_token_id", "generation_config", "gradient_checkpointing", "id2label", "label2id",
	"length_penalty", "mask_token_id", "max_length", "min_length", "model_type", "name_or_path",
	"no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_labels", "num_return_sequences",
	"output_attentions", "output_hidden_states", "output_past", "output_scores", "pad_token_id", "prefix",
	"pretraining_tp", "problem_type", "remove_invalid_values", "repetition_penalty", "return_dict",
	"return_dict_in_generate", "sep_token_id", "suppress_tokens", "task_specific_params", "temperature",
	"tf_legacy_loss", "tokenizer_class", "top_k", "top_p", "torch_dtype", "torchscript",
	"transformers_version", "typical_p", "unk_token_id", "use_bfloat16", "use_cache",
};

static bool known(const struct import *im, const char *key, struct near *near)
{
	for (size_t i = 0; i < LEN(harmless); i++)
		if (streq(harmless[i], key))
			return true;
	for (size_t k = 0; k < LEN(im->family->fields); k++)
		for (const struct field *f = im->family->fields[k]; f && f->key; f++) {
			near_offer(near, f->key);
			if (streq(f->key, key))
				return true;
		}
	return streq(key, "architectures") || streq(key, "quantization_config");
}

static void unknown_fields(struct import *im)
{
	const char *key;
	json_t *v;

	json_object_foreach(im->root, key, v) {
		struct near near = { .name = key };

		if (known(im, key, &near))
			continue;
		import_wrong(im, key, "ptc import does not know the field '%.60s' of %s", key, im->family->type);
		if (near.best)
			diag_note(im->diag, (struct span){ 0 }, "did you mean '%s'?", near.best);
		else
			diag_note(im->diag, (struct span){ 0 }, "if it does not change the model, take it out of the file");
	}
}

static void check_architectures(struct import *im)
{
	const json_t *list = json_object_get(im->root, "architectures"), *v;
	size_t i;

	if (list && !json_is_null(list) && !json_is_array(list))
		import_wrong(im, "architectures", "'architectures' must be a list of names");
	json_array_foreach(list, i, v) {
		const char *name = json_is_string(v) ? json_string_value(v) : "?", *at;
		size_t n = strlen(name);

		at = strstr(im->family->architectures, name);
		if (n && at && (at[n] == 0 || at[n] == ',') && (at == im->family->architectures || at[-1] == ' '))
			continue;
		import_wrong(im, "architectures", "ptc import can't make a '%.60s'", name);
		diag_note(im->diag, (struct span){ 0 }, "legal: %s", im->family->architectures);
	}
}

/* -- rotary positions -- */

static bool read_rope(struct import *im, const char *key)
{
	const json_t *rope = json_object_get(im->root, key), *type, *theta = json_object_get(rope, "rope_theta");
	const char *k;
	json_t *v;

	if (!rope || json_is_null(rope))
		return true;
	if (!json_is_object(rope))
		return import_wrong(im, key, "'%s' must be null or an object", key);
	type = json_object_get(rope, "rope_type");
	if (!type)
		type = json_object_get(rope, "type");
	if (type && !streq(json_string_value(type), "default")) {
		import_wrong(im, key, "'%s' has the type %s, which ptc import can't express", key, json_text(im, type));
		diag_note(im->diag, (struct span){ 0 }, "legal: null, or the type \"default\"; without it the model is as it was "
			  "before its context was extended");
		return false;
	}
	json_object_foreach((json_t *)rope, k, v)
		if (!streq(k, "rope_type") && !streq(k, "type") && !streq(k, "rope_theta"))
			return import_wrong(im, key, "ptc import does not know the field '%.60s' of '%s'", k, key);
	if (!theta)
		return true;
	if (!json_is_number(theta) || !(json_number_value(theta) > 0))
		return import_wrong(im, key, "'rope_theta' must be a positive number");
	set_number(im, "theta", json_number_value(theta));
	return true;
}

bool import_rope(struct import *im)
{
	if (!read_rope(im, "rope_scaling") || !read_rope(im, "rope_parameters"))
		return false;
	if (strtod(fact_text(im, "theta"), NULL) > 0)
		return true;
	return import_wrong(im, "rope_theta", "'rope_theta' must be a positive number");
}

/* -- templates -- */

static bool holds(const struct import *im, const char **p)
{
	bool good = true;

	while (**p == '?' || **p == '!') {
		size_t n = strcspn(*p + 1, " ?!\n");
		const struct fact *f = find_fact(im, *p + 1, n);

		good &= (f && *f->text) == (**p == '?');
		*p += n + 1;
		*p += **p == ' ';
	}
	return good;
}

void import_write(struct import *im, const char *p)
{
	while (*p) {
		bool good = holds(im, &p);
		const char *end = strchrnul(p, '\n');

		while (good && p < end) {
			size_t plain = strcspn(p, "$\n"), n;
			bool braces = p[plain] == '$' && p[plain + 1] == '{';

			text_bytes(&im->out, p, plain);
			p += plain;
			if (*p != '$')
				break;
			p += 1 + braces;
			n = strspn(p, "abcdefghijklmnopqrstuvwxyz_0123456789");
			const struct fact *f = find_fact(im, p, n);
			if (!f)
				die("import: no fact '%.*s'", (int)n, p);
			text_bytes(&im->out, f->text, strlen(f->text));
			p += n + braces;
		}
		if (good)
			text_bytes(&im->out, "\n", 1);
		p = *end ? end + 1 : end;
	}
}

const char import_head[] =
	"# $title\n"
	"# Made by ptc import of a Hugging Face config.json. The batch, the optimizer and the plan are not in\n"
	"# that file: those here are a start, and yours to choose.\n"
	"\n";

const char import_plan[] =
	"\n"
	"# ptc MODEL --mesh dp=4,tp=2 gives other sizes to these axes.\n"
	"plan {\n"
	"?moe    mesh dp = 1, ep = 8 on h100\n"
	"!moe    mesh dp = 8, tp = 1 on h100\n"
	"?moe    experts -> ep  # before batch: the experts' buffers go by expert, all else by batch\n"
	"?moe    batch -> dp, ep\n"
	"!moe    batch -> dp\n"
	"!moe    $sharded, ff, vocab -> tp\n"
	"!moe?seq    seq -> tp\n"
	"?moe    optimizer -> dp, ep\n"
	"!moe    optimizer -> dp\n"
	"    microbatches = $micro\n"
	"    precision bf16\n"
	"}\n"
	"\n"
	"# Where each param lies in Hugging Face's files.\n";

/* -- the whole -- */

static const struct field rms_decoder[] = {
	{ "vocab_size", COUNT, "vocab", NULL, NULL },
	{ "hidden_size", COUNT, "embed", NULL, NULL },
	{ "num_hidden_layers", COUNT, "layers", NULL, NULL },
	{ "num_attention_heads", COUNT, "heads", NULL, NULL },
	{ "max_position_embeddings", COUNT, "positions", NULL, NULL },
	{ "initializer_range", REAL, "std", "0.02", NULL },
	{ "rms_norm_eps", REAL, "eps", "1e-6", NULL },
	{ "attention_dropout", RATE, "attn_drop", "", NULL },
	{ "rope_theta", REAL, "theta", "10000", NULL },
	{ "rope_scaling", ANY, NULL, NULL, NULL },
	{ "rope_parameters", ANY, NULL, NULL, NULL },
	{ "layer_types", ANY, NULL, NULL, NULL },
	{ "is_decoder", ANY, NULL, NULL, NULL },
	{ "is_encoder_decoder", FIXED, NULL, NULL, "false" },
	{ "add_cross_attention", FIXED, NULL, NULL, "false" },
	{ "partial_rotary_factor", FIXED, NULL, NULL, "1, 1.0, null" },
	{ NULL, ANY, NULL, NULL, NULL },
};

#define END { NULL, ANY, NULL, NULL, NULL }
#define KEYS(absent) { "num_key_value_heads", COUNT, "kv", absent, NULL }
#define HEAD(absent) { "head_dim", COUNT, "head", absent, NULL }
#define GATED { "hidden_act", ACT, "act", "silu", NULL }, { "tie_word_embeddings", FLAG, "tied", "", NULL }
#define DENSE { "intermediate_size", COUNT, "ff", NULL, NULL }, GATED
#define WINDOWS { "use_sliding_window", FLAG, "sliding", "", NULL }, \
		{ "sliding_window", COUNT_OR_NULL, "window", "4096", NULL }, \
		{ "max_window_layers", ANY, NULL, NULL, NULL }
#define ROUTER(coef) { "router_aux_loss_coef", RATE, "balance", coef, NULL }, \
		{ "output_router_logits", ANY, NULL, NULL, NULL }, \
		{ "num_experts_per_tok", COUNT, "pick", NULL, NULL }

static const struct field llama[] = {
	KEYS(""), HEAD(""), DENSE, { "attention_bias", FLAG, "attention_bias", "", NULL },
	{ "mlp_bias", FLAG, "mlp_bias", "", NULL }, END,
};
static const struct field mistral[] = {
	KEYS(NULL), HEAD(""), DENSE, { "sliding_window", COUNT_OR_NULL, "window", "4096", NULL },
	{ "attention_bias", FIXED, NULL, NULL, "false" }, END,
};
static const struct field mixtral[] = {
	KEYS(NULL), HEAD(""), DENSE, ROUTER("1e-3"), { "sliding_window", COUNT_OR_NULL, "window", "", NULL },
	{ "num_local_experts", COUNT, "experts", NULL, NULL },
	{ "router_jitter_noise", FIXED, NULL, NULL, "0, 0.0, null" },
	{ "attention_bias", FIXED, NULL, NULL, "false" }, END,
};
static const struct field qwen2[] = {
	KEYS(NULL), HEAD(""), DENSE, WINDOWS, { "attention_bias", FIXED, NULL, NULL, "true" }, END,
};
static const struct field qwen3[] = {
	KEYS(NULL), HEAD("128"), DENSE, WINDOWS, { "attention_bias", FLAG, "attention_bias", "", NULL }, END,
};
static const struct field qwen3_moe[] = {
	KEYS(NULL), HEAD(""), GATED, WINDOWS, ROUTER("1e-3"),
	{ "attention_bias", FLAG, "attention_bias", "", NULL },
	{ "moe_intermediate_size", COUNT, "ff", NULL, NULL },
	{ "intermediate_size", ANY, NULL, NULL, NULL }, /* of dense layers: there are none */
	{ "num_experts", COUNT, "experts", NULL, NULL },
	{ "norm_topk_prob", FLAG, "renorm", "", NULL },
	{ "decoder_sparse_step", FIXED, NULL, NULL, "1" },
	{ "mlp_only_layers", FIXED, NULL, NULL, "[], null" }, END,
};
static const struct field gemma2[] = {
	KEYS(NULL), HEAD("256"), { "intermediate_size", COUNT, "ff", NULL, NULL },
	{ "hidden_activation", ACT, "act", "gelu_pytorch_tanh", NULL },
	{ "hidden_act", ANY, NULL, NULL, NULL }, /* old; hidden_activation is what counts */
	{ "tie_word_embeddings", FLAG, "tied", "true", NULL },
	{ "attention_bias", FIXED, NULL, NULL, "false" },
	{ "sliding_window", COUNT_OR_NULL, "window", "4096", NULL },
	{ "sliding_window_size", ANY, NULL, NULL, NULL },
	{ "query_pre_attn_scalar", REAL, "scalar", "256", NULL },
	{ "attn_logit_softcapping", REAL_OR_NULL, "cap", "50", NULL },
	{ "final_logit_softcapping", REAL_OR_NULL, "final_cap", "30", NULL },
	{ "use_bidirectional_attention", FIXED, NULL, NULL, "false, null" }, END,
};
static const struct field deepseek[] = {
	KEYS(""), GATED, ROUTER("0"), { "intermediate_size", COUNT, "ff", NULL, NULL },
	{ "head_dim", ANY, NULL, NULL, NULL }, { "qk_head_dim", ANY, NULL, NULL, NULL },
	{ "attention_bias", FIXED, NULL, NULL, "false" },
	{ "moe_intermediate_size", COUNT, "eff", NULL, NULL },
	{ "q_lora_rank", COUNT, "qrank", NULL, NULL },
	{ "kv_lora_rank", COUNT, "kvrank", NULL, NULL },
	{ "qk_nope_head_dim", COUNT, "nope", NULL, NULL },
	{ "qk_rope_head_dim", COUNT, "rot", NULL, NULL },
	{ "v_head_dim", COUNT, "vhead", NULL, NULL },
	{ "n_routed_experts", COUNT, "experts", NULL, NULL },
	{ "n_shared_experts", COUNT, "shared", NULL, NULL },
	{ "n_group", COUNT, "cell", NULL, NULL },
	{ "topk_group", COUNT, "chosen", NULL, NULL },
	{ "first_k_dense_replace", ANY, NULL, NULL, NULL },
	{ "num_nextn_predict_layers", ANY, NULL, NULL, NULL },
	{ "norm_topk_prob", FLAG, "renorm", "true", NULL },
	{ "routed_scaling_factor", REAL, "factor", "2.5", NULL },
	{ "rope_interleave", FLAG, "pairs", "true", NULL },
	{ "moe_layer_freq", FIXED, NULL, NULL, "1" },
	{ "scoring_func", FIXED, NULL, NULL, "\"sigmoid\"" },
	{ "topk_method", FIXED, NULL, NULL, "\"noaux_tc\"" },
	{ "aux_loss_alpha", ANY, NULL, NULL, NULL }, /* its code never reads them */
	{ "seq_aux", ANY, NULL, NULL, NULL }, { "ep_size", ANY, NULL, NULL, NULL }, END,
};
static const struct field gpt2[] = {
	{ "vocab_size", COUNT, "vocab", "50257", NULL },
	{ "n_embd", COUNT, "embed", "768", NULL },
	{ "n_layer", COUNT, "layers", "12", NULL },
	{ "n_head", COUNT, "heads", "12", NULL },
	{ "n_positions", COUNT, "positions", "1024", NULL },
	{ "n_ctx", ANY, NULL, NULL, NULL },
	{ "n_inner", COUNT, "ff", "", NULL },
	{ "activation_function", ACT, "act", "gelu_new", NULL },
	{ "attn_pdrop", RATE, "attn_drop", "0.1", NULL },
	{ "embd_pdrop", RATE, "embed_drop", "0.1", NULL },
	{ "resid_pdrop", RATE, "drop", "0.1", NULL },
	{ "layer_norm_epsilon", REAL, "eps", "1e-5", NULL },
	{ "initializer_range", REAL, "std", "0.02", NULL },
	{ "tie_word_embeddings", FLAG, "tied", "true", NULL },
	{ "scale_attn_weights", FLAG, "scaled", "true", NULL },
	{ "scale_attn_by_inverse_layer_idx", FIXED, NULL, NULL, "false" },
	{ "is_encoder_decoder", FIXED, NULL, NULL, "false" },
	{ "reorder_and_upcast_attn", ANY, NULL, NULL, NULL },
	{ "add_cross_attention", FIXED, NULL, NULL, "false" },
	{ "summary_activation", ANY, NULL, NULL, NULL },
	{ "summary_first_dropout", ANY, NULL, NULL, NULL },
	{ "summary_proj_to_labels", ANY, NULL, NULL, NULL },
	{ "summary_type", ANY, NULL, NULL, NULL },
	{ "summary_use_proj", ANY, NULL, NULL, NULL }, END,
};
static const struct field encoder[] = {
	{ "hidden_size", COUNT, "embed", "768", NULL },
	{ "num_hidden_layers", COUNT, "layers", "12", NULL },
	{ "num_attention_heads", COUNT, "heads", "12", NULL },
	{ "intermediate_size", COUNT, "ff", "3072", NULL },
	{ "hidden_act", ACT, "act", "gelu", NULL },
	{ "is_encoder_decoder", FIXED, NULL, NULL, "false" },
	{ "layer_norm_eps", REAL, "eps", "1e-12", NULL },
	{ "initializer_range", REAL, "std", "0.02", NULL }, END,
};
static const struct field bert[] = {
	{ "vocab_size", COUNT, "vocab", "30522", NULL },
	{ "type_vocab_size", COUNT, "kinds", "2", NULL },
	{ "max_position_embeddings", COUNT, "positions", "512", NULL },
	{ "hidden_dropout_prob", RATE, "drop", "0.1", NULL },
	{ "attention_probs_dropout_prob", RATE, "attn_drop", "0.1", NULL },
	{ "position_embedding_type", FIXED, NULL, NULL, "\"absolute\", null" },
	{ "tie_word_embeddings", FIXED, NULL, NULL, "true" },
	{ "is_decoder", FIXED, NULL, NULL, "false" },
	{ "add_cross_attention", FIXED, NULL, NULL, "false" }, END,
};
static const struct field vit[] = {
	{ "image_size", COUNT, "rows", "224", NULL },
	{ "patch_size", COUNT, "side", "16", NULL },
	{ "num_channels", COUNT, "chan", "3", NULL },
	{ "hidden_dropout_prob", RATE, "drop", "", NULL },
	{ "attention_probs_dropout_prob", RATE, "attn_drop", "", NULL },
	{ "qkv_bias", FLAG, "qkv_bias", "true", NULL },
	{ "encoder_stride", ANY, NULL, NULL, NULL }, /* of masked image modelling */
	{ "pooler_act", ANY, NULL, NULL, NULL },
	{ "pooler_output_size", ANY, NULL, NULL, NULL }, END,
};
static const struct field t5[] = {
	{ "vocab_size", COUNT, "vocab", "32128", NULL },
	{ "d_model", COUNT, "embed", NULL, NULL },
	{ "d_kv", COUNT, "head", NULL, NULL },
	{ "d_ff", COUNT, "ff", NULL, NULL },
	{ "num_layers", COUNT, "enc", NULL, NULL },
	{ "num_decoder_layers", COUNT, "dec", "", NULL },
	{ "num_heads", COUNT, "heads", NULL, NULL },
	{ "relative_attention_num_buckets", COUNT, "buckets", "32", NULL },
	{ "relative_attention_max_distance", COUNT, "far", "128", NULL },
	{ "dropout_rate", RATE, "drop", "0.1", NULL },
	{ "layer_norm_epsilon", REAL, "eps", "1e-6", NULL },
	{ "initializer_factor", FIXED, NULL, NULL, "1, 1.0" },
	{ "tie_word_embeddings", FLAG, "tied", "true", NULL },
	{ "feed_forward_proj", ANY, NULL, NULL, NULL },
	{ "is_gated_act", ANY, NULL, NULL, NULL }, /* both follow from feed_forward_proj */
	{ "dense_act_fn", ANY, NULL, NULL, NULL },
	{ "is_encoder_decoder", FIXED, NULL, NULL, "true" },
	{ "n_positions", ANY, NULL, NULL, NULL }, END,
};

static const struct family families[] = {
	{ "gpt2", "GPT2LMHeadModel", "GPT-2: learned positions, biases, GELU, a head tied to the embedding.",
	  { gpt2, NULL }, write_gpt2 },
	{ "llama", "LlamaForCausalLM", "Llama: RMSNorm, rotary positions, grouped queries, a gated MLP.",
	  { rms_decoder, llama }, write_decoder },
	{ "mistral", "MistralForCausalLM", "Mistral: RMSNorm, rotary positions, grouped queries, a gated MLP.",
	  { rms_decoder, mistral }, write_decoder },
	{ "mixtral", "MixtralForCausalLM", "Mixtral: grouped queries, and experts in place of the MLP.",
	  { rms_decoder, mixtral }, write_decoder },
	{ "qwen2", "Qwen2ForCausalLM", "Qwen2: grouped queries with biases, rotary positions, a gated MLP.",
	  { rms_decoder, qwen2 }, write_decoder },
	{ "qwen3", "Qwen3ForCausalLM", "Qwen3: grouped queries, normalised queries and keys, a gated MLP.",
	  { rms_decoder, qwen3 }, write_decoder },
	{ "qwen3_moe", "Qwen3MoeForCausalLM", "Qwen3 MoE: normalised queries and keys, experts in place of the MLP.",
	  { rms_decoder, qwen3_moe }, write_decoder },
	{ "gemma2", "Gemma2ForCausalLM", "Gemma 2: local and global layers alternate, soft caps, four norms a layer.",
	  { rms_decoder, gemma2 }, write_gemma2 },
	{ "deepseek_v3", "DeepseekV3ForCausalLM", "DeepSeek-V3: latent attention, many small experts, balanced by a bias.",
	  { rms_decoder, deepseek }, write_deepseek },
	{ "bert", "BertForMaskedLM", "BERT: masked words; labels that are no question are -100.",
	  { encoder, bert }, write_bert },
	{ "vit", "ViTForImageClassification", "ViT: a classifier of images, cut in patches.",
	  { encoder, vit }, write_vit },
	{ "t5", "T5ForConditionalGeneration, T5WithLMHeadModel", "T5: encoder and decoder, relative positions.",
	  { t5, NULL }, write_t5 },
};

static bool choose_family(struct import *im)
{
	const json_t *type = json_object_get(im->root, "model_type");
	const char *name = json_is_string(type) ? json_string_value(type) : NULL;
	struct near near = { .name = name ? name : "" };
	struct text all = { .mem = im->mem };

	for (size_t i = 0; i < LEN(families); i++) {
		text_put(&all, "%s%s", i ? ", " : "", families[i].type);
		near_offer(&near, families[i].type);
		if (streq(families[i].type, name))
			im->family = &families[i];
	}
	if (im->family)
		return true;
	if (name)
		import_wrong(im, "model_type", "ptc import does not know the model_type '%.60s'", name);
	else
		import_wrong(im, "model_type", "the config has no 'model_type'");
	if (name && near.best)
		diag_note(im->diag, (struct span){ 0 }, "did you mean '%s'?", near.best);
	else
		diag_note(im->diag, (struct span){ 0 }, "legal: %s", all.s);
	return false;
}

static bool import_root(struct import *im)
{
	int errors = im->diag->errors;

	if (!choose_family(im))
		return false;
	unknown_fields(im);
	check_architectures(im);
	for (size_t k = 0; k < LEN(im->family->fields); k++)
		for (const struct field *f = im->family->fields[k]; f && f->key; f++)
			read_field(im, f);
	if (im->diag->errors > errors)
		return false;
	if (json_object_get(im->root, "quantization_config"))
		diag_warn(im->diag, import_place(im, "quantization_config"),
			  "'quantization_config' is ignored: ptc reads weights that are bf16 or fp32");
	fact_set(im, "title", "%s", im->family->title);
	return im->family->write(im) && im->diag->errors == errors;
}

char *import_config(struct arena *mem, struct sources *src, struct diag *d, const char *name, const char *text,
		    size_t len, size_t *out_len)
{
	struct import im = { .mem = mem, .diag = d, .file = src->files.n, .text = text, .len = len,
			     .out = { .mem = mem } };
	json_error_t e;
	char *out = NULL;

	PUSH(mem, &src->files, ((struct source){ name, text, len }));
	im.root = json_loadb(text, len, JSON_REJECT_DUPLICATES, &e);
	if (!im.root) {
		const char *near = strstr(e.text, " near '");
		int n = near ? (int)(near - e.text) : (int)strlen(e.text);
		struct span at = { im.file, e.line > 0 ? (uint32_t)e.line : 1, e.column > 0 ? (uint32_t)e.column : 1, 1 };

		diag_error(d, at, "this is no JSON: %.*s", n, e.text);
		return NULL;
	}
	if (!json_is_object(im.root))
		diag_error(d, (struct span){ im.file, 1, 1, 1 }, "a config is a JSON object");
	else if (import_root(&im)) {
		out = im.out.s;
		*out_len = im.out.n;
	}
	json_decref(im.root);
	return out;
}
