#!/bin/sh
# ptc import: configs of the published models become model files that are formatted, compile, and
# have the published number of params. NAME.json are those configs; small ones are made with jq.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh
D=tests/import

says() { # NAME STATUS TEXT COMMAND...: TEXT is on stdout or stderr
	name=$1 status=$2 text=$3
	shift 3
	expect "$name" "$status" "$@" || return
	cat "$TMP/out" "$TMP/err" >"$TMP/both"
	if grep -qF -e "$text" "$TMP/both"; then ok "$name"; else bad "$name" "$TMP/both"; fi
}

# config NAME BASE FILTER: $TMP/NAME.json
config() {
	jq "$3" "$D/$2.json" >"$TMP/$1.json" || bad "config $1"
}

# imports NAME JSON: $TMP/NAME.pdsl, formatted
imports() {
	expect "import $1" 0 "$PTC" import "$2" -o "$TMP/$1.pdsl" || return 1
	expect "format of $1" 0 "$PTC" fmt --check "$TMP/$1.pdsl" || return 1
	ok "import $1"
}

# counts NAME PARAMS
counts() {
	expect "params of $1" 0 "$PTC" explain "$TMP/$1.pdsl" --json || return
	got=$(jq .params "$TMP/out")
	if [ "$got" = "$2" ]; then ok "params of $1"; else bad "params of $1: $got, not $2"; fi
	# the checkpoint block, which the compiler checks, has a line for each of them
	expect "checkpoint of $1" 0 "$PTC" show "$TMP/$1.pdsl" --after lower || return
	got=$(sed -n '/^checkpoint/,/^}/p' "$TMP/$1.pdsl" | grep -c ': "')
	all=$(grep -c '^buffer @"[^"]*" param' "$TMP/out")
	if [ "$got" = "$all" ]; then ok "checkpoint of $1"; else bad "checkpoint of $1: $got lines for $all params"; fi
}

published() { # NAME PARAMS
	imports "$1" "$D/$1.json" && counts "$1" "$2"
}

published gpt2 124439808
published llama3-8b 8030261248
published mistral-7b 7241732096
published qwen2-7b 7615616512
published qwen3-8b 8190735360
published mistral-window 7241732096
published mixtral-8x7b 46702792704
published qwen3-30b-a3b 30532122624
published gemma2-9b 9241705984
published deepseek-v3 671026404352
published bert-base 109514298
published vit-base 86567656
published t5-base 222903552

# Variants of small models. The counts are sums over the shapes.
small='.hidden_size = 32 | .intermediate_size = 48 | .num_hidden_layers = 2 | .num_attention_heads = 4 |
	.num_key_value_heads = 2 | .vocab_size = 64 | .max_position_embeddings = 16'
config llama-bias llama3-8b "$small | .attention_bias = true | .mlp_bias = true | .tie_word_embeddings = true | .attention_dropout = 0.1"
imports llama-bias "$TMP/llama-bias.json" && counts llama-bias $((64 * 32 + 32 + 2 * (2 * 32 + 32 * (32 + 16 + 16 + 32) + 32 + 16 + 16 + 32 + 3 * 32 * 48 + 2 * 48 + 32)))
config qwen3-small qwen3-8b "$small | .head_dim = 10 | .attention_bias = true"
imports qwen3-small "$TMP/qwen3-small.json" && counts qwen3-small $((2 * 64 * 32 + 32 + 2 * (2 * 32 + 32 * (40 + 20 + 20 + 40) + 40 + 20 + 20 + 32 + 20 + 3 * 32 * 48)))
config rope llama3-8b "$small | del(.rope_theta, .rope_scaling) | .rope_parameters = { rope_type: \"default\", rope_theta: 5e5 }"
imports rope "$TMP/rope.json" && says "rope_parameters" 0 "theta = 500000" cat "$TMP/rope.pdsl"
config gpt2-small gpt2 '.n_embd = 32 | .n_head = 4 | .n_layer = 2 | .n_positions = 16 | .vocab_size = 64 | .n_inner = 40 |
	.attn_pdrop = 0 | .embd_pdrop = 0 | .resid_pdrop = 0 | .activation_function = "relu" | .tie_word_embeddings = false |
	.scale_attn_weights = false'
