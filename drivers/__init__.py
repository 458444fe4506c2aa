"""The driver contract, the host process, and one file per kind of hardware."""
