"""The ops, one a file. They do not import each other; architectures' parts choose among them."""
