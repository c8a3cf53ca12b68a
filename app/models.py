"""The models of the page and of the server, loaded once."""

from __future__ import annotations

import threading
from typing import Any

#: Working memory that a model keeps for its next picture while others are in use.
KEPT_BYTES = 2**27


class Models:
    """Models that come with the package, by name. Safe to call from several threads."""

    def __init__(self, threads: int | None = None) -> None:
        self._threads = threads
        self._loaded: dict[str, Any] = {}
        self._lock = threading.Lock()

    def get(self, name: str) -> Any:
        """A model, loaded at its first use. Others give back what memory large pictures took."""
        from zenith_ae.pipelines import load

        with self._lock:  # several jobs may be the first to ask
            if name not in self._loaded:
                self._loaded[name] = load(name, threads=self._threads)
            for other, model in self._loaded.items():
                if other != name and model.engine.stats()["arena_bytes"] > KEPT_BYTES:
                    model.engine.release()
            return self._loaded[name]
