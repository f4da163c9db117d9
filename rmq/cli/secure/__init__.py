"""``rmq secure``: makes what a secured cluster needs, renews its certificates, and says what is open."""
