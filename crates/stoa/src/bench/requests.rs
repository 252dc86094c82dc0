//! What the generator sends: frames encoded once, then patched with an xid and a znode's number.

use stoa_wire::request::encode;
use stoa_wire::{MultiHeader, OPEN_ACL, Opcode, RequestHeader, begin_frame, end_frame, xid};

use super::random::Random;
use super::tops::Tops;

/// What one request asks for, and the row of the report that its latency goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Op {
    Get,
    Set,
    Exists,
    Multi,
    Create,
    Delete,
    Ping,
    Echo,
    Probe,
}

impl Op {
    /// Every kind.
    pub(crate) const ALL: [Self; 9] = [
        Self::Get,
        Self::Set,
        Self::Exists,
        Self::Multi,
        Self::Create,
        Self::Delete,
        Self::Ping,
        Self::Echo,
        Self::Probe,
    ];

    /// The name in the report.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Set => "set",
            Self::Exists => "exists",
            Self::Multi => "multi",
            Self::Create => "create",
            Self::Delete => "delete",
            Self::Ping => "ping",
            Self::Echo => "echo",
            Self::Probe => "probe",
        }
    }
}

/// A source of requests for the sessions of a run.
pub(crate) trait Requests {
    /// Appends the next request of a session to `out`, with this xid. `None` when it has no more.
    fn append(&mut self, session: usize, xid: i32, out: &mut Vec<u8>) -> Option<Op>;

    /// Appends what the session still has to send so that it leaves nothing half done.
    fn finish(&mut self, _session: usize, _xid: i32, _out: &mut Vec<u8>) -> Option<Op> {
        None
    }

    /// From now on all sessions ask for something else.
    fn shift(&mut self) {}

    /// Whether replies begin with a reply header. Only an echo server's do not.
    fn has_reply_header(&self) -> bool {
        true
    }
}

/// Where everything that the generator makes lies, or what the names of several such tops begin with.
pub(crate) const ROOT: &str = "/bench";
/// Znodes of the benchmark lie in directories of this many.
pub(crate) const DIRECTORY_LEN: u64 = 1000;
/// Largest number of znodes: seven digits of directories.
pub(crate) const ZNODES_MAX: u64 = DIRECTORY_LEN * 10_000_000;

const XID_AT: usize = 4;
const DIRECTORY_DIGITS: usize = 7;
const NAME_DIGITS: usize = 3;
const SLOT_DIGITS: usize = 10;

/// The directory with this number below a top.
pub(crate) fn directory(top: &str, number: u64) -> String {
    format!("{top}/{number:0DIRECTORY_DIGITS$}")
}

/// The directory in which a session creates and deletes, below its top.
pub(crate) fn session_directory(top: &str, session: usize) -> String {
    format!("{top}/session-{session:05}")
}

/// A whole frame with room for the xid and, at the end of its path, for digits.
#[derive(Debug, Clone)]
pub(super) struct Template {
    frame: Vec<u8>,
    digits_at: usize,
}

impl Template {
    /// A request on `path`; the body is appended by `body` and must begin with the path.
    fn new(opcode: Opcode, path: &str, digits: usize, body: impl FnOnce(&mut Vec<u8>, &str)) -> Self {
        let mut frame = Vec::new();
        let start = begin_frame(&mut frame);
        RequestHeader { xid: 0, opcode: opcode as i32 }.encode(&mut frame);
        let path_at = frame.len() + 4;
        body(&mut frame, path);
        end_frame(&mut frame, start);
        Self { frame, digits_at: path_at + path.len() - digits }
    }

    /// A request on one of the numbered znodes, for each top.
    pub(super) fn on_znode(opcode: Opcode, tops: &[String], body: impl Fn(&mut Vec<u8>, &str)) -> Vec<Self> {
        let template = |top: &String| {
            let path = format!("{}/{:0NAME_DIGITS$}", directory(top, 0), 0);
            Self::new(opcode, &path, DIRECTORY_DIGITS + 1 + NAME_DIGITS, &body)
        };
        tops.iter().map(template).collect()
    }

