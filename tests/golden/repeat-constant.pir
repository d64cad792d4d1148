# What is carried on and is the same number before and after each iteration is that number.
# RUN: grep -v '^#' %s > %t && ptc opt --pass=simplify %t
ptc-ir 1
module "constant" form=logical precision=f32 micro=1 batch=batch workspace=268435456
dim batch=4
dim layers=3
buffer @"x" input f32[batch]
forward:
  %0 = read {buf="x"} : f32[batch]
  %1 = const {value=0} : f32[batch]
  %2, %3 = repeat %1, %0 {dim=layers, ncarry=2, nwith=0} : f32[batch], f32[batch] {
    args %4: f32[batch], %5: f32[batch]
    %6 = const {value=0} : f32[batch]
    %7 = exp %5 : f32[batch]
    yield %6, %7
  }
  %8 = sum %3 : f32[]
  %9 = sum %2 : f32[]
  %10 = add %8, %9 : f32[]
  report %10 {key="loss"}
# >>> output
# ptc-ir 1
# module "constant" form=logical precision=f32 micro=1 batch=batch workspace=268435456
# dim batch=4
# dim layers=3
# buffer @"x" input f32[batch]
# forward:
#   %0 = read {buf="x"} : f32[batch]
#   %1 = const {value=0} : f32[batch]
#   %2 = repeat %0 {dim=layers, ncarry=1, nwith=0} : f32[batch] {
#     args %3: f32[batch]
#     %4 = exp %3 : f32[batch]
#     yield %4
#   }
#   %5 = sum %2 : f32[]
#   %6 = sum %1 : f32[]
#   %7 = add %5, %6 : f32[]
#   report %7 {key="loss"}
# <<<
