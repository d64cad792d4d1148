/* ir/parse.h - the parts of the reader of IR text, as they see each other. */
#ifndef PTC_PARSE_H
#define PTC_PARSE_H
#include "ir/lex.h"

enum { MOST_DIMS = 4096, MOST_BUFFERS = 16384 };
static const int64_t MOST_SIZE = (int64_t)1 << 40; /* of a dim */

/* -- parse_type.c -- */
dimid parse_dim(struct parser *p);
int parse_user_axis(struct parser *p);
struct axes parse_axes(struct parser *p);
void parse_shape(struct parser *p, struct value *v);  /* nd, d and sh of *v */
void parse_type(struct parser *p, struct value *v);
struct value parse_value(struct parser *p);              /* a type and its facts; a span of UINT32_MAX lines: that of the op */

/* -- a line each, after its first word: parse_line.c, -- */
void parse_module(struct parser *p);
void parse_source(struct parser *p);
void parse_mesh(struct parser *p);
void parse_axis_line(struct parser *p);
void parse_hardware(struct parser *p);
void parse_software(struct parser *p);
void parse_dim_line(struct parser *p);
void parse_recompute(struct parser *p);
void parse_chunk(struct parser *p);
void parse_buffer(struct parser *p);
void parse_arrow(struct parser *p);
/* -- parse_pipe.c -- */
void parse_pipe(struct parser *p);

#endif