    /// A request on a numbered slot of a session's directory.
    fn on_slot(opcode: Opcode, directory: &str, body: impl FnOnce(&mut Vec<u8>, &str)) -> Self {
        let path = format!("{directory}/{:0SLOT_DIGITS$}", 0);
        Self::new(opcode, &path, SLOT_DIGITS, body)
    }

    /// Appends the frame and returns the part that begins with the digits.
    #[inline]
    fn append<'a>(&self, xid: i32, out: &'a mut Vec<u8>) -> &'a mut [u8] {
        let start = out.len();
        out.extend_from_slice(&self.frame);
        let frame = &mut out[start..];
        frame[XID_AT..XID_AT + 4].copy_from_slice(&xid.to_be_bytes());
        &mut frame[self.digits_at..]
    }

    #[inline]
    pub(super) fn append_znode(&self, xid: i32, number: u64, out: &mut Vec<u8>) {
        write_znode(self.append(xid, out), number);
    }

    #[inline]
    fn append_slot(&self, xid: i32, slot: u64, out: &mut Vec<u8>) {
        write_digits(&mut self.append(xid, out)[..SLOT_DIGITS], slot);
    }
}

/// A multi that sets the data of two znodes, of two tops where there are several.
#[derive(Debug)]
struct TwoSets {
    frame: Vec<u8>,
    /// Where the digits of each znode's directory begin.
    digits_at: [usize; 2],
}

impl TwoSets {
    fn of_tops([one, other]: [&String; 2], data: &[u8]) -> Self {
        let mut frame = Vec::new();
        let start = begin_frame(&mut frame);
        RequestHeader { xid: 0, opcode: Opcode::Multi as i32 }.encode(&mut frame);
        let digits_at = [one, other].map(|top| {
            MultiHeader { opcode: Opcode::SetData as i32, done: false, err: -1 }.encode(&mut frame);
            let path = format!("{}/{:0NAME_DIGITS$}", directory(top, 0), 0);
            let path_at = frame.len() + 4;
            encode::set_data(&mut frame, &path, Some(data), -1);
            path_at + path.len() - (DIRECTORY_DIGITS + 1 + NAME_DIGITS)
        });
        MultiHeader::END.encode(&mut frame);
        end_frame(&mut frame, start);
        Self { frame, digits_at }
    }

    fn append(&self, xid: i32, numbers: [u64; 2], out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.frame);
        let frame = &mut out[start..];
        frame[XID_AT..XID_AT + 4].copy_from_slice(&xid.to_be_bytes());
        for (at, number) in self.digits_at.into_iter().zip(numbers) {
            write_znode(&mut frame[at..], number);
        }
    }
}

/// Writes the number of a znode where its directory begins.
#[inline]
fn write_znode(digits: &mut [u8], number: u64) {
    write_digits(&mut digits[..DIRECTORY_DIGITS], number / DIRECTORY_LEN);
    let name = DIRECTORY_DIGITS + 1;
    write_digits(&mut digits[name..name + NAME_DIGITS], number % DIRECTORY_LEN);
}

/// Writes a number in decimal, right-aligned, zeros in front.
#[inline]
fn write_digits(out: &mut [u8], mut number: u64) {
    for digit in out.iter_mut().rev() {
        *digit = b'0' + (number % 10) as u8;
        number /= 10;
    }
}

/// Data of the wanted size that does not compress to nothing.
pub(super) fn payload(len: usize) -> Vec<u8> {
    let mut random = Random::new(1);
    (0..len).map(|_| random.next() as u8).collect()
}

fn create(opcode_path: &str, data: &[u8], out: &mut Vec<u8>) {
    encode::create(out, opcode_path, Some(data), OPEN_ACL, 0, None);
}

/// What a mix may consist of. A create is followed by the delete of what it created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MixPart {
    Get,
    Set,
    Exists,
    Multi,
    CreateDelete,
}

/// Requests drawn at random by weight, on znodes drawn at random.
#[derive(Debug)]
pub(crate) struct Mix {
    /// Parts with the sum of the weights up to and including theirs.
    parts: Vec<(u64, MixPart)>,
    weights: u64,
    znodes: u64,
    random: Random,
    /// By the number of the top, as those below.
    get: Vec<Template>,
    set: Vec<Template>,
    exists: Vec<Template>,
    multi: Vec<TwoSets>,
    /// Where each session works; those beyond them only probe.
    walks: Vec<Walk>,
    slots: Vec<Slots>,
    /// Requests of a session on one top before it goes on to the next.
    stay: u64,
    /// How many tops are worked on before the load shifts.
    at_a_time: usize,
}

