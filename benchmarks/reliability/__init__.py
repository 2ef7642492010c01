"""The parts of `benchmarks/campaign.py`: kills and resumes, faults, hostile actions, load, and memory over time."""
