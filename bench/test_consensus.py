#!/usr/bin/env python3
"""The laboratory without servers: which cells there are, when they run, what is kept, and what follows from them."""

import pathlib
import tempfile
import unittest

from consensus import analysis, cells, figures, page, schedule
from consensus.journal import Journal
from consensus.results import Results


def result(mean_ms, **more):
    latency = {"mean": mean_ms * 1e3, "p50": mean_ms * 1e3, "p99": mean_ms * 2e3, "count": 100}
    requests = {"until_held": 2.0, "in_all": 3.0}
    return {"busy": 0.1, "latency_us": {"acquire": latency, "handover": latency}, "requests": requests, **more}


class Cells(unittest.TestCase):
    def test_the_grid_has_every_round_trip_load_and_primitive(self):
        made = cells.cells(cells.Size(False), ["grid"], ["stoa"], [3])
        # From near twice, and more often where there are few visits.
        self.assertEqual(len(made), (4 * 5 + 2 * (8 + 4 * 2)) * 8)
        self.assertEqual(len({cell.whole for cell in made}), 6 * 5 * 8)
        self.assertEqual(len(set(cell.key for cell in made)), len(made))
        self.assertEqual({cells.offered_load(cell) for cell in made}, {0.05, 0.2, 0.4, 0.6, 0.8})
        self.assertEqual({cell.server_rtt for cell in made}, {0})
        # The same visits for all primitives of a place.
        settings = {tuple(o for o in cell.options if o[0] != "primitive") for cell in made if cell.client_rtt == 50}
        self.assertEqual(len(settings), 5)

    def test_only_ensembles_have_distances_between_servers_and_only_stoa_has_extensions(self):
        made = cells.cells(cells.Size(False), ["heat"], ["zookeeper"], [1, 5])
        self.assertEqual({cell.server_rtt for cell in made if cell.servers == 1}, {0})
        self.assertEqual({cell.server_rtt for cell in made if cell.servers == 5}, set(cells.ROUND_TRIPS))
        self.assertNotIn(cells.EXTENSION, {cell.primitive for cell in made})
        self.assertIn(cells.ADAPTIVE, {cell.primitive for cell in made})

    def test_more_than_the_lock_can_give_takes_as_long_as_its_turns(self):
        cell = cells.of_part("contention", cells.Size(False), "stoa", 3, 0)[-1]
        self.assertEqual((cell.client_rtt, cell.settings["service-ms"]), (100, 175))
        self.assertGreater(cells.expected_seconds(cell), 60 * 0.275)
        self.assertLess(cells.expected_seconds(cell), 60 * 0.275 + 10)


class Schedules(unittest.TestCase):
    def far(self, count, visits=100):
        load = cells.Load(500, 1, visits)
        options = load.options("sync-queue", 50)
        return [cells.Cell("heat", "stoa", 3, 0, 50 + number, "lock", options) for number in range(count)]

    def test_a_service_that_has_rested_is_measured_once_and_alone(self):
        made = cells.cells(cells.Size(False), ["rested"], ["stoa"], [1, 3])
        self.assertEqual([(cell.servers, cell.server_rtt, cell.client_rtt) for cell in made], [(1, 0, 0), (3, 0, 0)])
        order = schedule.Schedule(made)
        order.next()
        self.assertIsNone(order.next())
        self.assertGreater(cells.expected_seconds(made[0]), 4 * 60 * 0.1)

    def test_cells_that_ask_little_run_together(self):
        order = schedule.Schedule(self.far(5))
        self.assertEqual([order.next() is None for _ in range(6)], [False] * 5 + [True])
        self.assertLess(schedule.seconds(self.far(20)), 1.2 * schedule.seconds(self.far(1)))

    def test_no_more_run_than_servers_are_to_be_asked(self):
        polls = cells.Load(300, 90, 1000).options("async-tas", 100)
        busy = [cells.Cell("grid", "stoa", 3, 0, 100 + number, "lock", polls) for number in range(40)]
        order = schedule.Schedule(busy)
        first = order.next()
        while order.next():
            pass
        asked = sum(map(cells.requests_per_second, order.running))
        self.assertLessEqual(asked, schedule.FAR_PER_SECOND["stoa"])
        self.assertGreater(len(order.pending), 0)
        order.done(first)
        self.assertIsNotNone(order.next())

    def test_what_is_near_runs_alone_and_before_what_is_far(self):
        near = cells.Cell("grid", "stoa", 3, 0, 0, "lock", cells.Load(15, 10, 100).options("sync-tas", 0))
        order = schedule.Schedule([*self.far(2), near])
        self.assertEqual(order.next(), near)
        self.assertIsNone(order.next())
        order.done(near)
        self.assertEqual([order.next() is None for _ in range(3)], [False, False, True])


class Journals(unittest.TestCase):
    def test_a_run_goes_on_where_it_was_stopped(self):
        wanted = cells.cells(cells.Size(True), ["heat"], ["stoa"], [1])
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "journal")
            first = Journal(path)
            first.note(wanted[0], {"a": 1})
            # Half a line, as of a run that was killed.
            with path.open("a") as file:
                file.write('{"cell": "x", "res')
            second = Journal(path)
            self.assertEqual(second.result(wanted[0]), {"a": 1})
            self.assertIsNone(second.result(wanted[1]))
            second.note(wanted[1], {"b": 2})
            second.begin({"cpu": "one"})
            third = Journal(path)
            self.assertEqual((third.result(wanted[0]), third.result(wanted[1])), ({"a": 1}, {"b": 2}))
            self.assertEqual(third.sessions, [{"cpu": "one"}])