/// Where a session works now.
#[derive(Debug)]
struct Walk {
    top: usize,
    /// Requests until it goes on.
    left: u64,
}

/// Where the sessions of a mix work.
#[derive(Debug)]
pub(crate) struct Ground<'a> {
    /// Below these.
    pub(crate) tops: &'a Tops,
    /// Numbered znodes of each.
    pub(crate) znodes: u64,
    /// The number of the top that each session begins with.
    pub(crate) firsts: Vec<usize>,
    /// Requests of a session on one top before it goes on to the next; `None`: it stays.
    pub(crate) stay: Option<u64>,
}

/// Where a session creates and deletes.
#[derive(Debug)]
struct Slots {
    create: Template,
    delete: Template,
    next: u64,
    /// The slot `next` is there and has to be deleted.
    occupied: bool,
}

impl Mix {
    /// `first_slot` keeps creates of this run apart from what a run that was cut short left behind.
    pub(crate) fn new(
        weights: &[(MixPart, u32)],
        ground: &Ground<'_>,
        payload_bytes: usize,
        first_slot: u64,
    ) -> Self {
        let data = payload(payload_bytes);
        let mut sum = 0;
        let parts = weights
            .iter()
            .map(|&(part, weight)| {
                sum += u64::from(weight);
                (sum, part)
            })
            .collect();
        let slots = |(session, first): (usize, &usize)| {
            let directory = session_directory(&ground.tops.paths[*first], session);
            Slots {
                create: Template::on_slot(Opcode::Create, &directory, |out, path| create(path, &data, out)),
                delete: Template::on_slot(Opcode::Delete, &directory, |out, path| {
                    encode::path_version(out, path, -1);
                }),
                next: first_slot,
                occupied: false,
            }
        };
        let read = |opcode| {
            Template::on_znode(opcode, &ground.tops.paths, |out, path| encode::path_watch(out, path, false))
        };
        let tops = &ground.tops.paths;
        let nexts = tops.iter().cycle().skip(1);
        let stay = ground.stay.unwrap_or(u64::MAX);
        Self {
            parts,
            weights: sum,
            znodes: ground.znodes.max(1),
            random: Random::new(7),
            get: read(Opcode::GetData),
            set: Template::on_znode(Opcode::SetData, &ground.tops.paths, |out, path| {
                encode::set_data(out, path, Some(&data), -1);
            }),
            exists: read(Opcode::Exists),
            multi: tops.iter().zip(nexts).map(|(top, next)| TwoSets::of_tops([top, next], &data)).collect(),
            walks: ground.firsts.iter().map(|&top| Walk { top, left: stay }).collect(),
            slots: ground.firsts.iter().enumerate().map(slots).collect(),
            stay,
            at_a_time: ground.tops.at_a_time,
        }
    }

    /// The top that the next request of a session is for. `None` for a probe.
    #[inline]
    fn next_top(&mut self, session: usize) -> Option<usize> {
        let walk = self.walks.get_mut(session)?;
        if walk.left == 0 {
            walk.left = self.stay;
            walk.top = (walk.top + 1) % self.get.len();
        }
        walk.left -= 1;
        Some(walk.top)
    }

    #[inline]
    fn draw(&mut self) -> Option<MixPart> {
        if let [(_, only)] = self.parts.as_slice() {
            return Some(*only);
        }
        let ticket = self.random.below(self.weights);
        self.parts.iter().find(|(bound, _)| ticket < *bound).map(|(_, part)| *part)
    }
}

