"""Nobody remembers which counters a client has used."""

from edgepanda.coordinator.book import Book

Book.counter = lambda self, key: (0, 0)  # type: ignore[method-assign]
