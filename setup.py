"""Build the C kernels: name the cffi builder, compile each source with the flags of its file."""

import os
import runpy
import sys
import tempfile
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

BUILDER = "edgeinfer/kernels/native/build.py"
build = runpy.run_path(BUILDER)


class BuildKernels(build_ext):
    """Leave out what the compiler cannot do: one ISA, or the whole extension.

    An install without the native kernels is a failure only where EDGEINFER_REQUIRE_NATIVE=1 says
    so, or where they were asked for by name: `python setup.py build_ext -i`.
    """

    def build_extensions(self) -> None:
        try:
            if not self.compiles(build["PYTHON_PROBE"], []):
                raise RuntimeError("no working C compiler with the Python headers was found")
            super().build_extensions()
        except Exception as error:
            if os.environ.get("EDGEINFER_REQUIRE_NATIVE") == "1" or "build_ext" in sys.argv:
                raise
            self.extensions = []
            reason = str(error).splitlines()[0][:100]
            print(
                f"warning: built WITHOUT the native kernels, edgeinfer will be slow: {reason}\n"
                "warning: to have them, install a C compiler (Debian: apt-get install gcc "
                "libc6-dev python3-dev), then edgeinfer again",
                file=sys.stderr,
            )

    def build_extension(self, ext: Extension) -> None:
        sources = []
        for source in ext.sources:
            isa = build["isa_of"](source)
            if isa is None:
                sources.append(source)
            elif self.compiles(isa.probe, isa.flags):
                sources.append(source)
                if (isa.macro, "1") not in ext.define_macros:
                    ext.define_macros.append((isa.macro, "1"))
            else:
                print(f"edgeinfer: {source} left out: not for this compiler or CPU family")
        ext.sources = sources
        self.compile_in_parallel(ext)
        super().build_extension(ext)

    def compiles(self, program: str, flags: list[str]) -> bool:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder, "probe.c")
            source.write_text(program + "\n")
            try:
                self.compiler.compile(
                    [str(source)],
                    output_dir=folder,
                    include_dirs=self.compiler.include_dirs,
                    extra_postargs=build["FLAGS"] + flags,
                )
            except Exception:
                return False
            return True

    def compile_in_parallel(self, ext: Extension) -> None:
        """Replace the compiler's loop over sources by a pool that reuses what did not change."""
        compile_serially = self.compiler.compile

        def compile_one(source: str, output_dir: str, options: dict) -> str:
            isa = build["isa_of"](source)
            flags = build["FLAGS"] + (isa.flags if isa else [])
            key = repr((self.compiler.compiler_so, flags, sorted(options["macros"])))
            folder = Path(output_dir, f"{zlib.crc32(key.encode()):08x}")
            made = Path(self.compiler.object_filenames([source], output_dir=str(folder))[0])
            inputs = [source, BUILDER, "setup.py", *ext.depends]
            if self.force or is_stale(made, inputs):
                options = options | {"extra_postargs": flags}
                compile_serially([source], output_dir=str(folder), **options)
            return str(made)

        def compile_all(sources: list[str], output_dir: str, **options: object) -> list[str]:
            with ThreadPoolExecutor(os.cpu_count()) as pool:
                return list(pool.map(lambda s: compile_one(s, output_dir, options), sources))

        self.compiler.compile = compile_all


def is_stale(made: Path, inputs: list[str]) -> bool:
    return not made.exists() or any(made.stat().st_mtime <= os.stat(i).st_mtime for i in inputs)


setup(
    cffi_modules=[f"{BUILDER}:ffibuilder"],
    cmdclass={"build_ext": BuildKernels},
    options={"bdist_wheel": build["WHEEL_OPTIONS"]},
)
