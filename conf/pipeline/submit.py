"""The entry for spark-submit: ``spark-submit --master URL conf/pipeline/submit.py JOB.yaml``.

What spark-submit says (master, memory, packages) goes before what the job file says under ``spark``.
"""

import sys

from rmq.cli.rmq import main

sys.argv[1:1] = ["pipeline", "run"]
main()
