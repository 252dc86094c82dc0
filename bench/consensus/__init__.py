"""The parts of bench/consensus-cost.py."""
