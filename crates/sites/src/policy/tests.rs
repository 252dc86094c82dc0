//! What is decided, and by whom.

use super::*;

const HUB: Site = Site(0);
const NEAR: Site = Site(1);
const FAR: Site = Site(2);

fn policy(settings: Settings) -> Policy {
    Policy::new(settings, Sites::new(HUB, [0, 62_000, 90_000].to_vec()).unwrap())
}

/// One znode, where its token is by what was decided, how often it was used there, and when.
struct One(Policy, Site, u32, u64);

impl One {
    fn of(settings: Settings) -> Self {
        Self(policy(settings), HUB, 0, 0)
    }

    /// A site writes; says where the token is then.
    fn write(&mut self, site: Site) -> Site {
        let Self(policy, holder, uses, at_ms) = self;
        *at_ms += 1;
        if *holder == site && site != HUB {
            *uses += 1;
            policy.wrote_locally(site, 1, *at_ms);
            return site;
        }
        let holder_uses = core::mem::take(uses);
        let access = Access { path: "/a", site, holder: *holder, holder_uses, at_ms: *at_ms };
        *holder = match policy.decide(&access).next {
            Next::Stay => *holder,
            Next::Hub => HUB,
            Next::Site(site) => site,
        };
        *holder
    }

    /// Several write; says how often the first of them held the token.
    fn turns(&mut self, turns: usize, one: Site, times: usize, other: Site) -> usize {
        let mut held = 0;
        for _ in 0..turns {
            held += (0..times).filter(|_| self.write(one) == one).count();
            self.write(other);
        }
        held
    }
}

#[test]
fn the_papers_rule_gives_after_r_requests_in_a_row() {
    let mut one = One::of(Settings { kind: Kind::Consecutive(2), ..Settings::default() });
    let got = [NEAR, FAR, NEAR, NEAR].map(|site| one.write(site));
    assert_eq!(got, [HUB, HUB, HUB, NEAR]);
    // A recall is the first request of who caused it; what the holder did meanwhile ends all rows.
    assert_eq!([FAR, NEAR, FAR, FAR].map(|site| one.write(site)), [HUB, HUB, HUB, FAR]);
    assert_eq!([NEAR, HUB, NEAR, NEAR].map(|site| one.write(site)), [HUB, HUB, HUB, NEAR]);
    assert_eq!([NEAR, HUB, HUB].map(|site| one.write(site)), [NEAR, HUB, HUB]);
}

#[test]
fn the_token_goes_where_the_next_access_is_expected() {
    let settings = Settings { is_fair: false, moves_per_second: u16::MAX, ..Settings::default() };
    let mut one = One::of(settings);
    assert_eq!(one.write(NEAR), NEAR, "most come again");
    one.turns(20, NEAR, 20, FAR);
    assert_eq!((one.write(NEAR), one.write(FAR)), (NEAR, NEAR), "who is followed by the holder visits it");
    one.turns(10, FAR, 20, NEAR);
    assert_eq!(one.write(FAR), FAR);
    one.turns(10, HUB, 20, NEAR);
    assert_eq!(one.write(HUB), HUB);
}

#[test]
fn who_only_pays_is_not_made_to() {
    let mut one = One::of(Settings::default());
    one.turns(40, NEAR, 9, FAR);
    assert!(one.turns(40, NEAR, 9, FAR) < 36);
    let mut one = One::of(Settings { is_fair: false, ..Settings::default() });
    assert!(one.turns(40, NEAR, 9, FAR) >= 350);
    // Who gains as much pays when it must.
    let mut one = One::of(Settings::default());
    one.turns(20, NEAR, 9, FAR);
    one.0.wrote_locally(FAR, 10, 200);
    assert!(one.turns(5, NEAR, 9, FAR) >= 40);
}

fn at<'a>(path: &'a str, site: Site, holder: Site, at_ms: u64) -> Access<'a> {
    Access { path, site, holder, holder_uses: 0, at_ms }
}

