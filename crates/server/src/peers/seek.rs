//! A reader looks for a parent, follows it for as long as it can, and goes to the next one; or to a better one, where
//! nobody loses anything by that.

use std::rc::Rc;
use std::time::Duration;

use stoa_core::{HistoryId, ParentChoice, ParentOffer, ParentTraits};
use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout, timeout_at};

use super::listing::ReaderList;
use super::member::Backoff;
use super::reader_hello::{self, NO_ENSEMBLE, ReaderHello, ReaderPurpose, Ticket};
use super::stream::{self, Stream};
use super::tie::{self, Heard};
use super::ties::{LEADS, Mouth, TieEvent};
use super::{HANDSHAKE_PATIENCE, Inner, PeerAddress, late, snapshot};
use crate::random;

/// A parent that was one for so long was a good one: the next one need not be waited for.
const LASTED: Duration = Duration::from_secs(3);
/// What a parent's refusal begins with.
const REFUSED: &str = "refused: ";
/// As what its snapshots are stored.
const PARENT: u64 = 255;
/// The ticket of no snapshot: who shows it wants to know how the other one stands, and is sent nothing.
const NO_TICKET: Ticket = [0; 16];
/// How long those are waited for that say later than the first one how they stand.
const STRAGGLERS: Duration = Duration::from_millis(300);
/// So long at least, and up to twice as long, a reader stays where it is before it looks whether it could do better.
const LOOK_PAUSE: Duration = Duration::from_secs(60);
/// How often it is tried to leave when nobody waits for anything, and how long.
const LEAVE_PAUSE: Duration = Duration::from_millis(50);
const LEAVE_TRIES: u32 = 40;
/// How often a parent is told who is below this reader, if that is news.
const LIST_PAUSE: Duration = Duration::from_secs(1);

/// A connection to a parent that is proven.
struct Called {
    stream: Stream,
    hello: ReaderHello,
    history: HistoryId,
    round_trip: Duration,
}

/// Whether somebody has said that this reader is not let in, and will not be as things are.
fn is_turned_away(why: &str) -> bool {
    why.starts_with(REFUSED) && !why.ends_with(NO_ENSEMBLE) && !why.ends_with(LEADS)
}

impl Inner {
    /// Follows one of these, for ever.
    pub(super) async fn seek(self: Rc<Self>, parents: Vec<PeerAddress>, in_order: bool) {
        let seed = random::bytes().map_or(self.common.ties.tag(), u64::from_le_bytes);
        let mut choice = ParentChoice::new(seed, in_order);
        let parents = Rc::new(parents);
        let mut backoff = Backoff::new();
        let mut told: Vec<Option<String>> = parents.iter().map(|_| None).collect();
        loop {
            let mut is_let_in = false;
            for at in self.turn(&parents, &mut choice, in_order).await {
                let (mut next, mut was_followed) = (Some((at, None)), false);
                while let Some((at, called)) = next.take() {
                    let address = place(&parents[at]);
                    self.common.ties.tries(&address);
                    let called = match called {
                        Some(called) => Ok(called),
                        None => self.call(&parents[at], ReaderPurpose::Words, &NO_TICKET).await,
                    };
                    match called {
                        Ok(called) => {
                            (told[at], was_followed, is_let_in) = (None, true, true);
                            let began = Instant::now();
                            let (why, better) =
                                Rc::clone(&self).follow((&parents, at), called, &mut choice).await;
                            let error = better.is_none().then(|| format!("{address}: {why}"));
                            match error {
                                Some(_) => tracing::warn!("{address} is this reader's parent no more: {why}"),
                                None => tracing::info!("{address} is left: {why}"),
                            }
                            self.common.ties.detach(error);
                            next = better.map(|(at, called)| (at, Some(called)));
                            if began.elapsed() >= LASTED {
                                backoff = Backoff::new();
                            }
                        }
                        Err(why) => {
                            self.common.ties.was_not_let_in(is_turned_away(&why));
                            self.common.ties.detach(Some(format!("{address}: {why}")));
                            complain(&address, why, &mut told[at]);
                        }
                    }
                }
                sleep(backoff.next()).await;
                if was_followed && !in_order {
                    // How things stand is another matter by now.
                    break;
                }
            }
            if !is_let_in {
                self.common.ties.tried_all();
            }
        }
    }

