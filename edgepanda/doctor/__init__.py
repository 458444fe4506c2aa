"""What `edgepanda doctor` looks at: one file for each area, which reads the machine and judges what was read.

`read` functions do the reading, and never raise for what a machine may lack; `judge` functions are pure: facts in,
findings out. `examine.py` runs all of them at once, each within a time of its own.
"""
