//! Whoever looks after the servers: their settings, and servers that nobody knows any more.

use super::HostId;
use super::client::Client;
use super::roster::{Roster, Wish};
use super::workload::Tagged;
use super::world::{Happening, World};
use stoa_group::Restored;

/// The time between two looks at the servers, microseconds.
const LOOK_US: u64 = 500_000;
/// A server that has had no part in the ensemble for so long is looked after, microseconds.
const OUT_US: u64 = 4_000_000;

impl World {
    /// The list in the settings of a server: it says who founds the ensemble, or who may be joined.
    pub(super) fn settings_of(&self, id: HostId) -> String {
        let all = self.settings.members();
        if all == 1 || self.is_reader(id) {
            return String::new();
        }
        if let Some(list) = self.list_of_role(id).filter(|_| !self.machines[&id].names_all) {
            return list.to_owned();
        }
        let named = if self.machines[&id].names_all { all } else { self.settings.servers };
        Roster::of_participants(self.settings.ids(named)).text()
    }

    /// Somebody asks a server for another list of servers, until it is so.
    pub(super) fn enter_operator(&mut self, through: HostId, wish: Wish) {
        let (index, rng) = (self.clients.len(), self.rng.fork());
        let (manners, server) =
            (self.settings.manners, usize::from(through - self.settings.manners.first_id));
        self.enter(Box::new(Client::probe(index, rng, manners, server, Tagged::wishing(wish))));
    }

    /// A server that was away while others were replaced does not know those who are there now, and has to
    /// be told by its settings.
    pub(super) fn look_after(&mut self) {
        self.schedule(LOOK_US, Happening::Look);
        for id in self.ids().into_iter().filter(|id| !self.is_reader(*id)).collect::<Vec<_>>() {
            let (now_us, is_of_another) = (self.now_us, self.is_of_another(id));
            let Some(machine) = self.machines.get_mut(&id) else { continue };
            let is_in = machine
                .process
                .as_ref()
                .is_some_and(|process| process.threads.iter().all(|thread| thread.core.is_in_quorum()));
            // Who has no history waits for those that are to found one with it, and more names would be more to wait for.
            if machine.held.stored == Restored::default() && !machine.joins {
                continue;
            }
            let since_us = *machine.out_since_us.get_or_insert(now_us);
            if is_in {
                machine.out_since_us = None;
            } else if since_us + OUT_US < now_us && is_of_another {
                self.empty_what_is_of_another(id);
            } else if since_us + OUT_US < now_us && !machine.names_all {
                machine.names_all = true;
                self.stop(id);
            }
        }
    }
}
