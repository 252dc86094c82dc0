#!/usr/bin/env python3
"""Sites and what is made of what they met, without servers."""

import argparse
import unittest
from unittest import mock

import faults_report
import site_ensembles
import sites
import sites_faults
import sites_report
import wide

KINDS = ["zk", "zko"]


def run(parts, made):
    """A run that has met this already: by part and title, what each kind met at each site."""
    args = argparse.Namespace(parts=parts, kinds=KINDS, quick=False, alternations=None, alone=True)
    run = sites.Run(args)
    for (part, title), by_kind in made.items():
        for kind, by_site in zip(KINDS, by_kind):
            run.keep(sites.Load(part, title, list(by_site), 1, []), kind, result(by_site))
    return run


def result(by_site):
    """What the generator reports of writes that take so many milliseconds."""
    met = {
        site: {
            "throughput": 1000 / ms,
            "latency_us": {"set": {"mean": ms * 1e3, "p50": ms * 1e3, "p99": ms * 1e3}},
            "local_writes": float(ms < 5),
            "write_ms_by_percent": [ms] * 101,
            "elapsed_s": 2.5,
            "parts": {"operations": [4, 0, 7]},
        }
        for site, ms in by_site.items()
    }
    return {"sites": met, "writes": 10, "server": {"cpu_us": 2000}}


class Sites(unittest.TestCase):
    def test_ways_are_half_a_round_trip_in_both_directions(self):
        self.assertEqual(wide.one_way_ms("virginia", "california"), 31)
        self.assertEqual(wide.one_way_ms("frankfurt", "virginia"), 45)
        self.assertEqual(wide.one_way_ms("frankfurt", "california"), 74)

    def test_each_kind_has_a_server_at_each_site(self):
        for kind in wide.KINDS.values():
            service = kind.make()
            self.addCleanup(service.__exit__)
            at = [service.at(site) for site in [wide.HUB, *wide.AWAY]]
            self.assertCountEqual(at, service.servers())
            self.assertEqual(service.at(wide.HUB).role, "participant")

    def test_loads_cover_what_the_parts_promise(self):
        loads = list(run(sites.PARTS, {}).loads())
        self.assertEqual({load.part for load in loads}, set(sites.PARTS) - {"tokens"})
        self.assertEqual(len({(load.part, load.title) for load in loads}), len(loads))
        # What reads much runs alone.
        alone = [load.title for load in loads if not load.waits]
        self.assertEqual(alone, ["0% writes", "5% writes", "10% writes", "many writes"])

    def test_records_are_prepared_for_each_site_of_a_load(self):
        of = run(["disjoint"], {})
        said = []
        origin = argparse.Namespace(host="127.0.0.1", port=1)
        with mock.patch.object(sites.measure, "reported", said.append), mock.patch.object(sites, "SPREAD_SECONDS", 0):
            of.prepare(wide.AWAY, [origin], ["--apart"])
        # Each has a directory of its own then.
        (command,) = said
        self.assertEqual([command[at + 1] for at, part in enumerate(command) if part == "--site"], [f"{site}=127.0.0.1:1" for site in wide.AWAY])

    def test_points_are_in_the_order_of_their_numbers(self):
        made = {("overlap", f"{share}% shared"): [{"california": 10}, {"california": 20}] for share in [100, 0, 25]}
        results = sites_report.Results(run(["overlap"], made), None)
        points = results.over("overlap, {}% shared, california: ops/s", "zko")
        self.assertEqual(points, [(0, 50), (25, 50), (100, 50)])

    def test_a_distribution_goes_through_the_writes_of_all_turns(self):
        load = ("ratio", "100% writes")
        of = run(["ratio"], {load: [{"california": 10}, {"california": 20}]})
        of.keep(sites.Load(*load, ["california"], 1, []), "zk", result({"california": 30}))
        points = sites_report.Results(of, None).distribution("100% writes", "zk")
        self.assertEqual(len(points), 202)
        self.assertEqual([points[0][0], points[100], points[-1]], [10, (10, 50), (30, 100)])

    def test_a_second_that_is_not_over_does_not_count(self):
        made = {("files", "hotspot, 10% shared"): [{"california": 10}, {"california": 20}]}
        results = sites_report.Results(run(["files"], made), None)
        self.assertEqual(results.over_time("hotspot, 10% shared", "zk", "california"), [(1, 4), (2, 0.1)])

    def test_local_writes_are_a_table_only_where_there_are_some(self):
        for ms, begin in [(62, "No write"), (1, "| local writes, %")]:
            made = {("disjoint", "cold"): [{"california": ms}, {"california": 62}]}
            results = sites_report.Results(run(["disjoint"], made), None)
            self.assertTrue(results.local(results.titles("disjoint", ["california"])).startswith(begin))

    def test_a_write_that_takes_too_long_ends_the_run(self):
        of = run(["ratio"], {})
        of.require("zko", 63)
        for ms in [61, 67]:
            with self.assertRaises(SystemExit):
                of.require("zko", ms)


