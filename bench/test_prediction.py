#!/usr/bin/env python3
"""The model against cases whose answer is plain."""

import unittest

from prediction import Costs, Line, Load, throughput


class Model(unittest.TestCase):
    def about(self, value, expected):
        self.assertLess(abs(value / expected - 1), 0.03, f"{value:.0f} instead of {expected:.0f}")

    def test_reads_that_stay_scale_with_cores(self):
        for cores in [1, 2, 8]:
            value = throughput(Costs(0.5, 0, 0), Load(32 * cores, 64, "kept"), cores, cores)
            self.about(value, cores * 2e6)

    def test_a_partition_has_one_thread(self):
        self.about(throughput(Costs(0.5, 0, 0), Load(32, 64, "kept"), 1, 4), 2e6)
        self.about(throughput(Costs(0.5, 0, 0), Load(64, 64, "kept"), 4, 2), 4e6)

    def test_handing_over_costs_the_difference_where_it_happens(self):
        costs = Costs(0.5, 0.5, 0)
        self.about(throughput(costs, Load(128, 64, "apart"), 4, 4), 4e6)
        # A quarter stays.
        self.about(throughput(costs, Load(128, 64, "spread"), 4, 4), 4 / (0.5 + 0.5 * 0.75) * 1e6)

    def test_the_generator_takes_its_share(self):
        self.about(throughput(Costs(0.5, 0, 0.25), Load(64, 64, "kept"), 2, 2, True), 2 / 0.75 * 1e6)
        # It has one thread.
        self.about(throughput(Costs(0.1, 0, 1.0), Load(64, 64, "kept"), 2, 2, True), 1e6)

    def test_writes_wait_for_the_log(self):
        # A session alone: half of its cost, the batch, the other half.
        slow = Costs(1.0, 0, 0, Line(10, 0), Line(300, 0), 1000)
        self.about(throughput(slow, Load(1, 1, "kept"), 1, 2), 1e6 / 301)
        # As much as a batch can have, one after the other.
        self.about(throughput(slow, Load(512, 64, "kept"), 16, 16), 960 / 300 * 1e6)
        # On one core the log's time is the partition's loss.
        costs = Costs(1.0, 0, 0, Line(0, 0.5), Line(0, 0.5), 10_000)
        self.about(throughput(costs, Load(64, 64, "kept"), 1, 1), 1e6 / 1.5)

    def test_a_line_goes_through_its_points(self):
        line = Line.through((1, 300.0), (501, 800.0))
        self.assertEqual((line.fixed, line.each, line.at(11)), (299.0, 1.0, 310.0))


if __name__ == "__main__":
    unittest.main()
