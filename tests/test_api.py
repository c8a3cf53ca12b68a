import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import zenith_ae
from zenith_ae import errors


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


def test_the_package_runs_as_a_module():
    done = subprocess.run(
        [sys.executable, "-m", "zenith_ae", "--version"], capture_output=True, text=True, check=True
    )
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
    ["import zenith_ae; zenith_ae.load('zenith-denoise')", "import runpy; runpy.run_module('zenith_ae')"],
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
