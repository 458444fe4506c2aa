"""Plants one fault into the processes of a run, from outside: this folder is on their PYTHONPATH, and Python imports a
module of this name at each start. The code of EdgePanda has no switch. `EDGEPANDA_PLANTED` names the file to run.
"""

import os
import runpy
import sys
from pathlib import Path

if set(sys.orig_argv) & {"node", "coordinator"} and os.environ.get("EDGEPANDA_PLANTED"):
    runpy.run_path(str(Path(__file__).with_name(os.environ["EDGEPANDA_PLANTED"] + ".py")))
