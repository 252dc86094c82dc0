//! Where tokens are to be: what the policy decides, carried out at the hub.
//!
//! It is asked once for each request, when that is first looked at. What the hub holds is given away behind the request's
//! outcome. For what another site holds it says whether the request is carried out there (a visit), or the token comes
//! back, and maybe goes on to who has asked, behind the outcome. How holders use their tokens is seen in what they ship.

use crate::replica::Replica;
use crate::site_news::SiteNews;
use crate::site_policy::{Away, TicketPlan, TokenMove};
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;
use stoa_partition::{Asked, Item, Outcome, SiteItem};
use stoa_placement::FIRST;
use stoa_sites::{Access, Decision, Next, Rules, Site, is_at_or_below, is_movable};
use stoa_timeline::Origin;
use stoa_tree::{Found, SiteId, Ticket, Tree};
use stoa_wire::{Opcode, Reader, Request};

/// The write that is asked, if it is one and can be read.
pub(super) fn request_of<'a>(asked: &Asked<'a>) -> Option<Request<'a>> {
    let Asked::Write { opcode, body, .. } = asked else { return None };
    Request::decode(*opcode, &mut Reader::new(body)).ok()
}

/// Whether what is asked changes nothing, and is there to have its turn.
pub(super) fn only_waits(asked: &Asked<'_>) -> bool {
    matches!(asked, Asked::Write { opcode, .. } if opcode.is_read() || *opcode == Opcode::Sync)
}

/// What needs tokens.
pub(super) struct Needs<'a> {
    pub(super) request: Option<&'a Request<'a>>,
    /// What programs have needed.
    pub(super) tokens: &'a BTreeSet<String>,
}

impl Needs<'_> {
    fn for_each(&self, tree: &Tree, each: &mut dyn FnMut(&str)) {
        if let Some(request) = self.request {
            tree.tokens_of(request, &mut |path| each(path));
        }
        self.tokens.iter().for_each(|path| each(path));
    }
}

impl Replica {
    /// The round trip between another site and this one was measured, in microseconds.
    pub fn site_round_trip(&mut self, site: SiteId, us: u32) {
        self.sites.policy.measured(site, us);
    }

    /// What the operator says of tokens. Returns which lines cannot be used; `site` knows the names of sites. It counts
    /// whoever leads: who does not keeps it for when it does.
    pub fn site_rules(&mut self, content: &[u8], site: impl Fn(&str) -> Option<SiteId>) -> Vec<String> {
        let (rules, bad) = Rules::parse(content, |name| site(name).map(Site));
        self.sites.policy.set_rules(rules);
        bad
    }

    /// This server leads.
    pub(super) fn begin_policy(&mut self) {
        let tree = self.applied.partition.tree();
        let hub = tree.hub().filter(|hub| Some(*hub) == tree.own_site());
        self.sites.policy.begin(hub, self.config.site.unwrap_or_default().policy);
    }

    // ---- requests ----

    /// A client of the leader has had something changed here, and maybe it is known which znode that is. At the hub that is
    /// told to the policy.
    #[inline]
    pub(super) fn accessed_here(&mut self, request: &Request<'_>, found: Option<&Found<'_>>) {
        let Some(own) = self.applied.partition.tree().own_site() else { return };
        self.sites.counts.writes_local += 1;
        if !self.sites.policy.is_there() {
            return;
        }
        let Some(path) = found.map(Found::path) else {
            let needs = Needs { request: Some(request), tokens: &BTreeSet::new() };
            return self.accessed(&needs, own, TicketPlan::default());
        };
        self.sites.policy.is_written(path, false);
        if let Some(it) = self.sites.policy.decide(path, own, own, self.now.mono_us) {
            self.move_tokens(it);
        }
    }

    /// The same of a client of another server of the hub, and what programs have needed for it.
    pub(super) fn accessed_by_contact(
        &mut self,
        origin: Origin,
        asked: &Asked<'_>,
        of_programs: &BTreeSet<String>,
    ) {
        if self.sites.policy.is_there()
            && origin.site == 0
            && !(only_waits(asked) && of_programs.is_empty())
            && let Some(own) = self.applied.partition.tree().own_site()
            && let Asked::Write { session, .. } = asked
            && let Some(request) = request_of(asked)
        {
            let is_call = self.applied.partition.is_taken(*session, &request);
            let request = Some(&request).filter(|_| !is_call);
            self.accessed(&Needs { request, tokens: of_programs }, own, TicketPlan::default());
        }
    }

    /// At the hub: what a site has asked for is carried out here. Its tokens go where they are to be.
    pub(super) fn accessed(&mut self, needs: &Needs<'_>, by: SiteId, plan: TicketPlan) {
        if !self.sites.policy.is_there() {
            return;
        }
        let tree = self.applied.partition.tree();
        if self.sites.policy.has_reads() {
            needs.for_each(tree, &mut |path| self.sites.policy.is_written(path, false));
        }
        let Some(own) = tree.own_site() else { return };
        let (now_us, mut moves) = (self.now.mono_us, plan.moves);
        needs.for_each(tree, &mut |path| {
            if !plan.decided.iter().any(|decided| decided == path) {
                moves.extend(self.sites.policy.decide(path, by, own, now_us));
            }
        });
        moves.into_iter().for_each(|it| self.move_tokens(it));
    }

