/* frontend/import.h - ptc import: from the config.json of a Hugging Face model to a model file.
 * A family is a table of fields, each of which becomes a fact, and templates that the facts fill. */
#ifndef PTC_IMPORT_H
#define PTC_IMPORT_H
#include <jansson.h>

#include "ir/base.h"
#include "ir/diag.h"

enum field_type {
	COUNT,         /* a positive integer */
	COUNT_OR_NULL, /* the same; null: no fact, though absent has a default */
	REAL,          /* a number, 0 or more */
	REAL_OR_NULL,
	RATE,          /* a number, at least 0 and below 1; 0: no fact */
	FLAG,          /* true; false: no fact */
	ACT,           /* the name of an activation */
	FIXED,         /* one of the JSON values in `legal`: all that the templates can say */
	ANY,           /* the family's own code reads it, or it changes nothing there */
};

struct field {
	const char *key;
	enum field_type type;
	const char *fact;
	const char *absent; /* the fact's text then; NULL: the field is required; "": no fact */
	const char *legal;  /* FIXED: "false, null" */
};

struct import;
struct family {
	const char *type;          /* model_type */
	const char *architectures; /* those that the template is */
	const char *title;
	const struct field *fields[2]; /* each ends with a key NULL */
	bool (*write)(struct import *im);
};

struct fact {
	const char *name, *text;
};

struct import {
	struct arena *mem;
	struct diag *diag;
	uint32_t file;
	const char *text; /* of the config */
	size_t len;
	json_t *root;
	const struct family *family;
	VEC(struct fact) facts;
	struct text out;
};

/* The model's text, not yet formatted; NULL after errors were reported. */
char *import_config(struct arena *mem, struct sources *src, struct diag *d, const char *name, const char *text,
		    size_t len, size_t *out_len);

/* What the families call. */
void fact_set(struct import *im, const char *name, const char *fmt, ...) PRINTF(3, 4);
bool fact_is(const struct import *im, const char *name); /* there, and not "" */
const char *fact_text(const struct import *im, const char *name);
int64_t fact_count(const struct import *im, const char *name); /* 0: none */
/* An error at a field of the config. Returns false. */
bool import_wrong(struct import *im, const char *key, const char *fmt, ...) PRINTF(3, 4);
struct span import_place(const struct import *im, const char *key);
/* "gelu(x, tanh)" for the activation in a fact. */
const char *import_act(struct import *im, const char *fact, const char *x);
/* The theta of the rotary positions as fact "theta". */
bool import_rope(struct import *im);
/* quotient = a / b, an error at key if that is no integer. */
bool import_divide(struct import *im, const char *quotient, const char *a, const char *b, const char *key);
/* Adds lines: $fact and ${fact} are replaced; "?fact line" and "!fact line" are there if the fact
 * is, or is not; several such tests may follow one another. */
void import_write(struct import *im, const char *lines);

bool write_decoder(struct import *im);
bool write_gemma2(struct import *im);
bool write_gpt2(struct import *im);
bool write_bert(struct import *im);
bool write_vit(struct import *im);
bool write_t5(struct import *im);
bool write_deepseek(struct import *im);

extern const char import_head[], import_plan[];

#endif