    /// In which order they are tried.
    async fn turn(
        self: &Rc<Self>,
        parents: &Rc<Vec<PeerAddress>>,
        choice: &mut ParentChoice,
        in_order: bool,
    ) -> Vec<usize> {
        let offers = match in_order || parents.len() < 2 {
            true => vec![None; parents.len()],
            false => self.look(parents).await,
        };
        choice.order(&offers)
    }

    /// Asks all of them how they stand.
    async fn look(self: &Rc<Self>, parents: &Rc<Vec<PeerAddress>>) -> Vec<Option<ParentOffer>> {
        let mut asked = JoinSet::new();
        for at in 0..parents.len() {
            let (inner, parents) = (Rc::clone(self), Rc::clone(parents));
            asked.spawn_local(async move {
                let called = inner.call(&parents[at], ReaderPurpose::Snapshot, &NO_TICKET).await.ok();
                (at, called.and_then(|called| called.hello.tie.map(|tie| tie.offer(called.round_trip))))
            });
        }
        let mut offers = vec![None; parents.len()];
        let mut until = Instant::now() + HANDSHAKE_PATIENCE;
        while let Ok(Some(answered)) = timeout_at(until, asked.join_next()).await {
            if let Ok((at, offer)) = answered {
                offers[at] = offer;
                if offer.is_some() {
                    until = until.min(Instant::now() + STRAGGLERS);
                }
            }
        }
        offers
    }

    /// The handshake on a connection to who may be a parent.
    async fn call(
        &self,
        parent: &PeerAddress,
        purpose: ReaderPurpose,
        ticket: &Ticket,
    ) -> Result<Called, String> {
        let meeting = async {
            let mut socket = stream::open(parent).await?;
            // For the first partition, whose thread has the log.
            let said = socket.write_u8(0).await;
            said.map_err(|error| format!("the connection broke: {error}"))?;
            let mut stream = Stream::to(socket, self.tls.as_ref(), &parent.host).await?;
            let sides = (&self.local, &*self.common.ties);
            let (hello, history, round_trip) =
                reader_hello::call(&mut stream, sides, purpose, ticket).await?;
            Ok(Called { stream, hello, history, round_trip })
        };
        timeout(HANDSHAKE_PATIENCE, meeting).await.unwrap_or_else(|_| Err(late()))
    }

    /// Follows a parent until that ends, and says why it has; and which one is better and connected, if that is why.
    async fn follow(
        self: Rc<Self>,
        (parents, at): (&Rc<Vec<PeerAddress>>, usize),
        Called { stream, hello, history, .. }: Called,
        choice: &mut ParentChoice,
    ) -> (String, Option<(usize, Called)>) {
        let (ties, address) = (&self.common.ties, place(&parents[at]));
        let of_site = hello.site.as_ref().map(|site| format!(" of {site}")).unwrap_or_default();
        let name = hello.name() + of_site.as_str();
        tracing::info!("{name} ({address}) is this reader's parent, {}", hello.software);
        if hello.site != ties.site() {
            match &hello.site {
                Some(site) => tracing::info!("this reader is one of the site {site}"),
                None => tracing::info!("this reader's ensemble is no site"),
            }
        }
        ties.set_site(hello.site.clone());
        let (link, mouth, said) = ties.attach(|status| {
            status.name = name;
            status.software = hello.software;
        });
        // The first release with readers says nothing of how it stands, and takes no more than it says.
        let takes_more = hello.tie.is_some();
        let traits = ParentTraits { takes_reads: takes_more, is_of_site: hello.site.is_some() };
        ties.tell(0, TieEvent::ParentCame(link, history, traits));
        let carried = tie::run(stream, (ties, &mouth), said, |heard| match heard {
            Heard::Word(word) => ties.tell(0, TieEvent::ParentSays(link, word)),
            Heard::List(_) => mouth.end("it lists readers to one below it; is it of another release?"),
            Heard::Offer(ticket) => {
                let fetching = self.spawn(Rc::clone(&self).fetch(parents[at].clone(), ticket));
                if let Some(older) = self.fetching.replace(Some(fetching)) {
                    older.abort();
                }
            }
        });
        let mut better = None;
        let why = tokio::select! {
            why = carried => why,
            () = self.look_for_better((parents, at), link, (choice, &mut better)) => String::new(),
            () = self.tell_list(&mouth), if takes_more => String::new(),
        };
        ties.tell(0, TieEvent::ParentGone(link));
        (why, better)
    }

