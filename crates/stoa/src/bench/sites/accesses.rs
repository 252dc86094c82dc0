//! What the clients of one site ask for.

use stoa_wire::Opcode;
use stoa_wire::request::encode;

use super::super::random::Random;
use super::super::requests::{Op, Requests, Template, payload};
use super::records::{Place, Records, Territory};

/// Seeds of sites are so far from one another, so that runs with seeds side by side share none.
const SEEDS_A_SITE: u64 = 1_000_003;

/// Reads and writes of the records that a site works on.
#[derive(Debug)]
pub(super) struct Accesses {
    territory: Territory,
    /// The share of writes.
    writes: f64,
    random: Random,
    /// By the number of the top, as those below.
    get: Vec<Template>,
    set: Vec<Template>,
}

impl Accesses {
    /// What the site with this number asks for.
    pub(super) fn new(records: &Records, site: usize, writes: f64, payload_bytes: usize, seed: u64) -> Self {
        let data = payload(payload_bytes);
        let get = |out: &mut Vec<u8>, path: &str| encode::path_watch(out, path, false);
        let set = |out: &mut Vec<u8>, path: &str| encode::set_data(out, path, Some(&data), -1);
        Self {
            territory: records.of(site),
            writes,
            random: Random::new(seed.wrapping_add(SEEDS_A_SITE.wrapping_mul(site as u64 + 1))),
            get: Template::on_znode(Opcode::GetData, records.tops(), get),
            set: Template::on_znode(Opcode::SetData, records.tops(), set),
        }
    }
}

impl Requests for Accesses {
    fn append(&mut self, _session: usize, xid: i32, out: &mut Vec<u8>) -> Option<Op> {
        let (templates, op) = match self.random.share() < self.writes {
            true => (&self.set, Op::Set),
            false => (&self.get, Op::Get),
        };
        let Place { top, number } = self.territory.draw(&mut self.random);
        templates[top].append_znode(xid, number, out);
        Some(op)
    }
}