class Ratios(unittest.TestCase):
    def test_what_is_wanted_is_of_one_site_and_says_so_where_it_is_missed(self):
        made = {("ratio", "50% writes"): [{"california": 10}, {"california": 20}]}
        of = run(["ratio"], made)
        of.keep(sites.Load("ratio", "50% writes", ["california"], 1, []), "stoa-sites", result({"california": 2}))
        of.kinds = [*KINDS, "stoa-sites"]
        rows = sites_report.Results(of, None).wanted()
        self.assertIn("| 50% writes: over zk | 60x | 5.00x | **short** |", rows)
        self.assertIn("| 50% writes: local writes | 98% | 100% | reached |", rows)
        with mock.patch.object(sites_report.TokenSites, "policy", "consecutive 2"):
            rows = sites_report.Results(of, None).wanted()
        self.assertIn("| 50% writes: over zk | 7x | 5.00x | **short** |", rows)
        self.assertIn("| 50% writes: over zko | 3.5x | 10.00x | reached |", rows)
        self.assertIn("| 50% writes: local writes | 73% | 100% | reached |", rows)


class Faults(unittest.TestCase):
    def ensembles(self, *args):
        made = site_ensembles.SiteEnsembles(*args)
        self.addCleanup(made.__exit__)
        return made

    def test_each_site_looks_at_each_other_one_through_a_link_of_its_own(self):
        made = self.ensembles({wide.HUB: 3})
        self.assertEqual(len(made.servers()), 5)
        listed = {site: made.flags(made.at(site))[3].split(",") for site in site_ensembles.SITES}
        for viewer, list_of in listed.items():
            for entry in list_of:
                name, addresses = entry.split("=")
                ports = [int(address.rsplit(":", 1)[1]) for address in addresses.split("|")]
                own = [member.site_port for member in made.members[name]]
                doors = [made.doors[viewer, member] for member in made.members[name]] if name != viewer else own
                self.assertEqual(ports, doors)
        self.assertEqual(len(set(made.doors.values())), 2 + 2 * (3 + 1))

    def test_all_links_of_the_hub_can_be_cut_and_no_others(self):
        made = self.ensembles()
        touching = [door for (viewer, member), door in made.doors.items() if wide.HUB in (viewer, member.site)]
        self.assertCountEqual([door for door, _ in made.hub_links.links], touching)
        self.assertEqual(len(made.other_links.links), 2)

    def test_what_is_longer_than_wanted_is_short(self):
        args = argparse.Namespace(parts=[], quick=True, before=None, folders=None)
        run = sites_faults.Run(args)
        run.at_most("a", 9.9, "ms", "10 ms", 10)
        run.at_most("b", 10.1, "ms", "10 ms", 10)
        run.row("c", "3 ms", "")
        run.more("d", [10, 10, 10], [11.4, 11.5, 30], 0.15)
        run.more("e", [10, 10, 10], [10, 11.6, 12], 0.15)
        lines = faults_report.table(run.rows).split("\n")[2:]
        verdicts = [line.split("|")[-2].strip() for line in lines]
        self.assertEqual(verdicts, ["met", "**SHORT**", "", "met", "**SHORT**"])

    def test_every_write_without_an_acknowledgement_is_a_failure(self):
        calm = {"errors": {}, "unknown": 0, "connections_lost": 0, "sessions_lost": 0}
        self.assertEqual(sites_faults.failures(calm), 0)
        for met in [{"errors": {"OperationTimeout": 2}}, {"unknown": 1}, {"connections_lost": 1}, {"sessions_lost": 1}]:
            self.assertGreater(sites_faults.failures({**calm, **met}), 0)


if __name__ == "__main__":
    unittest.main()
