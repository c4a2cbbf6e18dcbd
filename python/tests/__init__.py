"""Tests of the package: /usr/bin/python3 -m unittest discover -t . -s tests, or go test ./python."""
