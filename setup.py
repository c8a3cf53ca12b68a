"""Extension modules of zenith-ae; all other metadata is in pyproject.toml.

The kernels are written once (`kernels.inc.h`) and compiled once per instruction-set level, each
through its own small file `level_<isa>.c` with its own compiler flags. Nothing else gets these
flags: code that runs before the CPU was asked must run on every CPU. They are linked into one
extension module, which hands their table to the other.

Environment variables
---------------------
ZENITH_WERROR=1    -Wall -Wextra -Werror for all hand-written C.
ZENITH_SANITIZE=1  AddressSanitizer and UndefinedBehaviorSanitizer in everything. To use it:
                       ZENITH_SANITIZE=1 pip install -e . --no-build-isolation
                       LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libstdc++.so)" \
                       ASAN_OPTIONS=detect_leaks=0 python -m pytest tests/test_kernels.py
"""

from __future__ import annotations

import os
import platform
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, find_packages, setup
from setuptools.command.build_ext import build_ext

FOLDER = Path("_kernels_cython")
C_FOLDER = FOLDER / "c"
HEADERS = sorted(str(path) for path in C_FOLDER.glob("*.h"))

X86 = platform.machine().lower() in {"x86_64", "amd64"}

# level -> flags (GCC and Clang) of its file; on other machines these levels compile to "not available"
ISA_FLAGS = {
    "generic": [],
    "neon": [],  # every 64-bit ARM has it
    "avx2": ["-mavx2", "-mfma"],
    "avx512": ["-mavx512f", "-mavx512bw", "-mavx512dq", "-mavx512vl", "-mfma", "-mprefer-vector-width=512"],
}
ISA_FLAGS["avx2vnni"] = [*ISA_FLAGS["avx2"], "-mavxvnni"]
ISA_FLAGS["avx512vnni"] = [*ISA_FLAGS["avx512"], "-mavx512vnni"]
ISA_FLAGS["avx512bf16"] = [*ISA_FLAGS["avx512"], "-mavx512bf16"]
ISA_FLAGS["amx"] = [*ISA_FLAGS["avx512bf16"], "-mamx-tile", "-mamx-bf16"]

# Contraction is off because a product and a sum must round the same way wherever they stand;
# where a fused multiply-add is wanted, the vector layer says so.
# Of what a build is to have of debug information, CFLAGS of distributions decide; else there is none.
DEBUG_FLAGS = [] if "-g" in os.environ.get("CFLAGS", "").split() else ["-g0"]
COMMON_FLAGS = ["-O3", "-std=c11", "-ffp-contract=off", *DEBUG_FLAGS]
CYTHON_FLAGS = ["-O1", *DEBUG_FLAGS]  # thin code, where -O3 -g would be most of the build
NEEDS = (
    "zenith-ae needs a C compiler, GCC or Clang: install one (Debian and Ubuntu: apt install gcc; Fedora: "
    "dnf install gcc; macOS: xcode-select --install; on Windows use WSL) and try again"
)
NEEDS_HEADERS = (
    "zenith-ae needs Python's headers, where Python.h is: install them (Debian and Ubuntu: apt install "
    "python3-dev; Fedora: dnf install python3-devel) and try again"
)
SANITIZER_FLAGS = ["-fsanitize=address,undefined", "-fno-sanitize-recover", "-g", "-O1"]


def enabled(variable: str) -> bool:
    return os.environ.get(variable, "0").lower() not in {"", "0", "no", "off", "false"}


def isa_flags(source: Path) -> list[list[str]]:
    """Compiler flags of ``level_<isa>.c``, those to try first first; of any other file, none."""
    flags = ISA_FLAGS.get(source.stem.removeprefix("level_"), [])
    plain = [flags] if flags and X86 else []
    if flags and sys.platform == "darwin":
        # A universal build compiles for both CPUs in the same command; GCC does not know this option.
        of_x86 = [part for flag in flags for part in ("-Xarch_x86_64", flag)]
        return [[*of_x86, "-Wno-unused-command-line-argument"], *plain]
    return plain


