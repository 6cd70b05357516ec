"""Stand-ins for the NVIDIA libraries that the CUDA build of torch loads.

Usage: nvidia_stubs.py TORCH_LIB_DIR

The registry's torch is the CUDA build: it imports some fourteen NVIDIA libraries (3 GB) that a machine
without a GPU never calls. Each is replaced by a library of the same soname whose functions return an error, so
`import torch` works and `torch.cuda.is_available()` is False. Written beside torch's own, which its rpath finds.
"""

import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

from elf import Symbol, needed, symbols

SYSTEM_LIBRARY = re.compile(r"^(libc|libm|libdl|librt|libpthread|libgcc_s|libstdc\+\+|ld-linux.*|libgomp)\.so")
# The driver's own library is opened at run time only, and its absence is what says "no GPU".
DRIVER = "libcuda.so.1"

# Which library a symbol without version belongs to, most specific first.
OWNERS = [
    ("libcusparseLt", r"^cusparseLt"),
    ("libcusparse", r"^cusparse"),
    ("libcufft", r"^cufft"),
    ("libcufile", r"^cuFile"),
    ("libnccl", r"^p?nccl"),
    ("libcurand", r"^curand"),
    ("libcublasLt", r"^cublasLt"),
    ("libcublas", r"^cublas"),
    ("libcudnn", r"^cudnn"),
    ("libnvrtc", r"^nvrtc"),
    ("libnvshmem_host", r"nvshmem"),
    ("libcupti", r"^cupti"),
    ("libcudart", r"^(cuda|__cuda)"),
    ("libcusolver", r"^cusolver"),
]
RETURNS_TEXT = re.compile(r"(ErrorString|ErrorName|StatusGetString)$")
ANY_ERROR = 100  # cudaErrorNoDevice; every NVIDIA library takes non-zero as failure


def missing_libraries(libraries: list[Path]) -> list[str]:
    """The sonames that nothing here or in the base system provides."""
    present = {library.name for library in libraries}
    wanted = set().union(*map(needed, libraries))
    return sorted(s for s in wanted if s not in present and not SYSTEM_LIBRARY.match(s) and s != DRIVER)


def owner(symbol: Symbol, sonames: list[str]) -> str | None:
    """The missing library that should define the symbol."""
    if symbol.version in sonames:
        return symbol.version
    for prefix, pattern in OWNERS:
        if re.search(pattern, symbol.name):
            return next((s for s in sonames if s.startswith(prefix + ".so")), None)
    return None


def source(wanted: list[Symbol]) -> str:
    """C text that defines each symbol."""
    lines = ["int stub_marker;"]
    for symbol in wanted:
        if symbol.kind == "OBJECT":
            lines.append(f"char {symbol.name}[4096];")
        elif RETURNS_TEXT.search(symbol.name):
            lines.append(f'const char *{symbol.name}(void) {{ return "NVIDIA library stubbed out"; }}')
        else:
            lines.append(f"int {symbol.name}(void) {{ return {ANY_ERROR}; }}")
    return "\n".join(lines) + "\n"


def version_script(wanted: list[Symbol]) -> str:
    """The linker's map of versioned symbols; empty where there are none."""
    by_version: dict[str, list[str]] = defaultdict(list)
    for symbol in wanted:
        if symbol.version:
            by_version[symbol.version].append(symbol.name)
    return "".join(f"{version} {{ global: {'; '.join(names)}; }};\n" for version, names in by_version.items())


def build(target: Path, wanted: list[Symbol]) -> None:
    """Compile one stand-in."""
    with tempfile.TemporaryDirectory() as directory:
        code, versions = Path(directory, "stub.c"), Path(directory, "stub.map")
        code.write_text(source(wanted))
        versions.write_text(version_script(wanted))
        command = ["gcc", "-shared", "-fPIC", "-w", "-fno-builtin", "-Os", f"-Wl,-soname,{target.name}"]
        if versions.stat().st_size:
            command.append(f"-Wl,--version-script={versions}")
        subprocess.run([*command, "-o", target, code], check=True)


def main(directory: Path) -> None:
    libraries = sorted(directory.glob("*.so*"))
    sonames = missing_libraries(libraries)
    every = [symbol for library in libraries for symbol in symbols(library)]
    defined = {symbol.name for symbol in every if symbol.defined}
    wanted: dict[str, dict[str, Symbol]] = {soname: {} for soname in sonames}
    for symbol in every:
        soname = None if symbol.name in defined else owner(symbol, sonames)
        if soname:
            wanted[soname][symbol.name] = symbol
    for soname, by_name in wanted.items():
        build(directory / soname, sorted(by_name.values()))
        print(f"{soname}: {len(by_name)} symbols")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
