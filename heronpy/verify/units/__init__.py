"""Work units under faults: seeded logs that rotate, processes that end at selected steps, and a judge of the table."""
