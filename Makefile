# ptc: `make` builds build/ptc, `make check` builds and tests everything, `make demo` shows it.
# GNU make. CC, CFLAGS, LDFLAGS, LDLIBS are yours; SAN=address|thread builds in build/asan,
# build/tsan, SAN=fuzz what `make fuzz` runs in build/fuzz, with clang; CI=true makes warnings errors; V=1 shows the commands.

MAKEFLAGS += -r
SAN ?=
CI ?=
V ?=
PREFIX ?= /usr/local
BINDIR ?= $(PREFIX)/bin
DATADIR ?= $(PREFIX)/share/ptc
CFLAGS ?= -O2 -g
FLEX ?= flex
BISON ?= bison

Q := $(if $(V),,@)
GEN := build/gen
BUILD := build$(if $(SAN),/$(if $(filter fuzz,$(SAN)),fuzz,$(if $(filter thread,$(SAN)),tsan,asan)))
comma := ,
SANFLAGS := $(if $(filter address,$(SAN)),-fno-omit-frame-pointer -fsanitize=address$(comma)undefined -fno-sanitize-recover=undefined,$(if $(SAN),-fno-omit-frame-pointer -fsanitize=$(SAN)))
ifeq ($(SAN),fuzz)
CC := clang
CFLAGS := -O2 -g
SANFLAGS := -fno-omit-frame-pointer -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined \
	-fno-sanitize-coverage=trace-cmp
endif

WARN := -Wall -Wextra -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wold-style-definition \
	-Wwrite-strings -Wpointer-arith -Wundef -Wvla -Wformat=2 $(if $(filter fuzz,$(SAN)),-Wno-format-nonliteral) \
	$(if $(filter true,$(CI)),-Werror)
COMMON := -std=c17 -D_GNU_SOURCE -I. -I$(GEN) -fno-common -pthread $(SANFLAGS)
ALL_CFLAGS = $(COMMON) $(WARN) $(CPPFLAGS) $(CFLAGS) -MMD -MP
GEN_CFLAGS = $(COMMON) -Wall -Wno-unused-function -Wno-unused-but-set-variable $(CPPFLAGS) $(CFLAGS) -MMD -MP
ALL_LDLIBS = -ldnnl -ljansson -lpthread -lm -ldl $(LDLIBS)

