"""What keeps a served store well: retention, the scrub, damage, and disks that are full or forbidding."""