impl Requests for Mix {
    #[inline]
    fn append(&mut self, session: usize, xid: i32, out: &mut Vec<u8>) -> Option<Op> {
        let Some(top) = self.next_top(session) else {
            self.get[0].append_znode(xid, self.random.below(self.znodes), out);
            return Some(Op::Probe);
        };
        let op = match self.draw()? {
            MixPart::Get => {
                self.get[top].append_znode(xid, self.random.below(self.znodes), out);
                Op::Get
            }
            MixPart::Set => {
                self.set[top].append_znode(xid, self.random.below(self.znodes), out);
                Op::Set
            }
            MixPart::Exists => {
                self.exists[top].append_znode(xid, self.random.below(self.znodes), out);
                Op::Exists
            }
            MixPart::Multi => {
                let numbers = [0; 2].map(|_| self.random.below(self.znodes));
                self.multi[top].append(xid, numbers, out);
                Op::Multi
            }
            MixPart::CreateDelete => self.slots[session].append(xid, out),
        };
        Some(op)
    }

    fn finish(&mut self, session: usize, xid: i32, out: &mut Vec<u8>) -> Option<Op> {
        let slots = self.slots.get_mut(session).filter(|slots| slots.occupied)?;
        Some(slots.append(xid, out))
    }

    fn shift(&mut self) {
        self.walks.iter_mut().for_each(|walk| walk.top += self.at_a_time);
    }
}

impl Slots {
    /// Creates the next slot, or deletes the one created before.
    fn append(&mut self, xid: i32, out: &mut Vec<u8>) -> Op {
        if self.occupied {
            self.delete.append_slot(xid, self.next, out);
            self.next += 1;
            self.occupied = false;
            Op::Delete
        } else {
            self.create.append_slot(xid, self.next, out);
            self.occupied = true;
            Op::Create
        }
    }
}

/// A given number of requests of another source.
#[derive(Debug)]
pub(crate) struct Limited<R> {
    inner: R,
    rest: u64,
}

impl<R> Limited<R> {
    /// The first `count` requests of `inner`.
    pub(crate) fn new(inner: R, count: u64) -> Self {
        Self { inner, rest: count }
    }
}

impl<R: Requests> Requests for Limited<R> {
    #[inline]
    fn append(&mut self, session: usize, xid: i32, out: &mut Vec<u8>) -> Option<Op> {
        self.rest = self.rest.checked_sub(1)?;
        self.inner.append(session, xid, out)
    }

    fn finish(&mut self, session: usize, xid: i32, out: &mut Vec<u8>) -> Option<Op> {
        self.inner.finish(session, xid, out)
    }
}

/// Creates or sets every numbered znode once, in order.
#[derive(Debug)]
pub(crate) struct Fill {
    /// For each top.
    templates: Vec<Template>,
    op: Op,
    /// The first top that is not done, the next znode of it, and how many each has.
    top: usize,
    next: u64,
    znodes: u64,
}

impl Fill {
    /// Creates the znodes `0..znodes` of each top.
    pub(crate) fn create(tops: &[String], znodes: u64, payload_bytes: usize) -> Self {
        let data = payload(payload_bytes);
        let templates = Template::on_znode(Opcode::Create, tops, |out, path| create(path, &data, out));
        Self { templates, op: Op::Create, top: 0, next: 0, znodes }
    }

    /// Sets the data of the znodes `0..znodes` of each top.
    pub(crate) fn set(tops: &[String], znodes: u64, payload_bytes: usize) -> Self {
        let data = payload(payload_bytes);
        let templates = Template::on_znode(Opcode::SetData, tops, |out, path| {
            encode::set_data(out, path, Some(&data), -1);
        });
        Self { templates, op: Op::Set, top: 0, next: 0, znodes }
    }
}

impl Requests for Fill {
    fn append(&mut self, _session: usize, xid: i32, out: &mut Vec<u8>) -> Option<Op> {
        if self.next == self.znodes {
            self.next = 0;
            self.top += 1;
        }
        self.templates.get(self.top)?.append_znode(xid, self.next, out);
        self.next += 1;
        Some(self.op)
    }
}

/// Creates znodes by name, without data.
#[derive(Debug)]
pub(crate) struct Paths {
    rest: std::vec::IntoIter<String>,
}

impl Paths {
    /// Creates `paths` in this order.
    pub(crate) fn new(paths: Vec<String>) -> Self {
        Self { rest: paths.into_iter() }
    }
}