    /// At the hub: other sites hold tokens that a request needs. Says who of them is to carry it out, if anybody: else
    /// they are to be had here, and what else comes with them is recalled now.
    pub(super) fn visit_or_plan(
        &mut self,
        ticket: Ticket,
        needed: &BTreeSet<String>,
        missing: &[(String, SiteId)],
        may_visit: bool,
    ) -> Option<SiteId> {
        if self.sites.policy.has_plan(ticket) {
            // More has shown that it needs, or it has come back.
            self.sites.policy.reserve(ticket, needed);
            return None;
        }
        let policy = self.sites.policy.get()?;
        let hub = policy.sites().hub().0;
        let at_ms = self.now.mono_us / 1000;
        let holder = missing.first().map(|(_, holder)| *holder)?;
        let mut is_visit = may_visit && needed.len() == missing.len();
        let mut plan = TicketPlan::default();
        // What holders have done the policy has been told when it came, so that nothing is left to say of uses here.
        for (path, at) in missing {
            if self.sites.broker.is_recalled(path) {
                // It will be here. What becomes of it then is decided then.
                is_visit = false;
                continue;
            }
            let access = Access { path, site: Site(ticket.site), holder: Site(*at), holder_uses: 0, at_ms };
            let Decision { next, subtree, along } = policy.decide(&access);
            is_visit &= next == Next::Stay && *at == holder;
            plan.decided.push(path.clone());
            let (subtree, to) = match next {
                // If it has to come here for the sake of others, it goes back.
                Next::Stay => (path.len(), *at),
                Next::Hub => (subtree, hub),
                Next::Site(Site(to)) => (subtree, to),
            };
            plan.moves.push(TokenMove { path: path.clone(), subtree, along, to });
        }
        if is_visit {
            plan.moves.clear();
            self.sites.policy.plan(ticket, plan);
            return Some(holder);
        }
        self.recall_with(&plan.moves, missing);
        self.sites.policy.plan(ticket, plan);
        self.sites.policy.reserve(ticket, needed);
        None
    }

    /// What goes with tokens that are recalled, and is held elsewhere, is recalled with them.
    fn recall_with(&mut self, moves: &[TokenMove], missing: &[(String, SiteId)]) {
        for it in moves {
            let subtree = &it.path[..it.subtree];
            let of_path = missing.iter().find(|(path, _)| *path == it.path).map(|(_, holder)| *holder);
            if self.applied.placement.of(subtree) != FIRST {
                // Whoever has it, who knows that says so.
                let own = self.applied.partition.tree().own_site().unwrap_or_default();
                if subtree != it.path {
                    self.bring(subtree, own);
                }
                it.along.iter().for_each(|other| self.bring(other, it.to));
                continue;
            }
            let of_subtree = self.applied.partition.tree().holder_to_be(subtree);
            if subtree != it.path
                && of_subtree == of_path
                && let Some(holder) = of_subtree
            {
                self.recall(subtree, holder);
            }
            for other in &it.along {
                self.bring(other, it.to);
            }
        }
    }

    // ---- tokens ----

    /// Whether tokens can be given to a site: there may never have been such a one, and one that has not joined yet would
    /// not hear of what it is asked to do with them.
    pub(super) fn may_hold(&self, site: SiteId) -> bool {
        let has_joined = self.sites.outgoing.get(&site).is_some_and(|outgoing| outgoing.is_open);
        let tree = self.applied.partition.tree();
        !tree.is_lost(site) && (has_joined || tree.streams().imported(site) > 0)
    }

    /// Tokens that are held here go where they are to be, with what goes along.
    fn move_tokens(&mut self, it: TokenMove) {
        let TokenMove { path, subtree, along, to } = it;
        self.give_by_policy(&path[..subtree], to);
        // It may have a mark of its own.
        self.give_by_policy(&path, to);
        for other in along {
            self.bring(&other, to);
        }
    }

    /// The token of what is at a path, if anything is, goes to a site, wherever it is.
    pub(super) fn bring(&mut self, path: &str, to: SiteId) {
        let at = self.applied.placement.of(path);
        if at != FIRST {
            if is_movable(path) && !self.sites.policy.is_reserved(path) {
                self.tell_news(at, SiteNews::Bring(path.into(), to));
            }
            return;
        }
        let tree = self.applied.partition.tree();
        let may_go = is_movable(path) && tree.get(path).is_some_and(|it| it.stat().ephemeral_owner == 0);
        match tree.holder_to_be(path).filter(|_| may_go) {
            Some(holder) if holder == to => {}
            Some(holder) if Some(holder) == tree.own_site() => self.give_by_policy(path, to),
            Some(holder) => {
                if Some(to) != tree.own_site() {
                    self.sites.policy.passes(path, to);
                }
                self.recall(path, holder);
            }
            None => {}
        }
    }

