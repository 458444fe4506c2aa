"""EdgePanda: durable work for small machines."""

__version__ = "0.1.0"
