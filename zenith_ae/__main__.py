"""``python -m zenith_ae`` is the command ``zenith-ae``."""

from .app.cli import main

if __name__ == "__main__":
    main()
