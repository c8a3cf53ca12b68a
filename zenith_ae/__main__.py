"""``python -m zenith_ae`` and the command ``zenith-ae``, which it is."""

import sys

from .errors import why_no_kernels


def main() -> None:
    """Run the command line, see `zenith_ae.app.cli`, which takes a moment to load."""
    try:
        from .app.cli import main as command
    except KeyboardInterrupt:
        print("zenith-ae: interrupted", file=sys.stderr)
        sys.exit(130)
    except ImportError as error:
        if (error.name or "").startswith("zenith_ae.app"):
            sys.exit(f"zenith-ae: {why_no_kernels(error)}")
        raise
    command()


if __name__ == "__main__":
    main()
