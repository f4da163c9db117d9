"""What the pieces of the hot path cost, variant beside variant: ``python -m benchmark.micro [SECTION ...]``.

Each figure is the least of several rounds over 256 different messages, on the thread's own CPU clock, the variants
taking turns, so that a busy machine spoils little; ratios inside a section are what counts. Variants of one section
must give equal results: that is checked before anything is timed.
"""
