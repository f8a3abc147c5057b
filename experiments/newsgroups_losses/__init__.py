"""The losses on 20 Newsgroups, divided at random."""
