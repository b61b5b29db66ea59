"""`python -m edgequant`."""

from edgequant.cli import main

main()
