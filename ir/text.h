/* ir/text.h - the IR as text. print(parse(print(m))) equals print(m) byte for byte, in every form.
 *
 *   ptc-ir 1                                     version; '#' starts a comment
 *   module "gpt2" form=partitioned precision=bf16 micro=4 batch=batch workspace=268435456 [arena=N] [host=N] [probes]
 *   source 0 "gpt2.pdsl"                         names only; spans print as !file:line:col:len
 *   mesh tp=8 !0:31:10:4                         user axes
 *   axis tp/0=2 of tp                            only when refined or with time: then all are listed
 *   axis micro=4 time
 *   hardware "h100" fp32=6.7e13 bf16=... memory=... bandwidth=... price=... link=nvlink:8:4.5e11:3e-06
 *   software "nvidia_2026" attention=fa3 graphs=off ...   estimates only; switches that are not our own runtime's
 *   dim batch=512 [zigzag=K] !0:3:5:5
 *   pipeline "1f1b" axis=pp chunks=1 [inflight=N] [buffers=N] [fixed] [loops=(enc, dec)] [ends=(3, 6, 8, 9)] [arenas=(N, N)]
 *   recompute auto [memory=N] [keep=("x", glob "mha.*")]
 *   buffer @"layers.wq" param f32[layers, embed, heads@tp] init=normal(0.02) compute=[layers, embed, heads] !0:14:3:2
 *   buffer @"tokens" input int[batch, seq] tokens=50257
 *   buffer @"targets" input int[batch, seq] tokens=50257 next="tokens":1
 *   buffer @"wq:m" opt f32[...] init=zeros owner="wq" where=1 host off=4096
 *   arrow "sel": heads, ff -> tp.dp              arrow glob "sel*": ...; [params|grads|optimizer|activations] [dims];
 *   arrow params -> dp                           after the axes: none host zigzag gather_step
 *   forward:                                     a section header before its ops: prologue forward backward epilogue
 *   %0 = read {buf="wte"} : f32[vocab@tp, embed] "wte" kind=param !0:9:3:1
 *   %3, %4 = attention %0, %1, %2 {dim=head, ctx=ctx, causal=seq, scale=0.125} : bf16[...] "o", f32[...]
 *   %9 = einsum %7, %8 : f32[embed, ff]+dp of=%5 why="..." !0:14:8:3
 *   %2 = rename %1 {dims=(seq), tos=(ctx)} : f32[ctx]
 *   %2 = all_gather %1 {dim=seq, axes=(tp)} : f32[seq]
 *   %5 = repeat %1, %2 {dim=layers, ncarry=1, nwith=0} : f32[batch@micro.dp, seq] !0:20:3:6 {
 *     args %10: f32[batch, seq], %11: f32[embed]
 *     %12 = add %10, %11 : f32[batch, seq]
 *     yield %12
 *   }
 *
 * Lines end where they end; the kinds of lines stand in the order above. Types: dtype
 * [ dim[@axis.axis...] , ... ] [+axis.axis pending sum] [^axis.axis pending max]; then,
 * each if it is not the usual, "name", kind= (const), anchor (value.placed), off=N, and at= the
 * span of a value that is not the op's. After the types: of=, why=, phase= (of an op inside a body
 * whose phase is not the body's), the span; then the body. Numbers print in the shortest form that
 * reads back to the same bits; inf, -inf, nan are words; a dim that is NODIM is '-'. Names that
 * are not words of letters, digits, _ / and ', or that are words of arrows, are quoted; escapes
 * are \" \\ \n \xHH. Values print as %id, renumbered in order of definition (results first, then
 * args of the body). of= names the forward op by its first result and may stand before it; an
 * `of` that has left the module is not printed.
 */
#ifndef PTC_TEXT_H
#define PTC_TEXT_H
#include "ir/ir.h"

/* Renumbers, then prints. The text lies on mem. */
char *module_print(struct module *m, struct arena *mem, size_t *len);
/* NULL after an error has been reported ("NAME:LINE:COL: error: ..."), whatever the bytes are. Checks
 * types, numbers of operands, definition before use; does not run verify(). The sources named in
 * the text go to d->src if that has none yet (or is NULL), so that spans can be reported. */
struct module *module_parse(struct arena *mem, const char *name, const char *text, size_t len, struct diag *d);
/* A deep copy, by print and parse; shares m->src. */
struct module *module_copy(struct module *m, struct arena *mem);
const char *value_text(struct arena *mem, const struct module *m, const struct value *v); /* "f32[batch@dp, seq]+tp" */

#endif
