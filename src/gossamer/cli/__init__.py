"""The `gossamer` command: thin over the functions of the other packages."""