impl Requests for Paths {
    fn append(&mut self, _session: usize, xid: i32, out: &mut Vec<u8>) -> Option<Op> {
        let path = self.rest.next()?;
        Template::new(Opcode::Create, &path, 0, |out, path| create(path, &[], out)).append(xid, out);
        Some(Op::Create)
    }
}

/// Heartbeats and nothing else.
#[derive(Debug)]
pub(crate) struct Pings;

impl Requests for Pings {
    fn append(&mut self, _session: usize, _xid: i32, out: &mut Vec<u8>) -> Option<Op> {
        let start = begin_frame(out);
        RequestHeader { xid: xid::PING, opcode: Opcode::Ping as i32 }.encode(out);
        end_frame(out, start);
        Some(Op::Ping)
    }
}

/// Frames of a given size for the echo server.
#[derive(Debug)]
pub(crate) struct Echo {
    frame: Vec<u8>,
}

impl Echo {
    /// Frames with `payload_bytes` after the length.
    pub(crate) fn new(payload_bytes: usize) -> Self {
        let mut frame = Vec::new();
        let start = begin_frame(&mut frame);
        frame.resize(start + 4 + payload_bytes, 0);
        end_frame(&mut frame, start);
        Self { frame }
    }
}

impl Requests for Echo {
    #[inline]
    fn append(&mut self, _session: usize, _xid: i32, out: &mut Vec<u8>) -> Option<Op> {
        out.extend_from_slice(&self.frame);
        Some(Op::Echo)
    }

