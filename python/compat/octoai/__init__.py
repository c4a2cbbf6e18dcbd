"""Stand-in of Millrace for the package ``octoai``: services written for it run unchanged.

It has what services import: ``octoai.service`` and ``octoai.types``; ``octoai.client`` and
``octoai.errors`` for the programs that send them requests; ``octoai.server``, the command line.
See docs/migrating.md.
"""