class Analysis(unittest.TestCase):
    GRID = {
        (1, 0.05): {"sync-queue": 2.0, "extension": 1.0, "adaptive": 1.05},
        (1, 0.8): {"sync-queue": 10.0, "extension": 5.0, "adaptive": 5.6},
        (100, 0.05): {"sync-queue": 200.0, "extension": 100.0, "adaptive": 100.0},
        (100, 0.8): {"sync-queue": 900.0, "extension": 300.0, "adaptive": 420.0},
    }

    def test_the_adaptive_lock_is_held_against_the_best_fixed_one(self):
        ratios = analysis.adaptive_ratios(self.GRID)
        self.assertAlmostEqual(ratios[100, 0.8], 1.4)
        verdict = analysis.adaptive_verdict(ratios)
        self.assertEqual((verdict["near"], verdict["cells"], verdict["is_met"]), (2, 4, False))
        self.assertTrue(analysis.adaptive_verdict({place: 1.09 for place in range(9)} | {9: 1.29})["is_met"])
        self.assertFalse(analysis.adaptive_verdict({place: 1.0 for place in range(9)} | {9: 1.31})["is_met"])

    def test_quadrants_are_what_was_measured_in_them(self):
        ranked = analysis.quadrant(self.GRID, "high", "high")
        self.assertEqual([name for name, _ in ranked], ["extension", "adaptive", "sync-queue"])
        self.assertAlmostEqual(dict(ranked)["sync-queue"], 3)
        summary = analysis.summary(self.GRID)
        self.assertEqual(len(summary), 4)
        self.assertEqual(summary[3][1], "extension; sync-queue takes 3.0 times as long; the adaptive one 1.40 times")
        # Without extensions there is only the queue.
        self.assertEqual(summary[3][2], "all alike")

    def test_models_are_held_against_measurements(self):
        verdict = analysis.model_verdict([(100, 100), (114, 100), (130, 100), (86, 100), (100, 100)])
        self.assertEqual((verdict["near"], verdict["cells"], verdict["is_met"]), (4, 5, True))
        self.assertAlmostEqual(verdict["worst"], 0.3)

    def test_distributions_are_told_apart(self):
        even = [index / 1000 for index in range(1000)]
        found = analysis.distances(even)
        self.assertLess(found["uniform"], 0.01)
        self.assertLess(found["uniform"], min(found["normal"], found["exponential"]))


class Reports(unittest.TestCase):
    def test_what_is_measured_in_several_turns_is_the_mean_of_those_that_there_are(self):
        wanted = [cells.Cell("grid", "stoa", 3, 0, 0, "lock", turn=turn) for turn in range(3)]
        with tempfile.TemporaryDirectory() as folder:
            journal = Journal(pathlib.Path(folder, "journal"))
            for cell, mean, chosen in zip(wanted, [1, 2, 6], [{"a": 3}, {"a": 1, "b": 2}, {"a": 2}]):
                journal.note(cell, result(mean, primitives=chosen))
            results = Results(wanted, Journal(journal.path))
            self.assertEqual((results.missing, len(results.turns)), (0, 3))
            ((cell, whole),) = results.measured
            results = Results([*wanted, cells.Cell("grid", "stoa", 3, 0, 0, "lock", turn=3)], journal)
            self.assertEqual((results.missing, results.measured), (1, [(cell, whole)]))
        self.assertEqual((cell, whole["latency_us"]["acquire"]["mean"]), (wanted[0], 3000))
        self.assertEqual(whole["primitives"], {"a": 2, "b": 2})

    def test_a_report_of_a_part_of_the_cells_says_what_is_missing_and_stands_alone(self):
        wanted = cells.cells(cells.Size(True), ["heat", "contention", "distance", "grid"], ["stoa"], [3])
        with tempfile.TemporaryDirectory() as folder:
            journal = Journal(pathlib.Path(folder, "journal"))
            missing = next(cell for cell in wanted if cell.part == "grid" and cell.client_rtt == 50)
            for number, cell in enumerate(cell for cell in wanted if cell != missing):
                journal.note(cell, result(10 + number))
            results = Results(wanted, journal)
            # The models are another program.
            results.models_section = lambda: []
            self.assertEqual(results.missing, 1)
            sections = results.all()
        titles = " ".join(section.title for section in sections)
        for figure in ["Figure 10", "Figures 13 and 14", "Figures 15 and 16", "four quadrants"]:
            self.assertIn(figure, titles)
        # The place that lacks one of its primitives is not in the grid.
        (grid,) = [section for section in sections if "four quadrants" in section.title]
        self.assertEqual(len(grid.tables[0].rows), 3)
        text = page.as_html("a <title>", sections)
        self.assertIn("a &lt;title&gt;", text)
        self.assertNotIn("<script", text)
        self.assertNotIn("src=", text)
        self.assertEqual(text.count("<svg"), text.count("</svg>"))
        self.assertIn("| 0 ms, load 0.2 |", page.as_markdown("x", sections))

    def test_heat_maps_have_a_field_for_each_value(self):
        svg = figures.heat_svg("x", "a", "b", {(0, 0): 1.0, (0, 50): 2.0, (50, 0): 3.0})
        self.assertEqual(svg.count("<rect"), 4)
        self.assertIn(">2<", svg)


if __name__ == "__main__":
    unittest.main()
