"""``python -m zenith_ae`` is the command ``zenith-ae``."""

import sys

from .errors import why_no_kernels

try:
    from .app.cli import main
except ImportError as error:
    if (error.name or "").startswith("zenith_ae.app"):
        sys.exit(f"zenith-ae: {why_no_kernels(error)}")
    raise

if __name__ == "__main__":
    main()
