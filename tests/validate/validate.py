#!/usr/bin/env python3
"""Predicts published training runs with ptc, and says how far off the predictions are.

validate.py [--only GROUP] [--sample N] [--rows FILE] [--print] [--bounds]: see docs/COST.md."""
import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

import models
import plans

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(os.path.dirname(HERE))
PTC = os.environ.get("PTC") or os.path.join(ROOT, os.environ.get("BUILD", "build"), "ptc")


def program(row, table, recompute=None):
    lay = row["layout"]
    if recompute:
        row = dict(row, layout=dict(lay, recompute=recompute))
    unit = 128 * lay["tp"]
    vocab = -(-row["model"]["vocab"] // unit) * unit
    text, repeats = models.program(row, vocab, lay["batch"])
    # Zero Bubble looks at the norm behind the step, and takes it back if it was wrong (Qi et al. 2023, section 4).
    clip = "" if (row["layout"]["schedule"] or "").startswith("zb") else ", clip = 1.0"
    return "%s%sminimize loss with adamw(lr = 1e-4%s)\n%s" % (
        text, plans.hardware(row, table), clip, plans.plan(row, repeats, "here"))


def explain(row, table, where, recompute=None):
    path = os.path.join(where, "%s.pdsl" % row["id"].replace("/", "_"))
    with open(path, "w") as f:
        f.write(program(row, table, recompute))
    order = []
    if row["layout"]["schedule"] == "zb-2p":
        order = ["--schedule", path + ".csv"]
        with open(order[1], "w") as f:
            f.write(plans.zb_2p(row))
    run = subprocess.run([PTC, "explain", "--json", path] + order, capture_output=True, text=True)
    # What a row names must be there: a value to keep, a dim to shard.
    wrong = run.returncode or "no value is called" in run.stderr or "never applies" in run.stderr
    return (None, run.stderr) if wrong else (json.loads(run.stdout), None)


def software_peak(said):
    return max(stage.get("software", stage["peak"]) for stage in said["memory"]["stages"])


def predict(row, table, where):
    """What is said of the row. Where nobody says what is recomputed, the least that fits."""
    if row["layout"]["recompute"] is not None:
        return explain(row, table, where)
    for how in ("none", "auto", "full"):
        said, error = explain(row, table, where, how)
        if not error and software_peak(said) <= plans.room(row):
            break
    return said, error


# Largest errors in percent: (median, 90th percentile); pairs in order, conversions. A little above what there is: docs/COST.md.
BOUNDS = {
    "all": {"dense": (6.0, 15.0), "MoE": (7.0, 25.0), "pairs": 80, "conversion": 0.5},
    "sample": {"dense": (7.5, 20), "MoE": (11, 25), "pairs": 0, "conversion": 0.5},
}


def quantile(xs, q):
    xs = sorted(xs)
    at = q * (len(xs) - 1)
    low = int(at)
    return xs[low] + (xs[min(low + 1, len(xs) - 1)] - xs[low]) * (at - low)


def off(pred, real):
    return math.log(pred / real)


def summary(name, errors):
    if not errors:
        return None
    size = [math.exp(abs(e)) - 1 for e in errors]
    line = (100 * quantile(size, 0.5), 100 * quantile(size, 0.9), 100 * (math.exp(quantile(errors, 0.5)) - 1))
    print("%-22s %4d  %6.1f  %6.1f  %+6.1f" % ((name, len(errors)) + line))
    return line


def pairs(done):
    """Layouts of one sweep, more than 3 % apart: how many pairs are predicted in the right order."""
    groups, right, count = {}, 0, 0
    for row, p in done:
        m, lay = row["model"], row["layout"]
        if row["group"] not in ("vtrain-multi", "vtrain-single", "bloom-prequel", "zero-bubble", "torchtitan"):
            continue
        key = (row["group"], m["layers"], m["embed"], m["heads"], m["seq"], row["ranks"], row["gpu"], lay["batch"])
        groups.setdefault(key, []).append((row["step_s"], p["time"]["step_s"]))
    for runs in groups.values():
        for i in range(len(runs)):
            for j in range(i):
                a, b = runs[i], runs[j]
                if abs(math.log(a[0] / b[0])) > math.log(1.03):
                    count += 1
                    right += (a[0] > b[0]) == (a[1] > b[1])
    return right, count


def conversion(row, p):
    """Log of the TFLOP/s a rank that follow from ptc's FLOPs and the published time, over those published."""
    flops, m = p["flops"], row["model"]
    count = flops["model"] if row["rule"] == "causal" else flops["full"]
    if row["rule"].endswith("recomputed"):  # all layers once more forward, but not the head
        head = 6 * row["layout"]["batch"] * m["seq"] * m["vocab"] * m["embed"]
        count = (count - head) * 4 / 3 + head
    return off(count / row["ranks"] / row["step_s"] / 1e12, row["tflops"])


def sample(rows, n):
    """n rows, of each group some, those that differ most in size."""
    groups = {}
    for row in rows:
        groups.setdefault(row["group"], []).append(row)
    taken = []
    for group in groups.values():
        k = max(1, round(n * len(group) / len(rows)))
        taken += [group[i * len(group) // k] for i in range(k)]
    return taken


def beyond(bounds, dense, moe, in_order, rates):
    """How many bounds are exceeded; each is said."""
    checks = [("%s, %s" % (name, what), got[i], bounds[name][i])
              for name, got in (("dense", dense), ("MoE", moe)) if got
              for i, what in enumerate(("median", "90th percentile"))]
    checks.append(("pairs in the wrong order", 100 - in_order, 100 - bounds["pairs"]))
    if rates:
        checks.append(("TFLOP/s as published, median", 100 * quantile([abs(e) for e in rates], 0.5), bounds["conversion"]))
    over = [c for c in checks if c[1] > c[2]]
    for name, got, most in over:
        print("bound exceeded: %s: %.1f %%, at most %.1f %%" % (name, got, most))
    return len(over)


def main():
    args = argparse.ArgumentParser()
    args.add_argument("--only")
    args.add_argument("--sample", type=int)
    args.add_argument("--rows", default=os.path.join(HERE, "rows.jsonl"))
    args.add_argument("--print", action="store_true")
    args.add_argument("--dump")
    args.add_argument("--bounds", choices=sorted(BOUNDS))
    args = args.parse_args()
    with open(args.rows) as f:
        rows = [json.loads(line) for line in f]
    with open(os.path.join(ROOT, "examples", "hardware.pdsl")) as f:
        table = f.read()
    for row in rows:
        if "left_out" in row and not args.sample:
            print("left out: %s: %s" % (row["id"], row["left_out"]))
    rows = [r for r in rows if "left_out" not in r and (not args.only or args.only in r["group"] or args.only in r["id"])]
    if args.sample:
        rows = sample(rows, args.sample)
    where = tempfile.mkdtemp()
    try:
        shutil.copy(os.path.join(ROOT, "examples", "lib.pdsl"), where)
        with ThreadPoolExecutor(2) as pool:
            said = list(pool.map(lambda row: predict(row, table, where), rows))
    finally:
        shutil.rmtree(where)
    done, failed = [], 0
    for row, (p, error) in zip(rows, said):
        if error:
            failed += 1
            print("FAILED %s: %s" % (row["id"], error.strip().splitlines()[0]))
        else:
            done.append((row, p))
    if args.print:
        for row, p in done:
            t = p["time"]
            print("%-70s %9.4f %9.4f %+6.1f%%  %.1f" % (row["id"], row["step_s"], t["step_s"], 100 * (t["step_s"] / row["step_s"] - 1), p["memory"]["peak"] / 1e9))
    if args.dump:
        with open(args.dump, "w") as f:
            for row, p in done:
                f.write(json.dumps({"row": row, "said": p}) + "\n")
    print("%-22s %4s  %6s  %6s  %6s" % ("step time, %", "rows", "median", "p90", "bias"))
    error = [off(p["time"]["step_s"], row["step_s"]) for row, p in done]
    for group in sorted({row["group"] for row, _ in done}):
        summary(group, [e for e, (row, _) in zip(error, done) if row["group"] == group])
    dense = summary("dense", [e for e, (row, _) in zip(error, done) if not row["model"].get("moe")])
    moe = summary("MoE", [e for e, (row, _) in zip(error, done) if row["model"].get("moe")])
    summary("all", error)
    right, count = pairs(done)
    print("pairs in order         %d of %d: %.0f %%" % (right, count, 100 * right / max(1, count)))
    print("%-22s %4s  %6s  %6s  %6s" % ("TFLOP/s as published", "rows", "median", "p90", "bias"))
    rates = [(row["group"], conversion(row, p)) for row, p in done if "rule" in row]
    for group in sorted({g for g, _ in rates}):
        summary(group, [e for g, e in rates if g == group])
    print("%-22s %4s  %6s  %6s  %6s" % ("peak memory, %", "rows", "median", "p90", "bias"))
    peaks = [(row["group"], row["peak_kind"], off(software_peak(p), row["peak_bytes"])) for row, p in done if row.get("peak_bytes")]
    for group in sorted({(g, k) for g, k, _ in peaks}, key=str):
        summary(group[0], [e for g, k, e in peaks if (g, k) == group])
    if args.bounds:
        failed += beyond(BOUNDS[args.bounds], dense, moe, 100 * right / max(1, count), [e for _, e in rates])
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
