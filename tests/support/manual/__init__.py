"""The pages of docs/mqadmin are run: their commands, as they stand there, against clusters in virtual time.

``python -m tests.support.manual`` writes what was printed into the pages, and the options that commands have.
"""
