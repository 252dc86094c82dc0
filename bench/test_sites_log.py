#!/usr/bin/env python3
"""What becomes of the turns in which a log is written, without servers."""

import argparse
import unittest

import log_report
import sites_log


def turn(acquired, site="california", entries=10, ms=400):
    """A turn of which a quarter goes by until there is a ledger, and which then takes 30 ms and 20 ms."""
    ready, written = acquired + ms / 4, acquired + ms
    times = {"acquired": acquired, "ready": ready, "written": written, "recorded": written + 30, "released": written + 50}
    return {"turn_ms": ms, "site": site, "entries": entries, **times}


def rounds(count, ms=400, **more):
    """So many rounds of the four writers, and the turn that ends the last one."""
    sites = sites_log.WRITERS * count + sites_log.WRITERS[:1]
    return [turn(number * 1000, site, ms=ms, **more) for number, site in enumerate(sites)]


def run(made):
    """A run in which the kinds have written so many entries in each turn of 400 ms."""
    args = argparse.Namespace(kinds=list(made), quick=False, alternations=1, folders=None)
    run = sites_log.Run(args)
    run.size.lengths_ms = [400]
    for kind, entries in made.items():
        run.keep(kind, rounds(2, entries=entries))
    return run


class Turns(unittest.TestCase):
    def test_the_first_round_and_the_turn_behind_the_last_do_not_count(self):
        turns = rounds(3)
        for other in [*turns[:4], turns[-1]]:
            other["entries"] = 1_000_000
        made = log_report.figures(turns, 4)
        self.assertEqual(made["entries/s"], 10)
        self.assertEqual(made["entries a turn, frankfurt"], 10)

    def test_time_that_passes_without_entries_is_no_time_in_which_they_are_written(self):
        turns = rounds(2)
        self.assertAlmostEqual(log_report.figures(turns, 4)["share of the time"], 0.3)
        # Nobody has written a thing in half of the turns.
        for other in turns[4:6]:
            other["entries"] = 0
        self.assertAlmostEqual(log_report.figures(turns, 4)["share of the time"], 0.15)

    def test_the_way_of_the_lock_is_that_to_the_site_that_gets_it(self):
        turns = rounds(2)
        # The turn in Frankfurt is the last of a round.
        turns[7]["acquired"] += 90
        made = log_report.figures(turns, 4)
        self.assertEqual(made["until the lock is there, frankfurt, ms"], 1000 - 430 + 90)
        self.assertEqual(made["until the lock is there, california, ms"], 1000 - 430)
        self.assertEqual(made["until its end is recorded, california, ms"], 30)

    def test_turns_that_are_no_whole_rounds_are_refused(self):
        for turns in [rounds(2)[:-1], rounds(1)]:
            with self.assertRaises(ValueError):
                log_report.figures(turns, 4)

    def test_as_many_turns_are_asked_for_as_are_counted(self):
        for ms in sites_log.LENGTHS_MS:
            count = sites_log.turns_of(ms, 24)
            self.assertEqual(count % len(sites_log.WRITERS), 1)
            # Whole rounds, at least two of them, and about as long as wanted.
            counted = count - 1 - len(sites_log.WRITERS)
            self.assertGreaterEqual(counted, 2 * len(sites_log.WRITERS))
            self.assertGreaterEqual(counted * (ms + sites_log.BETWEEN_MS), 24_000)


class Report(unittest.TestCase):
    def test_what_is_less_than_wanted_is_short(self):
        of = run({"zko": 10, "consecutive": 15, "expected": 21})
        rows = log_report.Results(of, sites_log.LOG_KINDS).wanted().split("\n")[2:]
        self.assertEqual(
            rows,
            [
                "| consecutive: entries over zko, turns of 0.4 s | 1.45x | 1.50x | reached |",
                "| expected: entries over zko, turns of 0.4 s | 2.2x | 2.10x | **short** |",
            ],
        )

    def test_where_others_write_nothing_there_is_no_ratio(self):
        of = run({"zko": 0, "expected": 21})
        results = log_report.Results(of, sites_log.LOG_KINDS)
        self.assertIn("| 0.4 s | no entry there |", results.ratios())
        self.assertNotIn("2.2x", results.wanted())

    def test_a_kind_that_was_not_measured_is_held_against_nothing(self):
        results = log_report.Results(run({"consecutive": 3}), sites_log.LOG_KINDS)
        self.assertNotIn("1.45x", results.wanted())
        self.assertEqual(results.ratios(), "")


if __name__ == "__main__":
    unittest.main()
