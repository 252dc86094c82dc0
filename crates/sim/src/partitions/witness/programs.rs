//! Programs of the service, below the znode of each partition: a counter, a queue, and reactions to what others
//! do. Each call must be carried out once, whatever becomes of connections and leaders.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use stoa_check::{Checked, Violation, wrong};
use stoa_tree::Tree;
use stoa_wire::{Opcode, Reader, Stat, request::encode};

use super::{Asker, EPHEMERAL, Errand, NO_NODE, NODE_EXISTS, SEQUENTIAL, Witness, create, get};
use crate::partitions::board::Board;

const SYSTEM_ERROR: i32 = -1;
const SESSION_EXPIRED: i32 = -112;
const SESSION_MOVED: i32 = -118;
const THROTTLED: i32 = -127;

const WORK: &str = "/em/work";
const WORK_SOURCE: &str = r#"
on_operation("read", "/*/count");
on_operation("read", "/*/take");
on_operation("read", "/*/toil");
on_operation("create", "/*/put");
on_event("changed", "/*/counter");
on_event("changed", "/*/tally");
on_event("changed", "/*/silent");
on_event("changed", "/*/group");

fn read(request) {
    let top = request.path.parent_of();
    if request.name == "take" {
        let elements = local.sub_objects(top + "/queue");
        if elements.is_empty() { return ""; }
        local.delete(elements[0].path);
        return elements[0].data;
    }
    if request.name == "toil" {
        for turn in 0..1000000 { }
    }
    let counter = top + "/counter";
    let next = local.read(counter).data.to_int() + 1;
    local.update(counter, next);
    return next;
}

fn create(request) {
    return local.create_sequential(request.path.parent_of() + "/queue/e-", request.data);
}

fn changed(event) {
    if event.name == "silent" { local.suppress(); }
    else if event.name == "tally" { local.update(event.path + "-twin", local.read(event.path).data); }
    else if event.name == "group" { local.update(event.path + "/twin", local.read(event.path).data); }
    // Whoever counts next has to know of it without anybody's having looked.
    else { local.update(event.path + "-twin", "counted"); }
}
"#;

/// One that comes and goes.
const GUEST: &str = "/em/guest";
const GUEST_SOURCE: &str = r#"
on_operation("read", "/*/guest");
fn read(request) { return "here"; }
"#;

/// What programs work on, below the znode of each partition, and what is in it first.
const FURNITURE: [(&str, &[u8]); 7] = [
    ("counter", b"0"),
    ("counter-twin", b"counted"),
    ("tally", b""),
    ("tally-twin", b""),
    ("silent", b""),
    ("queue", b""),
    ("group/twin", b""),
];

/// A request that has to do with programs, and the partition below whose znode.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::partitions) enum Job {
    Acknowledge,
    /// The counter has been higher than this before it was asked.
    Count {
        top: usize,
        floor: i32,
    },
    Look {
        top: usize,
    },
    Put {
        top: usize,
        element: String,
    },
    Take {
        top: usize,
    },
    WatchTwin {
        top: usize,
    },
    Tally {
        top: usize,
    },
    /// What is stopped, and costs a pause.
    Toil,
    /// Of the program that comes and goes.
    Visit,
    Other,
}

impl Job {
    /// Whether a program carries it out.
    fn is_call(&self) -> bool {
        matches!(self, Self::Count { .. } | Self::Put { .. } | Self::Take { .. } | Self::Toil | Self::Visit)
    }
}

/// What a client knows of programs, and what it had them do.
#[derive(Debug, Default)]
pub(super) struct Programs {
    /// Whether its session has acknowledged the one that works.
    has_acknowledged: bool,
    /// Twins of tallies that it watches, on its connection.
    watched: BTreeSet<usize>,
    elements: u64,
    /// Whether its session may have to wait because of what it has asked for.
    has_toiled: bool,
}

