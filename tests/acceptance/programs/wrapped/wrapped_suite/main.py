"""The entry point of the .pex: `-r FILE -t NAME`; the name holds which topology is meant."""

from __future__ import annotations

import argparse
import sys

from wrapped_suite.topologies import TOPOLOGIES


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("-r", "--result", required=True)
    parser.add_argument("-t", "--topology-name", required=True)
    args, unknown = parser.parse_known_args()
    if unknown:
        sys.exit(f"unknown argument {unknown[0]}")
    _, which, _ = args.topology_name.split("_")
    TOPOLOGIES[which](args.topology_name, args.result).write()


if __name__ == "__main__":
    main()
