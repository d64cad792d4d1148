# What is wrong with a text is said with its line.
# RUN: grep -v '^#' %s > t.pir; ptc opt --pass=simplify t.pir; s=$?; rm t.pir; exit $s
# EXIT: 1
ptc-ir 1
module "wrong" form=logical precision=f32 micro=1 batch=batch workspace=268435456
dim batch=4
buffer @"x" input f32[batch]
forward:
  %0 = read {buf="x"} : f32[batch] "x"
  %1 = expp %0 : f32[batch]
# >>> output
# t.pir:7:8: error: no operation 'expp'
#       %1 = expp %0 : f32[batch]
#            ^~~~
# <<<