/// What programs did, by partition.
#[derive(Debug, Default)]
pub(in crate::partitions) struct Books {
    counted: Vec<(usize, i32)>,
    put: BTreeSet<(usize, String)>,
    taken: Vec<(usize, String)>,
    /// What may have been done or not.
    open_counts: BTreeMap<usize, usize>,
    open_puts: BTreeSet<(usize, String)>,
    open_takes: BTreeMap<usize, usize>,
}

impl Books {
    /// Nobody will say what became of that.
    fn leave_open(&mut self, job: &Job) {
        match job {
            Job::Count { top, .. } => *self.open_counts.entry(*top).or_default() += 1,
            Job::Take { top } => *self.open_takes.entry(*top).or_default() += 1,
            Job::Put { top, element } => _ = self.open_puts.insert((*top, element.clone())),
            _ => {}
        }
    }
}

impl Programs {
    /// The session is over.
    pub(super) fn forget(&mut self) {
        (self.has_acknowledged, self.has_toiled) = (false, false);
        self.watched.clear();
    }
}

impl Witness {
    /// Its connection has ended: what was under way may have happened or not, and watches that it does not set
    /// again are gone.
    pub(super) fn leave_programs(&mut self, asker: &Asker) {
        for (_, errand) in &asker.under_way {
            if let Errand::Program(job) = errand {
                self.board.books.borrow_mut().leave_open(job);
            }
        }
        self.programs.watched.clear();
    }

    /// It is told of a change.
    pub(super) fn told_of(&mut self, asker: &Asker, path: &str) -> Checked {
        if path.ends_with("/silent") {
            return Err(asker.wrong(&format!("is told of {path}, which a program has suppressed")));
        }
        let twin = path.strip_suffix("/tally-twin");
        let Self { board, programs, .. } = self;
        programs.watched.retain(|top| twin != Some(board.tops[*top].as_str()));
        Ok(())
    }

    /// Makes what programs work on, and registers the one that does.
    pub(super) fn found_programs(&mut self, asker: &mut Asker) {
        for (top, (name, data)) in self.board.tops.iter().flat_map(|top| FURNITURE.map(|it| (top, it))) {
            create(asker, Errand::Found, &format!("{top}/{name}"), Some(data), 0);
        }
        create(asker, Errand::Found, WORK, Some(WORK_SOURCE.as_bytes()), 0);
    }

    /// A burst of requests that have to do with programs.
    pub(super) fn have_programs_work(&mut self, asker: &mut Asker) {
        let board = Rc::clone(&self.board);
        if !self.programs.has_acknowledged && asker.rng.percent(80) {
            let errand = Errand::Program(Job::Acknowledge);
            create(asker, errand, &format!("{WORK}/a-"), Some(b""), EPHEMERAL | SEQUENTIAL);
        }
        for _ in 0..asker.rng.range(1, 6) {
            let top = asker.rng.index(board.count());
            let path = |name| format!("{}/{name}", board.tops[top]);
            match asker.rng.weighted(&[30, 10, 15, 15, 8, 12, 5, 5, 5, 2, 2, 2]) {
                0 => {
                    let floor = board.floor(board.counter(top));
                    read(asker, Job::Count { top, floor }, &path("count"), false);
                }
                1 => read(asker, Job::Look { top }, &path("counter"), false),
                2 => {
                    self.programs.elements += 1;
                    let element = format!("{:x}-{}", asker.session(), self.programs.elements);
                    let errand = Errand::Program(Job::Put { top, element: element.clone() });
                    create(asker, errand, &path("put"), Some(element.as_bytes()), 0);
                }
                3 => read(asker, Job::Take { top }, &path("take"), false),
                4 => read(asker, Job::WatchTwin { top }, &path("tally-twin"), true),
                5 => {
                    let data = asker.last_xid().to_string();
                    write(asker, Job::Tally { top }, &path("tally"), data.as_bytes());
                }
                6 => read(asker, Job::Other, &path("silent"), true),
                7 => write(asker, Job::Other, &path("silent"), b""),
                8 => read(asker, Job::Visit, &path("guest"), false),
                11 => {
                    self.programs.has_toiled = true;
                    read(asker, Job::Toil, &path("toil"), false);
                }
                9 => create(asker, Errand::Other, GUEST, Some(GUEST_SOURCE.as_bytes()), 0),
                _ => asker
                    .ask(Opcode::Delete as i32, Errand::Other, |out| encode::path_version(out, GUEST, -1)),
            }
        }
    }

