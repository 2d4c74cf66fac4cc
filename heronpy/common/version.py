"""The version of the source tree, and its path. The module imports nothing, because `import heronpy` reads it. Pure."""

VERSION = "0.1.0"
#: The path of this file, from which `heronpy`, `stmgr` and `instance` are found; it may be relative.
FILE = __file__