#[test]
fn a_directory_moves_as_one_when_its_children_behave_alike() {
    let mut policy = policy(Settings::default());
    let subtree = |policy: &mut Policy, path: &str, site, at_ms| {
        let decision = policy.decide(&at(path, site, HUB, at_ms));
        assert_eq!(decision.next, Next::Site(site));
        path[..decision.subtree].to_owned()
    };
    assert_eq!(subtree(&mut policy, "/d/near/1", NEAR, 0), "/d/near/1");
    assert_eq!(subtree(&mut policy, "/d/near/2", NEAR, 1), "/d");
    assert_eq!(subtree(&mut policy, "/d/far/1", FAR, 2), "/d/far/1", "they differ");
    assert_eq!(subtree(&mut policy, "/d/far/2", FAR, 3), "/d/far");
    assert_eq!(subtree(&mut policy, "/d/near/3", NEAR, 4), "/d/near");
    // What something is said of does not move with what it lies in.
    policy.set_rules(Rules::parse(b"stay /d/far/9", |_| None).0);
    assert_eq!(subtree(&mut policy, "/d/far/3", FAR, 5), "/d/far/3");
    assert_eq!(policy.decide(&at("/d/far/9", FAR, HUB, 6)).next, Next::Stay);
}

#[test]
fn a_new_znode_is_expected_to_be_used_as_others_in_its_directory() {
    let mut policy = policy(Settings { is_fair: false, has_units: false, ..Settings::default() });
    for number in 0..40_u64 {
        let path = format!("/queue/{}", number / 4);
        policy.decide(&at(&path, [NEAR, FAR][(number % 2) as usize], HUB, number));
    }
    assert_eq!(policy.decide(&at("/queue/new", NEAR, HUB, 100)).next, Next::Stay);
    assert_eq!(policy.decide(&at("/other/new", NEAR, HUB, 100)).next, Next::Site(NEAR));
}

#[test]
fn rules_come_first() {
    let mut policy = policy(Settings::default());
    let rules = b"pin /eu f\npin /us hub\nstay /eu/x\ntogether /a /b /c\n";
    let site =
        |name: &str| ["hub", "n", "f"].iter().position(|known| *known == name).map(|at| Site(at as u8));
    policy.set_rules(Rules::parse(rules, site).0);
    let pinned = Decision { next: Next::Site(FAR), subtree: 3, along: Vec::new() };
    assert_eq!(policy.decide(&at("/eu/a", NEAR, HUB, 0)), pinned);
    assert_eq!(policy.decide(&at("/eu/a", NEAR, FAR, 1)).next, Next::Stay);
    assert_eq!(policy.decide(&at("/us/a", NEAR, FAR, 2)).next, Next::Hub);
    assert_eq!(policy.decide(&at("/eu/x/y", NEAR, HUB, 3)).next, Next::Stay);
    let together = policy.decide(&at("/b/1", NEAR, HUB, 4));
    assert_eq!((together.next, together.subtree), (Next::Site(NEAR), 2));
    assert_eq!(together.along, ["/a", "/c"]);
    let unmoved = policy.decide(&at("/c/9", NEAR, NEAR, 4));
    assert_eq!(unmoved, Decision::of("/c/9", Next::Stay));
    policy.set_rules(Rules::parse(b"tokens off", site).0);
    assert_eq!(policy.decide(&at("/eu/a", NEAR, FAR, 5)).next, Next::Hub);
}

#[test]
fn what_is_idle_returns_when_another_one_is_likelier() {
    let mut policy = policy(Settings::default());
    for number in 0..20 {
        policy.decide(&at("/a", [NEAR, FAR][number % 2], HUB, number as u64));
    }
    assert!(policy.is_to_return("/a", FAR, 5000), "after it the other one comes");
    assert!(!policy.is_to_return("/a", FAR, 4999) && !policy.is_to_return("/a", HUB, 5000));
    assert!(!policy.is_to_return("/unknown", FAR, 5000));
    policy.used("/a", FAR, 100);
    assert!(!policy.is_to_return("/a", FAR, 5000));
}

#[test]
fn what_clients_of_the_hub_have_used_once_stays_there_for_long_if_they_have_paid_for_something_else() {
    let mut policy = policy(Settings::default());
    policy.decide(&at("/elsewhere", HUB, NEAR, 0));
    for path in ["/used", "/used-long-ago"] {
        policy.decide(&at(path, HUB, HUB, 0));
    }
    let mut asked = |path: &str, at_ms: u64| {
        (1..1000).find(|_| policy.decide(&at(path, NEAR, HUB, at_ms)).next == Next::Site(NEAR)).unwrap()
    };
    assert_eq!(asked("/unused", 1), 1);
    // That nobody else comes has to show: less than one in a thousand that follow.
    let times = asked("/used", 1);
    assert!((100..200).contains(&times), "{times}");
    assert_eq!(asked("/used-long-ago", 10_000), 1, "nobody writes there any more");
}