    /// What became of a request that has to do with programs.
    pub(super) fn programs_answered(
        &mut self,
        asker: &mut Asker,
        job: Job,
        err: i32,
        reader: &mut Reader<'_>,
    ) -> Checked {
        match err {
            0 => self.programs_did(asker, job, reader),
            SYSTEM_ERROR if job == Job::Toil => Ok(()),
            // Then it was not carried out, which the books will show.
            THROTTLED if self.programs.has_toiled && job.is_call() => Ok(()),
            // Who asks without having acknowledged the program finds no such znode, or has made it.
            NO_NODE | NODE_EXISTS if self.programs.has_acknowledged => match job {
                Job::Visit => Ok(()),
                job => Err(asker.wrong(&format!("has acknowledged the program, which does not do {job:?}"))),
            },
            NO_NODE | NODE_EXISTS => Ok(()),
            // It is on another connection, or at its end.
            SESSION_MOVED | SESSION_EXPIRED => Ok(()),
            _ if self.board.skips_writes => {
                self.board.books.borrow_mut().leave_open(&job);
                Ok(())
            }
            err => Err(asker.wrong(&format!("is answered {err} to {job:?}"))),
        }
    }

    fn programs_did(&mut self, asker: &mut Asker, job: Job, reader: &mut Reader<'_>) -> Checked {
        let board = Rc::clone(&self.board);
        let broken = |_| Violation::new("what a program has answered cannot be read");
        match job {
            Job::Acknowledge => self.programs.has_acknowledged = true,
            Job::Count { top, floor } => {
                let count = number(reader.buffer().map_err(broken)?)
                    .ok_or_else(|| asker.wrong("is told what is no number by a counter"))?;
                if count <= floor {
                    let text =
                        format!("counts to {count} below {}, which was {floor} before", board.tops[top]);
                    return Err(asker.wrong(&text));
                }
                asker.counts.calls += 1;
                board.books.borrow_mut().counted.push((top, count));
                board.acknowledge(board.counter(top), count);
                self.has_seen(asker, board.counter(top), count, "counted")?;
            }
            Job::Look { top } => {
                let count = number(reader.buffer().map_err(broken)?);
                let version = Stat::decode(reader).map_err(broken)?.version;
                if count != Some(version) {
                    return Err(asker.wrong(&format!("sees {count:?} in version {version} of a counter")));
                }
                self.has_seen(asker, board.counter(top), version, "read")?;
            }
            Job::Put { top, element } => {
                let path = reader.str().map_err(broken)?;
                if path.starts_with(&format!("{}/queue/", board.tops[top])) {
                    asker.counts.calls += 1;
                    board.books.borrow_mut().put.insert((top, element));
                } else if self.programs.has_acknowledged {
                    return Err(asker.wrong(&format!("has put something into a queue, which is at {path}")));
                }
            }
            Job::Take { top } => {
                let element = reader.buffer().map_err(broken)?.unwrap_or_default();
                if !element.is_empty() {
                    let element = String::from_utf8_lossy(element).into_owned();
                    asker.counts.calls += 1;
                    board.books.borrow_mut().taken.push((top, element));
                }
            }
            Job::Toil => return Err(asker.wrong("has had done what has no end")),
            Job::WatchTwin { top } => _ = self.programs.watched.insert(top),
            Job::Tally { top } if self.programs.watched.contains(&top) => {
                return Err(asker.wrong("changes what it watches by way of a program, before any event"));
            }
            Job::Visit if reader.buffer().map_err(broken)? != Some(b"here".as_slice()) => {
                return Err(asker.wrong("is told something else by the program that it visits"));
            }
            Job::Tally { .. } | Job::Visit | Job::Other => {}
        }
        Ok(())
    }
}

