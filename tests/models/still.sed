# No warmup, no dropout: what a step changes can be told from the rounding of the params.
s/warmup = [0-9]*/warmup = 1/
s|(step + 1) / 1000, 1)|(step + 1) / 1, 1)|
s/drop = 0[.]1/drop = 0/
s/, 0[.]1)/, 0)/