def own_c_flags() -> list[str]:
    flags = list(COMMON_FLAGS)
    if enabled("ZENITH_WERROR"):
        flags += ["-Wall", "-Wextra", "-Werror"]
    if enabled("ZENITH_SANITIZE"):
        flags += SANITIZER_FLAGS
    return flags


class BuildKernels(build_ext):
    """build_ext that compiles the C files first, each with its own flags."""

    def build_extensions(self) -> None:
        if sys.platform == "win32" or not self.knows([]):
            raise SystemExit(NEEDS)
        if not self.knows([], "#include <Python.h>\n"):
            raise SystemExit(NEEDS_HEADERS)
        sources = sorted({source for extension in self.extensions for source in extension.c_files})
        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        with ThreadPoolExecutor(min(cpus, 4)) as pool:  # a level takes 300 MB
            objects = dict(zip(sources, pool.map(self.compile_c_file, sources), strict=True))
        for extension in self.extensions:
            extension.extra_objects = [o for source in extension.c_files for o in objects[source]]
        super().build_extensions()

    def compile_c_file(self, source: Path) -> list[str]:
        choices = isa_flags(source)
        for flags in choices:
            if self.knows(flags):
                return self.compile_with(source, flags)
        if choices:
            if enabled("ZENITH_WERROR"):
                raise SystemExit(f"{source.name}: the compiler does not know {' '.join(choices[-1])}")
            # A compiler older than the instructions: the file is an empty table without them.
            print(f"warning: {source.name} without {' '.join(choices[-1])}", file=sys.stderr)
        return self.compile_with(source, [])

    def knows(self, flags: list[str], text: str = "int zn_empty;\n") -> bool:
        """Whether there is a compiler that takes these flags, and a file of this text."""
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "source.c")
            source.write_text(text)
            try:
                self.compiler.compile([str(source)], output_dir=folder, extra_postargs=flags)
            except Exception:  # CompileError lies elsewhere in every version of setuptools
                return False
        return True

    def compile_with(self, source: Path, flags: list[str]) -> list[str]:
        return self.compiler.compile(
            [str(source)],
            output_dir=self.build_temp,
            include_dirs=[str(C_FOLDER)],
            extra_postargs=own_c_flags() + flags,
            depends=HEADERS,
        )


def extension(name: str, c_files: list[Path]) -> Extension:
    sanitize = SANITIZER_FLAGS if enabled("ZENITH_SANITIZE") else []
    flags = [*CYTHON_FLAGS, *sanitize]
    made = Extension(
        f"zenith_ae._kernels.{name}",
        [str(FOLDER / f"{name}.pyx")],
        include_dirs=[str(C_FOLDER)],
        depends=HEADERS + [str(path) for path in c_files],
        libraries=["m"],
        extra_compile_args=flags,
        extra_link_args=["-pthread", *sanitize],
    )
    made.c_files = c_files
    return made


kernels = [*sorted(C_FOLDER.glob("level_*.c")), C_FOLDER / "dispatch.c"]
extensions = [
    extension("_ops", kernels),
    extension("_plan", [C_FOLDER / "plan.c", C_FOLDER / "threads.c"]),
    extension("_pixels", []),
]

modules = cythonize(
    extensions,
    build_dir="build/cython",
    include_path=[str(FOLDER)],  # for *.pxd
    language_level=3,
    compiler_directives={"embedsignature": True},
)
for module, declared in zip(modules, extensions, strict=True):
    module.c_files = declared.c_files

setup(
    packages=[
        *find_packages(include=["zenith_ae", "zenith_ae.*"]),
        "zenith_ae.app",  # from app/, and so on: see package-dir in pyproject.toml
        "zenith_ae._kernels",
        "zenith_ae._weights",
        "zenith_ae._examples",
    ],
    ext_modules=modules,
    cmdclass={"build_ext": BuildKernels},
)