    /// Now and then looks whether another one is better, and has this one left for it, which is then in `better`. Never ends.
    async fn look_for_better(
        self: &Rc<Self>,
        (parents, at): (&Rc<Vec<PeerAddress>>, usize),
        link: u64,
        (choice, better): (&mut ParentChoice, &mut Option<(usize, Called)>),
    ) {
        loop {
            let pause_us = choice.pause_us(u64::try_from(LOOK_PAUSE.as_micros()).unwrap_or(u64::MAX));
            sleep(Duration::from_micros(pause_us)).await;
            if parents.len() < 2 {
                continue;
            }
            let offers = self.look(parents).await;
            let Some(to) = choice.better(at, &offers) else { continue };
            let Ok(called) = self.call(&parents[to], ReaderPurpose::Words, &NO_TICKET).await else {
                continue;
            };
            tracing::info!("{} would be a better parent for this reader", place(&parents[to]));
            // It is there before this one is left: so nobody is without one for long.
            *better = Some((to, called));
            for _ in 0..LEAVE_TRIES {
                self.common.ties.tell(0, TieEvent::ParentBetter(link));
                sleep(LEAVE_PAUSE).await;
            }
            *better = None;
        }
    }

    /// Tells the parent who is below this reader. Never ends.
    async fn tell_list(&self, mouth: &Mouth) {
        let mut told = ReaderList::default();
        loop {
            let list = self.common.ties.list();
            if list != told {
                mouth.listing(&list);
                told = list;
            }
            sleep(LIST_PAUSE).await;
        }
    }

    /// Fetches a snapshot that the parent has offered.
    async fn fetch(self: Rc<Self>, parent: PeerAddress, ticket: Ticket) {
        let stream = match self.call(&parent, ReaderPurpose::Snapshot, &ticket).await {
            Ok(called) => called.stream,
            Err(why) => return self.common.complaints.say(&format!("no snapshot of the parent: {why}")),
        };
        tracing::info!("a snapshot of the parent is coming");
        let report = |result: Result<snapshot::Arrival, String>| match result {
            Ok(snapshot::Arrival { header, file, .. }) => {
                self.common.ties.tell(0, TieEvent::ParentSnapshot { header, file });
            }
            Err(why) => {
                self.common
                    .complaints
                    .say(&format!("the snapshot of the parent could not be received: {why}"));
            }
        };
        let (whole, place) = (self.incoming(PARENT), self.place(PARENT));
        snapshot::receive(stream, "this reader's parent", whole, place, report).await;
    }
}

fn place(parent: &PeerAddress) -> String {
    format!("{} port {}", parent.host, parent.port)
}

/// Says why one cannot be the parent, unless that was said already: it is the same as often as it is tried.
fn complain(address: &str, why: String, told: &mut Option<String>) {
    if told.as_ref() == Some(&why) {
        return;
    }
    match why.ends_with(NO_ENSEMBLE) || why.ends_with(LEADS) {
        true => tracing::info!("{address} cannot be this reader's parent: {why}"),
        false => tracing::warn!("{address} cannot be this reader's parent: {why}"),
    }
    *told = Some(why);
}
