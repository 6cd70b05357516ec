"""Ends the pull that goes on for a deployment on this machine: end_pull.py KEEP"""

import sys

from docker_pull import BackgroundPull

BackgroundPull(sys.argv[1]).end()
