#!/usr/bin/env python3
"""Holds the device memory in run folders against what CUDA and torch said of it. For tests/on_gpu.sh.

Usage: compare_device.py RESULTS

Writes RESULTS/results.csv, prints it, and exits with 1 where something does not agree:
- device_used_bytes against cudaMemGetInfo's total - free: within 64 MiB. NVML's newer count leaves out what the driver
  reserves, CUDA's free memory does not count it: that part is taken from the first stage of each run and must not move;
- device_launch_bytes no less than torch's memory_reserved, and above it by the context alone: the same at each stage
  within 64 MiB;
- the peak at `settled` no less than what stood at `over`.
"""

import csv
import json
import pathlib
import sys

NEAR = 64 << 20
HOW = ["mapped", "prefaulted", "heap", "pinned"]
FIELDS = ["source", "stage", "used", "cuda_used", "launch", "reserved", "peak_launch", "basis", "verdict"]


def number(text):
    return int(text) if text else None


def of_run(folder, how):
    rows = {row["stage"]: row for row in csv.DictReader(open(folder / how / "stages.csv", newline=""))}
    meta = json.load(open(folder / how / "run.json"))
    basis = meta.get("device_probe", {}).get("launch_basis")
    offsets, over = {}, None
    for line in open(folder / f"{how}.truth"):
        truth = json.loads(line)
        row = rows.get(truth["stage"], {})
        used, launch = number(row.get("device_used_bytes")), number(row.get("device_launch_bytes"))
        peak = number(row.get("peak_device_launch_bytes_low"))
        wrong = []
        for name, ours, theirs in (("used", used, truth["used_bytes"]), ("launch", launch, truth["reserved_bytes"])):
            if ours is None:
                wrong.append(f"{name} absent")
                continue
            first = offsets.setdefault(name, ours - theirs)
            if abs(ours - theirs - first) > NEAR:
                wrong.append(f"{name} moved by {ours - theirs - first} against CUDA's")
        if launch is not None and launch < truth["reserved_bytes"]:
            wrong.append("launch is less than torch has")
        if truth["stage"] == "over":
            over = launch
        if truth["stage"] == "settled" and over is not None and (peak is None or peak < over):
            wrong.append("the peak was missed")
        verdict = "; ".join(wrong) or "ok"
        yield [how, truth["stage"], used, truth["used_bytes"], launch, truth["reserved_bytes"], peak, basis, verdict]


def main():
    folder = pathlib.Path(sys.argv[1])
    results = []
    for how in HOW:
        try:
            rows = list(of_run(folder, how))
        except (OSError, KeyError, ValueError) as error:
            rows = [[how, "", None, None, None, None, None, None, f"no run: {error}"]]
        if rows and rows[-1][1] not in ("settled", ""):
            rows[-1][-1] += "; it ended here"
        results += rows or [[how, "", None, None, None, None, None, None, "no truth"]]
    with open(folder / "results.csv", "w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerows([FIELDS, *results])
    print((folder / "results.csv").read_text(), end="")
    wrong = sum(row[-1] != "ok" for row in results)
    print(f"{len(results) - wrong} of {len(results)} agree")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
