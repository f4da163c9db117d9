"""What users say to the source and the sink: the tables of options, their values, and what does not fit together."""
