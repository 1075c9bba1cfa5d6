#!/usr/bin/env python3
"""Lets a CUDA build of torch be imported on a machine without CUDA's libraries.

Usage: cuda_stubs.py TORCH_LIB_DIRECTORY

PyPI has torch for Linux as a CUDA build only. Its shared objects name a dozen CUDA libraries, which the dynamic linker
wants to find before it runs a line of torch. For each that is missing this script links a library that has the symbols
torch asks for (with their version nodes), every one a function that returns 100, which is cudaErrorNoDevice. torch
then finds no device and works on the CPU; none of its own code is touched. Needs cc, nm and objdump.
"""

import collections
import pathlib
import re
import subprocess
import sys
import tempfile

NO_DEVICE = 100
# Loaded by name when a device is used, not when torch is imported; a stub would be taken for the driver.
DRIVER = "libcuda.so.1"
CUDA_NAME = re.compile(r"_*(cu|nccl|nv)")


def output(*command):
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def needs(library):
    """The sonames that a library is linked to, and its version references as {node: soname}."""
    sonames, nodes, source = [], {}, None
    for line in output("objdump", "-p", str(library)).splitlines():
        words = line.split()
        if words[:1] == ["NEEDED"]:
            sonames.append(words[1])
        elif words[:2] == ["required", "from"]:
            source = words[2].rstrip(":")
        elif source and len(words) == 4 and words[0].startswith("0x"):
            nodes[words[3]] = source
        else:
            source = None
    return sonames, nodes


def link(directory, soname, versioned, plain):
    """Links one stub. `versioned` is {node: symbols}; `plain` are symbols that are asked for without a version."""
    with tempfile.TemporaryDirectory() as scratch:
        source, script = pathlib.Path(scratch, "stub.c"), pathlib.Path(scratch, "stub.map")
        symbols = sorted(set(plain).union(*versioned.values()))
        source.write_text("".join(f"int {symbol}(void) {{ return {NO_DEVICE}; }}\n" for symbol in symbols))
        script.write_text("".join(f"{node} {{ {' '.join(f'{s};' for s in sorted(names))} }};\n"
                                  for node, names in sorted(versioned.items())))
        command = ["cc", "-w", "-shared", "-fPIC", "-fno-builtin", f"-Wl,-soname,{soname}", "-o",
                   str(directory / soname), str(source)]
        if versioned:
            command.append(f"-Wl,--version-script={script}")
        subprocess.run(command, check=True)
    return len(symbols)


def main(directory):
    libraries = [path for path in sorted(directory.glob("*.so*")) if not path.is_symlink()]
    present = {path.name for path in libraries}
    missing, wanted, plain, defined = set(), collections.defaultdict(lambda: collections.defaultdict(set)), set(), set()
    for library in libraries:
        sonames, nodes = needs(library)
        missing.update(name for name in sonames if CUDA_NAME.match(name.removeprefix("lib")) and name not in present)
        for line in output("nm", "-D", str(library)).splitlines():
            kind, symbol = line.split()[-2:]
            name, _, node = symbol.replace("@@", "@").partition("@")
            if kind not in "UwWv":
                defined.add(name)
            elif node in nodes:
                wanted[nodes[node]][node].add(name)
            elif CUDA_NAME.match(name):
                plain.add(name)
    missing.discard(DRIVER)
    plain -= defined
    # A symbol without a version is found in whichever library has it; those with version scripts cannot hold one.
    holder = next((soname for soname in sorted(missing) if soname not in wanted), None)
    if plain and holder is None:
        sys.exit(f"{directory}: no library left to hold the unversioned symbols")
    for soname in sorted(missing):
        count = link(directory, soname, wanted[soname], plain if soname == holder else ())
        print(f"{soname}: {count} symbols")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(pathlib.Path(sys.argv[1]))
