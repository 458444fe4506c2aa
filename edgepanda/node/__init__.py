"""The node: says what this machine can do, claims work, drives hardware through driver hosts, reports with evidence."""
