# A pass on IR text: the dead exp goes, the two equal reads become one.
# RUN: grep -v '^#' %s > %t && ptc opt --pass=simplify %t
ptc-ir 1
module "dead" form=logical precision=f32 micro=1 batch=batch workspace=268435456
dim batch=4
dim feat=6
buffer @"x" input f32[batch, feat]
buffer @"w" param f32[feat] init=ones
forward:
  %0 = read {buf="x"} : f32[batch, feat] "x"
  %1 = read {buf="w"} : f32[feat] "w"
  %2 = exp %1 : f32[feat]
  %3 = mul %0, %1 : f32[batch, feat]
  %4 = read {buf="w"} : f32[feat]
  %5 = mul %3, %4 : f32[batch, feat]
  %6 = sum %5 : f32[] "loss"
  report %6 {key="loss"}
# >>> output
# ptc-ir 1
# module "dead" form=logical precision=f32 micro=1 batch=batch workspace=268435456
# dim batch=4
# dim feat=6
# buffer @"x" input f32[batch, feat]
# buffer @"w" param f32[feat] init=ones
# forward:
#   %0 = read {buf="x"} : f32[batch, feat] "x"
#   %1 = read {buf="w"} : f32[feat] "w"
#   %2 = mul %0, %1 : f32[batch, feat]
#   %3 = mul %2, %1 : f32[batch, feat]
#   %4 = sum %3 : f32[] "loss"
#   report %4 {key="loss"}
# <<<
