"""Serves programs that were written for other systems. The modules of these systems in the folder above are stand-ins:
programs import the stand-ins, and the modules here serve the programs.

Only a child process of the server, or the command of another system, has this package on its path.
"""

STYLES = ("ssf", "mosec", "octoai")
"""The modules with a function `find`, in the order in which they are asked whether a program is theirs."""
