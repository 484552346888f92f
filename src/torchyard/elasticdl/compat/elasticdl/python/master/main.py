"""`python -m elasticdl.python.master.main`: the command of the master pod, as every ElasticDL client sets it."""

import sys

from torchyard.elasticdl.supervisor import main

if __name__ == "__main__":
    sys.exit(main())