    /// Gives a token that is held here to a site. What is gone by then, held elsewhere, or waited for here, is not given.
    fn give_by_policy(&mut self, path: &str, to: SiteId) {
        if self.applied.placement.of(path) != FIRST {
            let may_go = is_movable(path) && self.may_hold(to) && !self.sites.policy.is_reserved(path);
            if may_go && self.applied.partition.tree().own_site() != Some(to) {
                self.give_elsewhere(path, to);
            }
            return;
        }
        let tree = self.applied.partition.tree();
        let (own, holder) = (tree.own_site(), tree.holder_to_be(path));
        let may_go = is_movable(path) && own == holder && own != Some(to) && self.may_hold(to);
        if may_go && !self.sites.policy.is_reserved(path) && self.give_token(path, to).is_ok() {
            self.sites.policy.gave(path, to, self.now.mono_us);
        }
    }

    /// Another partition has been asked for a token that is to go to a site, and a third one has it.
    pub(super) fn is_held_by(&mut self, path: &str, holder: SiteId, to: SiteId) {
        if Some(to) != self.applied.partition.tree().own_site() {
            self.sites.policy.passes(path, to);
        }
        self.recall(path, holder);
    }

    fn recall(&mut self, path: &str, holder: SiteId) {
        if self.sites.broker.recalls(path) {
            self.sites.counts.recalls += 1;
            let item = SiteItem::Recall { to: holder, path };
            self.applied.partition.propose_site_item(None, &item);
        }
    }

    /// What was recalled for a site, and has come, goes on.
    pub(super) fn pass_tokens(&mut self) {
        while let Some((path, to)) = self.sites.policy.next_passing() {
            self.give_by_policy(&path, to);
        }
    }

    /// Now and then: has returned what its holder does not use and another site is likelier to, and sees to it that
    /// tokens are where the operator says.
    pub(super) fn look_after_tokens(&mut self) {
        if self.is_between_reigns() {
            return;
        }
        let Some(away) = self.sites.policy.look(self.now.mono_us) else { return };
        if !self.prepares() {
            return;
        }
        for (path, Away { at, used_us, .. }) in away {
            let tree = self.applied.partition.tree();
            let is_here = self.applied.placement.of(&path) == FIRST;
            if is_here && (tree.holder_to_be(&path) != Some(at) || tree.get(&path).is_none()) {
                self.sites.policy.is_back(&path);
                continue;
            }
            let unused_ms = self.now.mono_us.saturating_sub(used_us) / 1000;
            let Some(policy) = self.sites.policy.get() else { return };
            let to = policy.told(&path).map(|Site(to)| to);
            let hub = policy.sites().hub().0;
            if let Some(to) = to {
                if to == hub || self.may_hold(to) {
                    self.bring(&path, to);
                }
            } else if policy.is_to_return(&path, Site(at), unused_ms) {
                self.bring(&path, hub);
            }
        }
        let Some(policy) = self.sites.policy.get() else { return };
        let pins: Vec<(String, SiteId)> =
            policy.rules().pins().map(|(path, Site(site))| (path.into(), site)).collect();
        for (path, to) in pins {
            if Some(to) == self.applied.partition.tree().own_site() || self.may_hold(to) {
                self.bring(&path, to);
            }
        }
    }

    // ---- what sites ship ----

    /// Another site has done something by itself: at the hub that is told to the policy. Returns whether it is a write.
    pub(super) fn note_use(&mut self, by: SiteId, item: &Item<'_>) -> bool {
        let update = match &item.outcome {
            Outcome::Update(update) => update,
            Outcome::Ran(ran) => match &ran.update {
                Some(update) => update,
                None => return false,
            },
            _ => return false,
        };
        // What another site has asked there is known here, and is no use by the holder.
        let asker = item.origin.map_or(0, |origin| origin.site);
        if asker != 0 && asker != by {
            return false;
        }
        let (now_us, mut is_write) = (self.now.mono_us, false);
        let tree = self.applied.partition.tree();
        update.for_each_needed(|path| {
            is_write = true;
            if let Some(top) = tree.hard_quota_above(path) {
                self.sites.policy.used(top, by, now_us);
            }
            if !is_at_or_below(path, "/zookeeper") {
                self.sites.policy.used(path, by, now_us);
            }
        });
        is_write && asker == 0
    }

    /// A site has written so often by itself.
    pub(super) fn note_local_writes(&mut self, site: SiteId, writes: u32) {
        let at_ms = self.now.mono_us / 1000;
        if let Some(policy) = self.sites.policy.get().filter(|_| writes > 0) {
            policy.wrote_locally(Site(site), writes, at_ms);
        }
    }
}
