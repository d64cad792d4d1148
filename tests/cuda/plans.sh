# Part of run.sh. 1: every access is checked; model, mesh, arrows, settings. One, two, four, eight GPUs.
[ $# = 0 ] || case " $* " in *" plans "*) ;; *) return ;; esac
plans <<TABLE
1 mlp     dp=1,tp=1 -
1 mlp     dp=2,tp=2 optimizer_->_dp microbatches=2
1 gpt     dp=1,tp=1 -
0 gpt     dp=1,tp=1 - precision=bf16
0 llama   dp=1,tp=1 - microbatches=2
0 gpt     dp=2,tp=1 optimizer_->_dp
0 gpt     dp=1,tp=2 seq_->_tp
0 gpt     dp=2,tp=2 seq_->_tp;grads_->_dp microbatches=2
0 gpt     dp=3,tp=2 seq_->_tp;params_->_dp
0 gpt     dp=2,tp=4 seq_->_tp;params_->_dp precision=bf16
0 llama   dp=2,tp=2 seq_->_tp;params_->_dp microbatches=2
0 llama   dp=4,tp=2 optimizer_->_dp
0 gpt     dp=1,cp=2,tp=2 seq_->_cp;optimizer_->_dp
0 gpt     dp=2,cp=2,tp=2 seq,_ctx_->_cp
0 llama   dp=1,cp=4,tp=1 seq,_ctx_->_cp,_order_=_zigzag precision=bf16
0 gpt     pp=2,dp=1,tp=1 layers_->_pp;pipeline_1f1b microbatches=4
0 gpt     pp=2,dp=2,tp=2 layers_->_pp;pipeline_1f1b;seq_->_tp;optimizer_->_dp microbatches=2
0 llama   pp=4,dp=2,tp=1 layers_->_pp;pipeline_interleaved microbatches=2,layers=8
0 gpt     pp=2,dp=1,tp=1 layers_->_pp;pipeline_zb_h1 microbatches=4
0 mixtral dp=2,ep=2,tp=1 -
0 mixtral dp=1,ep=2,tp=2 - precision=bf16
0 gpt     dp=2,tp=2 seq_->_tp;chunk_logits,_parts_=_2 microbatches=2
0 gpt     dp=2,tp=1 params_->_host;optimizer_->_host;optimizer_->_dp
1 gpt     dp=1,tp=1 params_->_host;optimizer_->_host layers=3
TABLE

# A wait left out is found: of compute (the first stream) for a copy that comes in, of such a copy (the third) for compute.
case_of mlp
write_case dp=1,tp=1 'params_->_host;optimizer_->_host' >"$TMP/case.pdsl"
found=
for wait in 7 8 9 10 11 12 13 14; do
	SOFTGPU_CHECK=1 SOFTGPU_DROP_WAIT=$wait timeout 300 "$PTC" check --backend cuda "$TMP/case.pdsl" >"$TMP/out" 2>"$TMP/err"
	[ $? = 66 ] && found="$found $(sed -n 's/^softgpu: left out: wait .* by stream //p' "$TMP/err")"
	case "$found " in *" 1 "*" 3 "*) break ;; esac
done
case "$found " in
*" 1 "*" 3 "*) ok "copies from the host: waits left out are found" ;;
*) bad "copies from the host: waits left out are found:$found" "$TMP/err" ;;
esac