# The driver (ptc.c, cmd_*.c) sees all folders; the rest of frontend/ sees only ir/.
DRIVER := $(wildcard frontend/ptc.c frontend/cmd_*.c)
SRC_frontend := $(filter-out $(DRIVER) frontend/parse.c frontend/scan.c,$(wildcard frontend/*.c))
SRC_ir := $(wildcard ir/*.c)
SRC_passes := $(wildcard passes/*.c)
SRC_codegen := $(wildcard codegen/*.c)
SRC_runtime := $(wildcard runtime/*.c runtime/cuda/*.c)
PARSER := $(if $(wildcard frontend/parse.y),parse scan)
INCS := $(patsubst codegen/%.inc,$(GEN)/%_inc.h,$(wildcard codegen/*.inc))
GENH := $(PARSER:%=$(GEN)/%.h) $(INCS) $(GEN)/report_html.h $(if $(wildcard examples/hardware.pdsl),$(GEN)/hardware_pdsl.h)

# Archives in linking order; `make unit PARTS=ir` links tests against some of them only.
PARTS ?= runtime codegen passes frontend ir
ARCHIVES = $(PARTS:%=$(BUILD)/lib%.a)
OBJ = $(patsubst %.c,$(BUILD)/obj/%.o,$(1))
UNIT := $(patsubst tests/unit/%.c,$(BUILD)/unit/%,$(wildcard tests/unit/*.c))
PACKAGES := gcc g++ libc6-dev flex bison libdnnl-dev libjansson-dev libcmocka-dev jq
FUZZ_PACKAGES := clang libclang-rt-dev
BROWSER_PACKAGES := chromium

# The software GPU: one library under the names of the driver, NVRTC, cuBLASLt and NCCL, for $PTC_CUDA_LIBS.
SOFTGPU := build/softgpu
SOFTGPU_SRC := $(filter-out tests/softgpu/test_%.c,$(wildcard tests/softgpu/*.c))
SOFTGPU_LIBS := libcuda.so.1 libnvrtc.so.13 libcublasLt.so.13 libnccl.so.2

.PHONY: all demo check validate softgpu check-softgpu deps deps-fuzz deps-browser deps-nvrtc gpu-check check-includes unit units bench fuzz fuzz-check fuzzers mutate pipeline-all check-nvrtc clean install FORCE
.SECONDARY:
.DELETE_ON_ERROR:
all: $(BUILD)/ptc

$(BUILD)/ptc: $(call OBJ,$(DRIVER)) $(foreach p,runtime codegen passes frontend ir,$(BUILD)/lib$(p).a)
	@echo "  link    $@"
	$(Q)$(CC) $(SANFLAGS) -o $@ $^ $(LDFLAGS) $(ALL_LDLIBS)

# An archive depends on the list of its members, so that a file taken away leaves it too.
define ARCHIVE
$(BUILD)/lib$(1).a: $(call OBJ,$(SRC_$(1))) $(2) $(BUILD)/obj/$(1).list
	@echo "  archive $$@"
	$$(Q)rm -f $$@ && $$(AR) rcs $$@ $$(filter %.o,$$^)
$(BUILD)/obj/$(1).list: FORCE
	$$(Q)mkdir -p $$(@D) && echo '$(SRC_$(1))' | cmp -s - $$@ || echo '$(SRC_$(1))' > $$@
endef
$(foreach p,ir passes codegen runtime,$(eval $(call ARCHIVE,$(p),)))
$(eval $(call ARCHIVE,frontend,$(PARSER:%=$(BUILD)/obj/gen/%.o)))

$(BUILD)/obj/%.o: %.c | $(GENH)
	@mkdir -p $(@D)
	@echo "  cc      $<"
	$(Q)$(CC) $(ALL_CFLAGS) -c -o $@ $<

$(BUILD)/obj/gen/%.o: $(GEN)/%.c | $(GENH)
	@mkdir -p $(@D)
	@echo "  cc      $<"
	$(Q)$(CC) $(GEN_CFLAGS) -c -o $@ $<

$(GEN)/parse.c $(GEN)/parse.h &: frontend/parse.y
	@mkdir -p $(GEN)
	@echo "  bison   $<"
	$(Q)$(BISON) -Wall --defines=$(GEN)/parse.h -o $(GEN)/parse.c $<

$(GEN)/scan.c $(GEN)/scan.h &: frontend/scan.l
	@mkdir -p $(GEN)
	@echo "  flex    $<"
	$(Q)$(FLEX) --header-file=$(GEN)/scan.h -o $(GEN)/scan.c $<

# Texts that the program carries: `static const char NAME[]`, one C string a line.
EMBED = @mkdir -p $(GEN); { echo 'static const char $(1)[] ='; \
	sed -e 's/\\/\\\\/g; s/"/\\"/g; s/?/\\?/g; s/^/"/; s/$$/\\n"/' $<; echo ';'; } > $@
$(GEN)/hardware_pdsl.h: examples/hardware.pdsl
	$(call EMBED,hardware_pdsl)
$(GEN)/report_html.h: frontend/report.html
	$(call EMBED,report_html)
$(GEN)/%_inc.h: codegen/%.inc
	$(call EMBED,$*_inc)

# Every tests/unit/*.c is one cmocka program.
$(BUILD)/unit/%: tests/unit/%.c $(ARCHIVES)
	@mkdir -p $(@D)
	@echo "  cc      $<"
	$(Q)$(CC) $(ALL_CFLAGS) -MF $@.d -MT $@ -o $@ $< $(ARCHIVES) $(LDFLAGS) -lcmocka $(ALL_LDLIBS)

units: $(UNIT)

unit: units
	$(Q)BUILD=$(BUILD) tests/unit.sh

check: deps deps-fuzz deps-browser deps-nvrtc
	$(Q)$(MAKE) --no-print-directory all units
	$(Q)BUILD=$(BUILD) MAKE="$(MAKE)" tests/check.sh

check-includes:
	$(Q)tests/includes.sh

softgpu: $(SOFTGPU_LIBS:%=$(SOFTGPU)/%)
$(SOFTGPU_LIBS:%=$(SOFTGPU)/%): $(SOFTGPU)/libsoftgpu.so
	$(Q)ln -sf libsoftgpu.so $@

$(SOFTGPU)/libsoftgpu.so: $(SOFTGPU_SRC:tests/softgpu/%.c=$(SOFTGPU)/%.o)
	@echo "  link    $@"
	$(Q)$(CC) -shared -pthread -Wl,-z,defs -o $@ $^ -lm -ldl

$(SOFTGPU)/%.o: tests/softgpu/%.c $(SOFTGPU)/shim_text.h
	@echo "  cc      $<"
	$(Q)$(CC) -std=c17 -D_GNU_SOURCE -I. -fPIC -fvisibility=hidden -fwrapv -pthread $(WARN) -O2 -ftree-vectorize -g -MMD -MP -c -o $@ $<

$(SOFTGPU)/shim_text.h: tests/softgpu/shim.h
	@mkdir -p $(@D)
	$(Q){ echo 'static const char shim_text[] ='; sed -e 's/\\/\\\\/g; s/"/\\"/g; s/?/\\?/g; s/^/"/; s/$$/\\n"/' $<; echo ';'; } > $@

check-softgpu: all softgpu
	$(Q)BUILD=$(BUILD) MAKE="$(MAKE)" tests/check.sh softgpu cuda

demo: deps
	$(Q)$(MAKE) --no-print-directory all
	$(Q)tests/demo.sh

gpu-check: all
	$(Q)tests/gpu/run.sh

bench: all
	$(Q)tests/bench.sh

# Predictions of all published runs of tests/validate/rows.jsonl; some minutes.
validate: all
	$(Q)BUILD=$(BUILD) python3 tests/validate/validate.py --bounds all

# `make fuzz T=600`: fuzzers and random programs for that many seconds. `make fuzz-check N=100000 SEED=7`:
# random modules, partitioned, against one rank. `make check` runs both for a while.
T ?= 30
N ?= 1500
SEED ?= 1
fuzz: deps-fuzz all
	$(Q)BUILD=$(BUILD) MAKE="$(MAKE)" T=$(T) SEED=$(SEED) tests/fuzz/run.sh front ir programs

fuzz-check: $(BUILD)/fuzz-check
	$(Q)$(BUILD)/fuzz-check $(N) $(SEED)

$(BUILD)/fuzz-check: $(filter-out %front.c %ir.c %programs.c,$(wildcard tests/fuzz/*.c)) $(wildcard tests/fuzz/*.h) \
		$(foreach p,runtime codegen passes ir,$(BUILD)/lib$(p).a)
	@echo "  cc      $@"
	$(Q)$(CC) $(COMMON) $(WARN) $(CPPFLAGS) $(CFLAGS) -o $@ $(filter %.c %.a,$^) $(LDFLAGS) $(ALL_LDLIBS)

# All settings of pipelines with one another: hours.
pipeline-all: all
	$(Q)BUILD=$(BUILD) tests/pipeline/run.sh all $(PART)

# The kernels of all examples through the real NVRTC, for each architecture.
check-nvrtc: all $(BUILD)/nvrtc-kernels
	$(Q)ALL=1 BUILD=$(BUILD) MAKE="$(MAKE)" tests/check.sh nvrtc

$(BUILD)/nvrtc-kernels: $(wildcard tests/nvrtc/*.c) $(wildcard tests/nvrtc/*.h) $(foreach p,runtime codegen passes ir,$(BUILD)/lib$(p).a)
	@echo "  cc      $@"
	$(Q)$(CC) $(COMMON) $(WARN) $(CPPFLAGS) $(CFLAGS) -o $@ $(filter %.c %.a,$^) $(LDFLAGS) $(ALL_LDLIBS)

# `make mutate N=3000 SEED=7`: plans with one fault each; ptc verify must reject those that a run shows to be unsafe.
mutate: all $(BUILD)/mutate
	$(Q)BUILD=$(BUILD) N=$(N) SEED=$(SEED) ALL=1 V=1 tests/mutate/run.sh

$(BUILD)/mutate: $(wildcard tests/mutate/*.c) $(wildcard tests/mutate/*.h) \
		$(foreach p,runtime codegen passes ir,$(BUILD)/lib$(p).a)
	@echo "  cc      $@"
	$(Q)$(CC) $(COMMON) $(WARN) $(CPPFLAGS) $(CFLAGS) -o $@ $(filter %.c %.a,$^) $(LDFLAGS) $(ALL_LDLIBS)

$(BUILD)/fuzz-programs: tests/fuzz/programs.c $(BUILD)/libfrontend.a $(BUILD)/libir.a
	@echo "  cc      $@"
	$(Q)$(CC) $(ALL_CFLAGS) -o $@ $< $(filter %.a,$^) $(LDFLAGS) -lm

# With SAN=fuzz only: libFuzzer's.
fuzzers: $(BUILD)/front $(BUILD)/ir
$(BUILD)/front $(BUILD)/ir: $(BUILD)/%: tests/fuzz/%.c $(BUILD)/libfrontend.a $(BUILD)/libir.a
	@echo "  cc      $@"
	$(Q)$(CC) $(subst fuzzer-no-link,fuzzer,$(ALL_CFLAGS)) -MF $@.d -MT $@ -o $@ $< $(filter %.a,$^) $(LDFLAGS) -lm

# Debian's package names; quiet when nothing is missing. A machine that has just started updates its own lists, and apt-get
# gives up at once on their lock: it is tried again for two minutes. One target after the other, for the same reason.
INSTALL = missing=; for p in $(1); do dpkg -s $$p >/dev/null 2>&1 || missing="$$missing $$p"; done; \
	[ -z "$$missing" ] || { echo "  apt-get install$$missing"; \
	for try in 1 2 3 4 5 6 7 8 9 10 11 12; do said=$$(LC_ALL=C apt-get update -qq 2>&1) && break; \
		case $$said in *lock*) sleep 10;; *) break;; esac; done; \
	DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=120 install -y -qq --no-install-recommends \
		$$missing >/dev/null || { echo "$$said" >&2; false; }; }
deps:
	$(Q)$(call INSTALL,$(PACKAGES))

# Without these the fuzzers are skipped.
deps-fuzz: | deps
	$(Q)$(call INSTALL,$(FUZZ_PACKAGES)) || echo "  not installed: $(FUZZ_PACKAGES)"

# Without it the page of `ptc explain --html` is not looked at.
deps-browser: | deps deps-fuzz
	$(Q)$(call INSTALL,$(BROWSER_PACKAGES)) || echo "  not installed: $(BROWSER_PACKAGES)"

# NVRTC, of Python's registry, unless the loader knows one.
deps-nvrtc: | deps
	$(Q)ldconfig -p | grep -q 'libnvrtc\.so\.1[23]' || [ -e build/nvrtc ] || \
		python3 -m pip install -q --no-deps --target build/nvrtc 'nvidia-cuda-nvrtc>=13,<14' || \
		{ rm -rf build/nvrtc; echo "  not installed: nvidia-cuda-nvrtc"; }

install: all
	install -D -m 755 $(BUILD)/ptc $(DESTDIR)$(BINDIR)/ptc
	install -d $(DESTDIR)$(DATADIR)/examples
	install -m 644 examples/*.pdsl $(DESTDIR)$(DATADIR)/examples

clean:
	rm -rf build

-include $(wildcard $(BUILD)/obj/*/*.d $(BUILD)/obj/*/*/*.d $(BUILD)/unit/*.d build/softgpu/*.d)
