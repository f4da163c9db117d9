"""From records to Arrow columns, without a loop over records."""
