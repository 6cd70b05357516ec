"""Replaces torch's libtorch_cuda.so (470 MB) by a stand-in that `import torch` is content with.

Usage: torch_cuda_stub.py TORCH_LIB_DIR

Defines exactly what libtorch_python.so takes from it. Nothing of it is called on a machine without a GPU, except while
Python bindings are registered: these take the type of some classes, and of one default-constructed
`ProcessGroupNCCL::Options`.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from elf import symbols

LIBRARY = "libtorch_cuda.so"
TYPE_INFORMATION = re.compile(r"_ZT[VI](N.*E)$")  # mangled vtable or typeinfo of a nested name
NCCL_OPTIONS = "ProcessGroupNCCL7OptionsC"  # its constructors, mangled
CLASS_BODY = "{ virtual ~%(name)s(); virtual void a(); virtual void b(); virtual void c(); }"
CLASS_CODE = "%(name)s::~%(name)s() {} void %(name)s::a() {} void %(name)s::b() {} void %(name)s::c() {}"


def nested_name(mangled: str) -> list[str]:
    """`N3c104cuda4ImplE` -> [c10, cuda, Impl]."""
    names, rest = [], mangled[1:-1]
    while rest:
        digits = re.match(r"\d+", rest).group()
        end = len(digits) + int(digits)
        names.append(rest[len(digits) : end])
        rest = rest[end:]
    return names


def class_with_vtable(names: list[str]) -> str:
    """A class whose vtable and typeinfo get the wanted mangled names.

    An enclosing class is written as a namespace: the mangling is the same.
    """
    *scopes, name = names
    opening = "".join(f"namespace {scope} {{ " for scope in scopes)
    body = f"struct {name} {CLASS_BODY} ; {CLASS_CODE}" % {"name": name}
    return opening + body + " }" * len(scopes)


def source(functions: list[str], objects: list[str]) -> str:
    """C++ text that defines each function and each class behind an object."""
    classes = {tuple(nested_name(TYPE_INFORMATION.match(name).group(1))) for name in objects}
    constructors = [name for name in functions if NCCL_OPTIONS in name]
    others = [name for name in functions if NCCL_OPTIONS not in name]
    return "\n".join(
        [
            *(class_with_vtable(list(names)) for names in sorted(classes)),
            # Whatever a function is asked for, it hands out zeroed memory.
            'extern "C" { static char zeros[65536] __attribute__((aligned(65536)));',
            *(f"void *{name}() {{ return zeros; }}" for name in others),
            "}",
            # The bindings read the type of a default Options: it needs some vtable.
            class_with_vtable(["Options"]),
            'extern "C" void *_ZTV7Options[];',
            'extern "C" {',
            *(f"void {n}(void **self) {{ __builtin_memset(self, 0, 64); *self = _ZTV7Options + 2; }}" for n in constructors),
            "}\n",
        ]
    )


def main(directory: Path) -> None:
    offered = {symbol.name: symbol.kind for symbol in symbols(directory / LIBRARY) if symbol.defined}
    asked = {symbol.name for symbol in symbols(directory / "libtorch_python.so") if not symbol.defined}
    wanted = sorted(asked & offered.keys())
    functions = [name for name in wanted if offered[name] != "OBJECT"]
    objects = [name for name in wanted if offered[name] == "OBJECT"]
    with tempfile.TemporaryDirectory() as scratch:
        code, stub = Path(scratch, "stub.cpp"), Path(scratch, LIBRARY)
        code.write_text(source(functions, objects))
        # Both neighbours stay loaded by it, as by the real one.
        neighbours = ["-Wl,--no-as-needed", f"-L{directory}", "-l:libtorch_nvshmem.so", "-l:libc10_cuda.so"]
        flags = ["-shared", "-fPIC", "-w", "-Os", f"-Wl,-soname,{LIBRARY}", "-Wl,-rpath,$ORIGIN"]
        subprocess.run(["g++", *flags, "-o", stub, code, *neighbours, "-Wl,--allow-shlib-undefined"], check=True)
        missing = set(wanted) - {symbol.name for symbol in symbols(stub) if symbol.defined}
        if missing:
            sys.exit(f"{LIBRARY}: the stand-in lacks {', '.join(sorted(missing))}")
        (directory / LIBRARY).unlink()
        (directory / LIBRARY).write_bytes(stub.read_bytes())
    print(f"{LIBRARY}: {len(functions)} functions, {len(objects)} objects")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