imports gpt2-small "$TMP/gpt2-small.json" && counts gpt2-small $((2 * 64 * 32 + 16 * 32 + 2 * 32 + 2 * (4 * 32 + 4 * 32 * 32 + 4 * 32 + 2 * 32 * 40 + 40 + 32)))
config window qwen2-7b "$small | .use_sliding_window = true | .sliding_window = 8 | .max_window_layers = 1 |
	.layer_types = [\"full_attention\", \"sliding_attention\"]"
imports window "$TMP/window.json" && says "the window of later layers" 0 "where(index(layers) < 1, seq, 8)" cat "$TMP/window.pdsl"
config t5-gated t5-base '.feed_forward_proj = "gated-gelu" | .tie_word_embeddings = false | .dropout_rate = 0 | del(.num_decoder_layers)'
imports t5-gated "$TMP/t5-gated.json" && says "t5 1.1" 0 'wout: "lm_head.weight"[vocab, embed]' cat "$TMP/t5-gated.pdsl"
config ds-moe deepseek-v3 '.first_k_dense_replace = 0 | .rope_interleave = false | .norm_topk_prob = false | .n_shared_experts = 2'
imports ds-moe "$TMP/ds-moe.json"
config vit-drop vit-base '.qkv_bias = false | .hidden_dropout_prob = 0.1 | .id2label = { "0": "a", "1": "b", "2": "c" }'
imports vit-drop "$TMP/vit-drop.json" && says "labels by name" 0 "classes = 3" cat "$TMP/vit-drop.pdsl"
config gemma-plain gemma2-9b '.sliding_window = null | .attn_logit_softcapping = null | .final_logit_softcapping = null | .query_pre_attn_scalar = 224'
imports gemma-plain "$TMP/gemma-plain.json" && says "another scale" 0 "scale = rsqrt(224)" cat "$TMP/gemma-plain.pdsl"

# They train: on several ranks the same as on one. In fp32: in bf16 the plans' roundings differ.
trains() { # NAME BASE MESH SETTINGS FILTER
	config "$1" "$2" "$5"
	imports "$1" "$TMP/$1.json" || return
	sed 's/precision bf16/precision fp32/' "$TMP/$1.pdsl" >"$TMP/$1-fp32.pdsl"
	m="check $1 on $3"
	expect "$m" 0 timeout 120 "$PTC" check "$TMP/$1-fp32.pdsl" --mesh "$3" --set "batch=4,microbatches=1$4" && ok "$m"
}

short='.hidden_size = 32 | .intermediate_size = 48 | .num_hidden_layers = 2 | .num_attention_heads = 4'
trains gpt2-mini gpt2 dp=2,tp=2 "" '.n_embd = 32 | .n_head = 4 | .n_layer = 2 | .n_positions = 16 | .vocab_size = 64'
trains llama-mini llama3-8b tp=4 "" "$small | .attention_bias = true | .mlp_bias = true | .attention_dropout = 0.1"
trains mistral-mini mistral-7b dp=2,tp=2 "" "$small | .sliding_window = 8"
trains qwen2-mini qwen2-7b dp=2,tp=2 "" "$small | .use_sliding_window = true | .sliding_window = 8 | .max_window_layers = 1"
trains qwen3-mini qwen3-8b dp=2 "" "$small | .head_dim = 10"
trains gemma2-mini gemma2-9b dp=2,tp=2 "" "$small | .head_dim = 8 | .sliding_window = 8"
trains mixtral-mini mixtral-8x7b dp=2,ep=2 "" "$small | .num_local_experts = 4"
trains qwen3-moe-mini qwen3-30b-a3b ep=2 "" "$small | .head_dim = 8 | .num_experts = 4 | .num_experts_per_tok = 2 | .moe_intermediate_size = 24"
trains deepseek-mini deepseek-v3 ep=2 "" "$small | .num_key_value_heads = 4 | .first_k_dense_replace = 1 | .q_lora_rank = 12 |
	.kv_lora_rank = 10 | .qk_nope_head_dim = 6 | .qk_rope_head_dim = 4 | .v_head_dim = 8 | .n_routed_experts = 8 | .n_group = 4 |
	.topk_group = 2 | .num_experts_per_tok = 2 | .moe_intermediate_size = 16"
trains bert-mini bert-base dp=2,tp=2 "" "$short | .vocab_size = 64 | .max_position_embeddings = 16"
trains vit-mini vit-base dp=2,tp=2 "" "$short | .image_size = 8 | .patch_size = 4 | .num_labels = 6"
trains t5-mini t5-base dp=2,tp=2 ,src=16,dst=16 '.d_model = 32 | .d_ff = 48 | .num_layers = 2 | .num_decoder_layers = 2 |
	.num_heads = 4 | .vocab_size = 64 | .d_kv = 8 | .relative_attention_num_buckets = 8 | .relative_attention_max_distance = 16'

# What is printed is what -o writes.
expect "to stdout" 0 "$PTC" import $D/gpt2.json
if cmp -s "$TMP/out" "$TMP/gpt2.pdsl"; then ok "to stdout"; else bad "to stdout"; fi

# Mistakes: the field, its line, and what is legal.
wrong() { # NAME BASE FILTER TEXT
	config wrong "$2" "$3"
	rm -f "$TMP/wrong.pdsl"
	says "$1" 1 "$4" "$PTC" import "$TMP/wrong.json" -o "$TMP/wrong.pdsl"
	[ ! -f "$TMP/wrong.pdsl" ] || bad "$1: a file was written"
}
wrong "an unknown field" llama3-8b '.foo = 1' "ptc import does not know the field 'foo' of llama"
wrong "a misspelt field" llama3-8b '.hiden_size = 1' "did you mean 'hidden_size'?"
wrong "a missing field" llama3-8b 'del(.hidden_size)' "the config has no 'hidden_size'"
wrong "a null field" llama3-8b '.vocab_size = null' "wrong.json:26:3: error: 'vocab_size' is null"
wrong "a negative count" llama3-8b '.num_hidden_layers = -1' "'num_hidden_layers' is -1; it must be a positive integer"
wrong "a huge count" llama3-8b '.hidden_size = 1e30' "it must be a positive integer"
wrong "a text for a number" llama3-8b '.rope_theta = "1"' "'rope_theta' is \"1\"; it must be a number"
wrong "a rate" llama3-8b '.attention_dropout = 1' "at least 0 and below 1"
wrong "an activation" llama3-8b '.hidden_act = "gelu_10"' "legal: silu, swish, gelu"
wrong "an architecture" llama3-8b '.architectures = ["LlamaForSequenceClassification"]' "legal: LlamaForCausalLM"
wrong "a part of an architecture" llama3-8b '.architectures = ["ForCausalLM"]' "can't make a 'ForCausalLM'"
wrong "heads" llama3-8b '.num_key_value_heads = 5' "'num_key_value_heads': 32 can't be divided by 5"
wrong "rope_scaling" llama3-8b '.rope_scaling = { rope_type: "llama3", factor: 8 }' "has the type \"llama3\""
wrong "a field of rope_parameters" llama3-8b '.rope_parameters = { rope_type: "default", foo: 1 }' "the field 'foo' of 'rope_parameters'"
wrong "layer_types" qwen2-7b '.layer_types = [range(28) | "sliding_attention"]' "by the other fields it is \"full_attention\""
wrong "sparse steps" qwen3-30b-a3b '.decoder_sparse_step = 2' "legal: 1"
wrong "dense layers among experts" qwen3-30b-a3b '.mlp_only_layers = [0]' "legal: [], null"
wrong "more experts than there are" mixtral-8x7b '.num_experts_per_tok = 9' "of 8 experts"
wrong "jitter" mixtral-8x7b '.router_jitter_noise = 0.1' "'router_jitter_noise' is 0.1"
wrong "yarn" deepseek-v3 '.rope_scaling = { type: "yarn", factor: 40 }' "has the type \"yarn\""
wrong "groups" deepseek-v3 '.n_group = 7' "'n_group': 256 can't be divided by 7"
wrong "all layers dense" deepseek-v3 '.first_k_dense_replace = 61' "below the 61 layers"
wrong "inverse layers" gpt2 '.scale_attn_by_inverse_layer_idx = true' "legal: false"
wrong "relative positions" bert-base '.position_embedding_type = "relative_key"' 'legal: "absolute", null'
wrong "a decoder" bert-base '.is_decoder = true' "'is_decoder' is true"
wrong "patches" vit-base '.patch_size = 15' "224 can't be divided by 15"
wrong "a feed-forward" t5-base '.feed_forward_proj = "gated-foo"' "legal: relu, gelu"
wrong "a family" llama3-8b '.model_type = "lama"' "did you mean 'llama'?"
wrong "an unknown family" llama3-8b '.model_type = "whisper"' "legal: gpt2, llama, mistral"
wrong "no family" llama3-8b 'del(.model_type)' "the config has no 'model_type'"
wrong "a list" llama3-8b '[.]' "a config is a JSON object"

printf '{\n  "model_type": "llama",\n  "hidden_size" 4\n}\n' >"$TMP/bad.json"
says "no JSON" 1 "bad.json:3:" "$PTC" import "$TMP/bad.json"
printf '{ "model_type": "llama",\n  "model_type": "gpt2" }\n' >"$TMP/bad.json"
says "a field twice" 1 "duplicate object key" "$PTC" import "$TMP/bad.json"
printf '{ "model_type": "ll\377ama" }\n' >"$TMP/bad.json"
says "no UTF-8" 1 "bad.json:1:" "$PTC" import "$TMP/bad.json"
: >"$TMP/bad.json"
says "an empty file" 1 "bad.json:1:" "$PTC" import "$TMP/bad.json"
head -c 100000 /dev/zero | tr '\0' '[' >"$TMP/bad.json"
says "deep JSON" 1 "bad.json:1:" "$PTC" import "$TMP/bad.json"
says "a missing file" 1 "No such file" "$PTC" import nowhere.json
says "an unwritable file" 3 "error" "$PTC" import $D/gpt2.json -o /nowhere/gpt2.pdsl
finish