    fn has_reply_header(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stoa_wire::{Reader, Request, next_frame};

    fn decode(frame: &[u8]) -> (RequestHeader, Request<'_>) {
        let (payload, rest) = next_frame(frame, 1 << 20).unwrap().unwrap();
        assert!(rest.is_empty());
        let mut reader = Reader::new(payload);
        let header = RequestHeader::decode(&mut reader).unwrap();
        let request = Request::decode(Opcode::from_i32(header.opcode).unwrap(), &mut reader).unwrap();
        assert!(reader.rest().is_empty());
        (header, request)
    }

    /// A mix of two sessions, which begin on two tops, `/bench-1` and `/bench-2`.
    fn mix(weights: &[(MixPart, u32)], stay: Option<u64>, first_slot: u64) -> Mix {
        mix_that_shifts(weights, stay, first_slot, 0)
    }

    fn mix_that_shifts(weights: &[(MixPart, u32)], stay: Option<u64>, first_slot: u64, shifts: usize) -> Mix {
        let tops = Tops::new(2, 1, shifts);
        let ground = Ground { tops: &tops, znodes: 1000, firsts: vec![0, 1], stay };
        Mix::new(weights, &ground, 10, first_slot)
    }

    #[test]
    fn fill_names_every_znode_once() {
        let mut fill = Fill::create(&["/top-0".to_owned(), "/top-1".to_owned()], 2002, 5);
        let mut paths = Vec::new();
        let mut xid = 0;
        loop {
            let mut out = Vec::new();
            xid += 1;
            if fill.append(0, xid, &mut out).is_none() {
                break;
            }
            let (header, request) = decode(&out);
            assert_eq!(header.xid, xid);
            let Request::Create(create) = request else { panic!("{request:?}") };
            assert_eq!(create.data.unwrap().len(), 5);
            paths.push(create.path.to_owned());
        }
        assert_eq!(paths.len(), 4004);
        assert_eq!(paths[0], "/top-0/0000000/000");
        assert_eq!(paths[1999], "/top-0/0000001/999");
        assert_eq!(paths[2001], "/top-0/0000002/001");
        assert_eq!(paths[2002], "/top-1/0000000/000");
        assert_eq!(paths[4003], "/top-1/0000002/001");
    }

    #[test]
    fn every_create_is_followed_by_its_delete() {
        let mut mix = mix(&[(MixPart::CreateDelete, 1)], None, 41);
        for slot in ["0000000041", "0000000042"] {
            let mut out = Vec::new();
            assert_eq!(mix.append(1, 1, &mut out), Some(Op::Create));
            let (_, Request::Create(create)) = decode(&out) else { panic!() };
            assert_eq!(create.path, format!("/bench-2/session-00001/{slot}"));
            let mut out = Vec::new();
            assert_eq!(mix.finish(1, 2, &mut out), Some(Op::Delete));
            let (_, Request::Delete { path, version }) = decode(&out) else { panic!() };
            assert_eq!((path, version), (format!("/bench-2/session-00001/{slot}").as_str(), -1));
            assert_eq!(mix.finish(1, 3, &mut out), None);
        }
    }

    #[test]
    fn a_mix_follows_its_weights() {
        let mut mix = mix(&[(MixPart::Get, 90), (MixPart::Set, 10)], None, 0);
        let mut gets = 0;
        for xid in 0..10_000 {
            let mut out = Vec::new();
            match mix.append(0, xid, &mut out).unwrap() {
                Op::Get => gets += 1,
                op => assert_eq!(op, Op::Set),
            }
            decode(&out);
        }
        assert!((8800..9200).contains(&gets), "{gets} of 10000 are gets");
    }

    #[test]
    fn a_multi_sets_a_znode_of_each_of_two_tops() {
        let mut mix = mix(&[(MixPart::Multi, 1)], None, 0);
        for (session, tops) in [(0, ["/bench-1/", "/bench-2/"]), (1, ["/bench-2/", "/bench-1/"])] {
            let mut out = Vec::new();
            assert_eq!(mix.append(session, 7, &mut out), Some(Op::Multi));
            let (RequestHeader { xid: 7, .. }, Request::Multi(ops)) = decode(&out) else { panic!() };
            let paths: Vec<_> = ops
                .iter()
                .map(|op| match op {
                    Request::SetData { path, data: Some(data), version: -1 } if data.len() == 10 => path,
                    op => panic!("{op:?}"),
                })
                .collect();
            assert!(paths.iter().zip(tops).all(|(path, top)| path.starts_with(top)), "{paths:?}");
            assert!(paths.iter().all(|path| path.len() == "/bench-1/0000000/000".len()), "{paths:?}");
        }
    }

    #[test]
    fn a_limited_source_ends() {
        let mut limited = Limited::new(mix(&[(MixPart::Set, 1)], None, 0), 3);
        let made = (0..10).filter_map(|xid| limited.append(0, xid, &mut Vec::new())).count();
        assert_eq!(made, 3);
    }

    #[test]
    fn sessions_beyond_the_mix_probe() {
        let mut mix = mix(&[(MixPart::Set, 1)], None, 0);
        assert_eq!(mix.append(1, 1, &mut Vec::new()), Some(Op::Set));
        assert_eq!(mix.append(2, 1, &mut Vec::new()), Some(Op::Probe));
    }

    /// The tops of the next gets of a session.
    fn walk<const N: usize>(mix: &mut Mix, session: usize) -> [char; N] {
        std::array::from_fn(|_| {
            let mut out = Vec::new();
            mix.append(session, 1, &mut out);
            let (_, Request::GetData { path, .. }) = decode(&out) else { panic!() };
            path.strip_prefix("/bench-").and_then(|rest| rest.chars().next()).unwrap()
        })
    }

    #[test]
    fn a_session_stays_on_a_top_as_long_as_it_is_told() {
        let get = [(MixPart::Get, 1)];
        assert_eq!(walk(&mut mix(&get, None, 0), 1), ['2'; 9]);
        assert_eq!(walk(&mut mix(&get, Some(1), 0), 1), ['2', '1', '2', '1']);
        let mut by_threes = mix(&get, Some(3), 0);
        assert_eq!(walk(&mut by_threes, 0), ['1', '1', '1', '2', '2', '2', '1']);
        assert_eq!(walk(&mut by_threes, 1), ['2', '2', '2', '1', '1', '1', '2'], "each by itself");
    }

    #[test]
    fn all_sessions_go_over_to_other_tops_when_the_load_shifts() {
        let mut mix = mix_that_shifts(&[(MixPart::Get, 1)], None, 0, 2);
        for tops in [['1', '2'], ['3', '4'], ['5', '6']] {
            assert_eq!([walk(&mut mix, 0), walk(&mut mix, 1)], tops.map(|top| [top; 3]));
            mix.shift();
        }
        assert_eq!(mix.append(2, 1, &mut Vec::new()), Some(Op::Probe));
    }
}