#[test]
fn a_token_does_not_move_too_often() {
    let settings = Settings { moves_per_second: 3, is_fair: false, ..Settings::default() };
    let mut policy = policy(settings);
    let mut given = |at_ms| {
        let access = Access { path: "/a", site: NEAR, holder: FAR, holder_uses: 0, at_ms };
        policy.decide(&access).next
    };
    let [near, hub] = [Next::Site(NEAR), Next::Hub];
    assert_eq!([0, 1, 2, 3, 999, 1000].map(&mut given), [near, near, near, hub, hub, near]);
}

#[test]
fn anything_may_be_asked_and_the_same_is_decided_each_time() {
    let run = || {
        let sites = Sites::new(Site(3), (0..32).map(|site| site * 1000).collect()).unwrap();
        let mut policy = Policy::new(Settings { entries: 64, ..Settings::default() }, sites);
        let (mut number, mut decisions) = (1_u64, Vec::new());
        let paths = ["", "/", "//", "a", "/ä/ö/ü", "/a/b/c/d/e/f", "/a/b", "/a/b/x", "/ä/", "/q"];
        for _ in 0..50_000 {
            number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            let bits = |from: u32, below: u64| number >> from & (below - 1);
            let path = paths[(bits(20, 1 << 16) % 10) as usize];
            let (site, holder) = (Site(bits(40, 64) as u8), Site(bits(46, 64) as u8));
            let (holder_uses, at_ms) = (bits(8, 4096) as u32, number >> bits(50, 64));
            let decision = policy.decide(&Access { path, site, holder, holder_uses, at_ms });
            assert!(path.is_char_boundary(decision.subtree));
            policy.used(path, site, holder_uses);
            policy.wrote_locally(holder, u32::MAX, at_ms);
            decisions.push((decision, policy.is_to_return(path, holder, at_ms)));
        }
        decisions
    };
    assert_eq!(run(), run());
}

/// What is passed over because it changes nothing does change nothing: one policy looks everything up each time, and takes
/// no short way where the hub uses what it holds.
#[test]
fn what_is_known_of_directories_is_the_same_with_notes_and_without() {
    let mut noted = policy(Settings::default());
    let mut careful = policy(Settings::default());
    let (mut random, mut passed) = (7_u64, 0);
    for step in 0..40_000_u64 {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let number = (random >> 33) as usize;
        let directory = number % 3;
        let path = format!("/top/{directory}/{}", number / 3 % 5);
        // For long only one site comes, another one each time; then all do.
        let is_quiet = step / 2000 % 4 != 3;
        let site = if is_quiet { step as usize / 8000 % 3 } else { number / 64 % 3 };
        let (site, holder) = (Site(site as u8), Site((number / 256 % 3) as u8));
        let before = noted.settled.passed();
        careful.table.changed();
        if (number / 1024).is_multiple_of(4) {
            noted.used(&path, site, 1);
            careful.used(&path, site, 1);
        } else {
            let access = Access { path: &path, site, holder, holder_uses: 0, at_ms: step };
            assert_eq!(noted.decide(&access), careful.decide_anywhere(&access), "step {step}");
        }
        let bears = |policy: &Policy| [0, 1, 2].map(|it| policy.budget.bears(&policy.sites, Site(it), step));
        assert_eq!(bears(&noted), bears(&careful), "step {step}");
        passed += noted.settled.passed() - before;
        assert_eq!(noted.usage(&path), careful.usage(&path), "step {step}");
    }
    assert!(passed > 1000, "{passed} accesses were passed over");
    assert_eq!(careful.settled.passed(), 0);
    for path in ["/top", "/top/0", "/top/1", "/top/2"] {
        for about in [About::Unit, About::Pool] {
            let known =
                |policy: &Policy| policy.table.find(about, path).map(|it| (it.odds, it.count, it.counted));
            assert_eq!(known(&noted), known(&careful), "{path}");
        }
    }
}
