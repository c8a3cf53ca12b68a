import io
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import zenith_ae
from zenith_ae import errors
from zenith_ae.errors import why_no_kernels


def python(code, *arguments):
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )


def test_every_public_name_is_there():
    for name in zenith_ae.__all__:
        assert getattr(zenith_ae, name) is not None
        assert name in dir(zenith_ae)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        zenith_ae.nonsense  # noqa: B018


def test_version_is_that_of_the_installed_package():
    from importlib.metadata import version

    assert version("zenith-ae") == zenith_ae.__version__


def test_errors_are_also_what_python_expects():
    for error, builtin in {
        errors.ImageError: ValueError,
        errors.LatentError: ValueError,
        errors.WeightsError: ValueError,
        errors.OutputError: OSError,
        errors.MissingDependencyError: ImportError,
    }.items():
        assert issubclass(error, zenith_ae.ZenithError)
        assert issubclass(error, builtin)


def test_isa_levels_start_with_generic():
    levels = zenith_ae.available_isas()
    assert levels[0] == "generic"


def test_the_package_runs_as_a_module(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "zenith_ae", "--version"],
        capture_output=True, text=True, check=True, cwd=tmp_path,
    )  # fmt: skip
    assert zenith_ae.__version__ in done.stdout


def test_importing_the_package_imports_nothing_heavy():
    done = python("import sys, zenith_ae; print([m for m in ('numpy', 'PIL', 'torch') if m in sys.modules])")
    assert done.stdout.strip() == "[]", done.stderr


def test_the_cpu_path_never_imports_torch(sigma_denoiser, identity_autoencoder):
    done = python(
        "import sys, numpy as np, zenith_ae\n"
        "picture = np.zeros((9, 9, 3), np.uint8)\n"
        "zenith_ae.load(sys.argv[1])(picture)\n"
        "zenith_ae.load(sys.argv[2]).roundtrip(picture)\n"
        "print('torch' in sys.modules)",
        str(sigma_denoiser),
        str(identity_autoencoder),
    )
    assert done.stdout.strip() == "False", done.stderr


def test_threads_default_to_the_environment(sigma_denoiser, monkeypatch):
    monkeypatch.setenv("ZENITH_NUM_THREADS", "3")
    assert zenith_ae.load(sigma_denoiser).engine.threads == 3
    assert zenith_ae.load(sigma_denoiser, threads=1).engine.threads == 1


@pytest.mark.parametrize(
    "code",
    [
        "import zenith_ae; zenith_ae.load('zenith-denoise')",
        "import runpy; runpy.run_module('zenith_ae', run_name='__main__')",
    ],
)
def test_a_source_folder_that_hides_the_package_says_so(code, tmp_path):
    root = Path(__file__).parents[1]
    shutil.copytree(root / "zenith_ae", tmp_path / "zenith_ae", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(root / "pyproject.toml", tmp_path)
    weights = root / "weights" / "zenith-denoise.safetensors"
    code = code.replace("zenith-denoise", weights.as_posix())
    # Without the hook of an editable install, which finds the compiled modules all the same.
    hookless = "import sys; sys.meta_path = [m for m in sys.meta_path if 'editable' not in repr(m).lower()]; "
    done = subprocess.run(
        [sys.executable, "-c", hookless + code], cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "pip install -e ." in done.stderr.strip().splitlines()[-1]


def test_kernels_of_another_version_are_no_wrong_folder():
    error = ImportError("cannot import name 'x'", name="zenith_ae._kernels._plan", path="/x/_plan.so")
    assert "of another version (cannot import name 'x')" in why_no_kernels(error)


def test_wrong_arguments_are_value_errors(sigma_denoiser, tmp_path):
    picture = np.zeros((8, 8, 3), np.uint8)
    file = tmp_path / "a.png"
    zenith_ae.write_picture(picture, file)
    for wrong in (io.BytesIO(), 3, b"x.png"):
        with pytest.raises(ValueError, match="a path is text or a pathlib"):
            zenith_ae.write_picture(picture, wrong)
    latents = zenith_ae.LatentFile(np.zeros((1, 4, 1, 1), np.float32), "m", "h", 8, 8, "RGB")
    for call in (lambda: zenith_ae.read_latents(3), lambda: zenith_ae.write_latents(3, latents)):
        with pytest.raises(ValueError, match="not int"):
            call()
    for call in (lambda: zenith_ae.read_latents(""), lambda: zenith_ae.write_latents("", latents),
                 lambda: zenith_ae.write_picture(picture, "")):  # fmt: skip
        with pytest.raises(ValueError, match="the path is empty"):
            call()
    with pytest.raises(ValueError, match="dtype must be"):
        zenith_ae.write_latents(tmp_path / "z", latents, dtype=["fp16"])
    zenith_ae.write_picture(picture, tmp_path / "b.jpg", quality=np.int64(90))
    (tmp_path / "b.jpg").unlink()
    for wrong in ("90", 90.5, 90.0, True, 0, 101):
        with pytest.raises(ValueError, match="quality must be a whole number from 1 to 100"):
            zenith_ae.write_picture(picture, tmp_path / "a.jpg", quality=wrong)
    for wrong in ("10", 0, -5, 1.5, True):
        with pytest.raises(ValueError, match="max_pixels must be a whole number of at least 1"):
            zenith_ae.read_picture(file, max_pixels=wrong)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.png"]
    torch = pytest.importorskip("torch", reason="torch is not installed")
    dn = zenith_ae.load(sigma_denoiser)
    for wrong in (torch.rand(3, 8, 8).to_sparse(), torch.rand(3, 8, 8, device="meta")):
        with pytest.raises(zenith_ae.ImageError, match="must be dense, with values"):
            dn(wrong)
