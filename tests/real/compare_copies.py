"""Whether every way of a copy-paths record went to a device, and brought the file's bytes there.

Usage: compare_copies.py copy-paths.json. Exit status: 0 so, 1 not so.
"""

import json
import sys

with open(sys.argv[1]) as file:
    series = [one for place in json.load(file)["places"] for one in place["series"]]
wrong = []
for one in series:
    name = " ".join(filter(None, [one["way"]["regime"], one["way"]["mapped"]]))
    compared = [measured["verified"] for measured in one["passes"] if measured["verified"] is not None]
    if "cuda" not in one["destination"]:
        wrong.append(f"{name}: not to a device")
    elif one["refused"] is not None:
        # A filesystem without O_DIRECT is the only reason there may be.
        if one["way"]["regime"] != "direct":
            wrong.append(f"{name}: {one['refused']}")
    elif not compared or not all(compared):
        wrong.append(f"{name}: other bytes than the file's")
for line in wrong:
    print(line)
print(f"copies: {len(series) - len(wrong)} of {len(series)} ways are as they should be")
sys.exit(1 if wrong or not series else 0)
