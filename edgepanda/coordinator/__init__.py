"""The coordinator: the ledger of all work, matching, leases, permits, requests. It runs no work and guesses nothing."""
