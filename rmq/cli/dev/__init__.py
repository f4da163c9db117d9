"""``rmq dev``: a cluster on this machine for trying things out."""
