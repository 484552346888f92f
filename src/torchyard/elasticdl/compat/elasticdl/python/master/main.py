"""`python -m elasticdl.python.master.main`: what every ElasticDL client puts into the master pod."""

import sys

from torchyard.elasticdl.supervisor import main

if __name__ == "__main__":
    sys.exit(main())