fn read(asker: &mut Asker, job: Job, path: &str, watch: bool) {
    get(asker, Errand::Program(job), path, watch);
}

fn write(asker: &mut Asker, job: Job, path: &str, data: &[u8]) {
    asker.ask(Opcode::SetData as i32, Errand::Program(job), |out| {
        encode::set_data(out, path, Some(data), -1);
    });
}

fn number(data: Option<&[u8]>) -> Option<i32> {
    std::str::from_utf8(data?).ok()?.parse().ok()
}

/// Each call was carried out once, in the end, and each change reacted to. `tree` is where a znode lives.
pub(in crate::partitions) fn check<'t>(board: &Board, tree: impl Fn(&str) -> &'t Tree) -> Checked {
    if !board.is_founded.get() {
        return Ok(());
    }
    let books = board.books.borrow();
    for (at, top) in board.tops.iter().enumerate() {
        let group = format!("{top}/group");
        // What nobody has set yet has no data, or empty data, as it was made.
        let data = |path: &str| tree(&group).get(path).map(|znode| znode.data().unwrap_or_default());
        if data(&group) != data(&format!("{group}/twin")) {
            return wrong(format!("a program has not reacted to a change of {group}"));
        }
        let tree = tree(top);
        let wrong = |what: String| wrong(format!("below {top} {what}"));
        let znode = |name: &str| {
            let znode = tree.get(&format!("{top}/{name}"));
            znode.map(|znode| (znode.stat().version, znode.data().unwrap_or_default()))
        };
        let (Some(counter), Some(tally)) = (znode("counter"), znode("tally")) else {
            return wrong("what was made in the beginning is missing".into());
        };
        if znode("counter-twin") != Some((counter.0, b"counted")) || znode("tally-twin") != Some(tally) {
            return wrong("a program has not reacted to each change".into());
        }
        let mut counted: Vec<i32> =
            books.counted.iter().filter(|(of, _)| *of == at).map(|(_, count)| *count).collect();
        let answers = counted.len();
        counted.sort_unstable();
        counted.dedup();
        let open = books.open_counts.get(&at).copied().unwrap_or(0);
        let (version, data) = counter;
        if counted.len() < answers || number(Some(data)) != Some(version) {
            return wrong(format!(
                "two calls came to the same, or the counter's data is not its version {version}"
            ));
        }
        if usize::try_from(version).unwrap_or(0).saturating_sub(answers) > open {
            return wrong(format!(
                "{answers} calls, and {open} that nobody has heard of, count to {version}"
            ));
        }
        check_queue(&books, at, tree, &format!("{top}/queue"))?;
    }
    Ok(())
}

fn check_queue(books: &Books, at: usize, tree: &Tree, queue: &str) -> Checked {
    let wrong = |what: String| wrong(format!("{queue}: {what}"));
    let mut seen = BTreeSet::new();
    let children = tree.get(queue).into_iter().flat_map(|queue| queue.children());
    let left = children.filter_map(|name| {
        let element = tree.get(&format!("{queue}/{name}"))?;
        Some(String::from_utf8_lossy(element.data().unwrap_or_default()).into_owned())
    });
    let taken = books.taken.iter().filter(|(of, _)| *of == at).map(|(_, element)| element.clone());
    for element in left.chain(taken) {
        let key = (at, element.clone());
        if !books.put.contains(&key) && !books.open_puts.contains(&key) {
            return wrong(format!("nobody has put {element}"));
        }
        if !seen.insert(element.clone()) {
            return wrong(format!("{element} was put or taken twice"));
        }
    }
    let lost = books.put.iter().filter(|(of, element)| *of == at && !seen.contains(element)).count();
    let open = books.open_takes.get(&at).copied().unwrap_or(0);
    if lost > open {
        return wrong(format!(
            "{lost} elements are lost, and nobody has heard of {open} calls that took some"
        ));
    }
    Ok(())
}
