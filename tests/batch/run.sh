#!/bin/sh
# Microbatches: which uses of a sum over the batch are legal. Accepted models compute with four
# microbatches on two ranks what the whole batch computes on one; refused ones name both lines.
# Six lines stand before each of them: what is given here begins at line 7.
cd "$(dirname "$0")/../.." || exit 1
. tests/lib.sh

write() {
	cat >"$TMP/model.pdsl" <<END
dim batch = 16, other = batch, seq = 4, class = 5, feat = 3, layers = 2
input u[batch, seq, feat]: float
input label[batch, seq]: token(class)
param w[feat, class] ~ normal(0.5)
param v[feat] ~ normal(0.5)
z[batch, seq, class] = u @ w
$(cat)
minimize loss with sgd(lr = 0.1)
plan {
    mesh dp = 2
    batch -> dp
    microbatches = 4
}
END
}

accept() { # NAME, the model on stdin
	title=$1
	write
	if expect "$title" 0 "$PTC" check "$TMP/model.pdsl"; then ok "$title"; fi
}

refuse() { # NAME LINE LINE, the model on stdin
	title=$1
	write
	expect "$title" 1 "$PTC" "$TMP/model.pdsl" -o "$TMP/out.plan" || return
	if grep -q "error: 'microbatches = 4' splits 'batch'" "$TMP/err" && grep -q "line $2\b" "$TMP/err" &&
		grep -q "line $3\b" "$TMP/err"; then ok "$title"; else bad "$title" "$TMP/err"; fi
	if expect "$title, one microbatch" 0 "$PTC" check --set microbatches=1 "$TMP/model.pdsl"; then
		ok "$title, one microbatch"
	fi
}

# -- accepted --
accept "labels, some of them -100" <<'END'
loss = cross_entropy(z, label, class)
END
accept "times a param" <<'END'
param heat ~ constant(2)
loss = cross_entropy(z, label, class) * exp(heat)
END
accept "a term of params counts once" <<'END'
loss = cross_entropy(z, label, class) + 0.1 * sum(w * w) + 0.1 * mean(v)
END
accept "a term for each sequence" <<'END'
p = softmax(z, class)
loss = cross_entropy(z, label, class) + 0.1 * mean(square(sum(p, seq)))
END
accept "inputs of the whole batch times a sum" <<'END'
share = mean(u, batch, seq)
loss = cross_entropy(z, label, class) + sum(share) * mean(z)
END
accept "inputs centred over the batch" <<'END'
c = u - mean(u, batch)
loss = cross_entropy(c @ w, label, class)
END
accept "a plain sum" <<'END'
loss = sum(z * z) / 100
END
accept "a sum carried by a repeat" <<'END'
x[batch, seq, feat] = u
aux = 0.0
repeat layers {
    param q[feat] ~ ones
    x = x * q
    aux = aux + mean(square(x))
}
loss = cross_entropy(x @ w, label, class) + 0.01 * aux
END
accept "functions of sums in a metric and an update" <<'END'
state running[class] ~ zeros
m = mean(z, batch, seq)
update running = 0.9 * running + 0.1 * square(m)
metric ratio = sum(square(z)) / sum(abs(z))
loss = cross_entropy(z, label, class)
END
accept "counts of what a router chose" <<'END'
state load[class] ~ zeros
hit[batch, seq, class] = argmax(z, class) == index(class)
update load = load + sum(hit, batch, seq)
loss = cross_entropy(z, label, class)
END
# -- refused, with both lines --
refuse "batch normalisation" 7 8 <<'END'
m = mean(z, batch)
c = z - m
loss = cross_entropy(c, label, class)
END
refuse "a sum times a sum" 7 9 <<'END'
a = mean(square(z))
b = mean(z)
loss = a * b
END
refuse "a mean weighted by the model" 9 9 <<'END'
s = sigmoid(u @ v)
t = sum(s * sum(z, class))
loss = t / sum(s)
END
refuse "exp of a mean" 7 8 <<'END'
m = mean(z)
loss = exp(m)
END
refuse "the square of a sum" 7 8 <<'END'
g[class] = sum(z, batch, seq)
loss = sum(square(g))
END
refuse "all pairs" 7 8 <<'END'
f = l2norm(sum(z, seq), class)
s[batch, other] = f @ f[batch -> other]
loss = cross_entropy(s, index(batch), other)
END
refuse "the largest of the batch" 7 8 <<'END'
y = sum(z, seq, class)
loss = mean(z) + max(y, batch)
END
refuse "a carried sum that is fed back" 11 10 <<'END'
x[batch, seq, feat] = u
aux = 0.0
repeat layers {
    x = x * (1 + aux) * v
    aux = aux + mean(square(x))
}
loss = cross_entropy(x @ w, label, class) + aux
END
finish
