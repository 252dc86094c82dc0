//! What operations of one client take, while nobody else asks anything: section III-B, which the draft leaves open.

use crate::{Invalid, Spread, is_time};

/// The largest ensemble that is modelled.
pub const SERVERS_MAX: usize = 51;

/// The servers that replicate one another: what lies between a leader and the others.
#[derive(Debug, Clone)]
pub struct Ensemble {
    /// Round trips between the leader and each of the others.
    followers: Vec<Spread>,
    /// A synced write to a log.
    disk: Spread,
}

impl Ensemble {
    /// A leader with these round trips to the others.
    ///
    /// # Errors
    /// When there are too many.
    pub fn new(followers: Vec<Spread>, disk: Spread) -> Result<Self, Invalid> {
        Invalid::unless(followers.len() < SERVERS_MAX, "an ensemble has at most 51 servers")?;
        Ok(Self { followers, disk })
    }

    /// This many servers, all as far from one another.
    ///
    /// # Errors
    /// When there is none, or there are too many.
    pub fn even(servers: usize, round_trip: &Spread, disk: Spread) -> Result<Self, Invalid> {
        Invalid::unless(servers > 0, "an ensemble has a server")?;
        Self::new(vec![round_trip.clone(); servers - 1], disk)
    }

    /// How many servers there are.
    #[must_use]
    pub fn servers(&self) -> usize {
        self.followers.len() + 1
    }

    /// How many of the others must have something before a majority has it.
    fn awaited(&self) -> usize {
        self.servers() / 2
    }

    /// From when a leader has prepared an update until it has applied it: until it is on its own disk and on those
    /// of a majority. The disks work at the same time.
    ///
    /// This is equation 1 but for two things: the coordinator waits for the fastest that make a majority and not
    /// for all, and what it waits for are round trips with a disk at their far end.
    #[must_use]
    pub fn commit(&self) -> Spread {
        if self.followers.is_empty() {
            return self.disk.clone();
        }
        let stored: Vec<Spread> =
            self.followers.iter().map(|round_trip| round_trip.plus(&self.disk)).collect();
        Spread::latest(&[self.disk.clone(), Spread::kth(&stored, self.awaited())])
    }

    /// Until a leader knows that it still leads: a round without disks.
    #[must_use]
    pub fn confirm(&self) -> Spread {
        if self.followers.is_empty() {
            return Spread::zero();
        }
        Spread::kth(&self.followers, self.awaited())
    }
}

/// The server that a client is connected to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Contact {
    /// The leader.
    Leader,
    /// One of the others, counted from 0.
    Follower(usize),
}

/// A client and the servers.
#[derive(Debug, Clone)]
pub struct Network {
    client: Spread,
    ensemble: Ensemble,
    contact: Contact,
}

impl Network {
    /// A client with this round trip to its contact server.
    ///
    /// # Errors
    /// When there is no such server.
    pub fn new(client: Spread, ensemble: Ensemble, contact: Contact) -> Result<Self, Invalid> {
        let exists = match contact {
            Contact::Leader => true,
            Contact::Follower(index) => index < ensemble.followers.len(),
        };
        Invalid::unless(exists, "the contact server is one of the ensemble")?;
        Ok(Self { client, ensemble, contact })
    }

    /// The round trip between the contact server and the leader.
    fn forwarding(&self) -> Spread {
        match self.contact {
            Contact::Leader => Spread::zero(),
            Contact::Follower(index) => self.ensemble.followers[index].clone(),
        }
    }

    /// The round trip between the client and its contact server, which is also what a read takes: the contact
    /// server answers it alone.
    #[must_use]
    pub fn read(&self) -> Spread {
        self.client.clone()
    }

    /// The round trip between the client and the leader.
    #[must_use]
    pub fn to_leader(&self) -> Spread {
        self.client.plus(&self.forwarding())
    }

    /// From prepare until applied, at the leader.
    #[must_use]
    pub fn commit(&self) -> Spread {
        self.ensemble.commit()
    }

    /// From when a leader refuses something until it says so: a refusal is an item of the timeline too, and only a
    /// server that is alone need not wait for it.
    #[must_use]
    pub fn refusal(&self) -> Spread {
        if self.ensemble.servers() == 1 { Spread::zero() } else { self.commit() }
    }

    /// A create, a setData or a delete. A follower forwards it, and answers when it hears that it is committed.
    #[must_use]
    pub fn write(&self) -> Spread {
        self.to_leader().plus(&self.commit())
    }

    /// A sync, behind which a read shows all that was acknowledged before.
    #[must_use]
    pub fn sync(&self) -> Spread {
        self.to_leader().plus(&self.ensemble.confirm())
    }

    /// A new session: TCP's handshake, and an update that creates it.
    #[must_use]
    pub fn connect(&self) -> Spread {
        self.client.plus(&self.write())
    }
}

impl Spread {
    fn zero() -> Self {
        Self::constant(0.0).expect("0 is a length of time")
    }
}

/// The mean time between answers to requests of which always `window` are under way, each of which takes
/// `latency_ms`, at a server that takes `busy_ms` of a processor for each.
///
/// This, and not a latency, is what the paper's Figure 8 shows of asynchronous operations.
///
/// # Errors
/// When nothing is under way, or a time is none.
pub fn interval_ms(latency_ms: f64, window: u32, busy_ms: f64) -> Result<f64, Invalid> {
    Invalid::unless(window > 0, "at least one request is under way")?;
    Invalid::unless(is_time(latency_ms) && is_time(busy_ms), "latency and processor time are times")?;
    Ok(f64::max(latency_ms / f64::from(window), busy_ms))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn constant(ms: f64) -> Spread {
        Spread::constant(ms).unwrap()
    }

    fn network(servers: usize, contact: Contact) -> Network {
        let ensemble = Ensemble::even(servers, &constant(10.0), constant(1.0)).unwrap();
        Network::new(constant(100.0), ensemble, contact).unwrap()
    }

    #[test]
    fn with_constant_times_operations_are_sums_of_trips() {
        let leader = network(3, Contact::Leader);
        assert_eq!(leader.read().mean(), 100.0);
        assert_eq!(leader.write().mean(), 100.0 + 10.0 + 1.0);
        assert_eq!(leader.sync().mean(), 100.0 + 10.0);
        assert_eq!(leader.connect().mean(), 100.0 + 111.0);
        let follower = network(3, Contact::Follower(1));
        assert_eq!(follower.read().mean(), 100.0);
        assert_eq!(follower.write().mean(), 100.0 + 10.0 + 11.0);
        assert_eq!(follower.sync().mean(), 100.0 + 10.0 + 10.0);
        let alone = network(1, Contact::Leader);
        assert_eq!(alone.write().mean(), 101.0);
        assert_eq!((alone.sync().mean(), alone.refusal().mean()), (100.0, 0.0));
    }

    #[test]
    fn a_majority_does_not_wait_for_who_is_far() {
        let far = Ensemble::new([2.0, 80.0, 4.0, 90.0].map(constant).to_vec(), constant(1.0)).unwrap();
        assert_eq!((far.servers(), far.commit().mean(), far.confirm().mean()), (5, 5.0, 4.0));
    }

    #[test]
    fn the_leaders_own_disk_counts() {
        let slow = Spread::exponential(0.0, 50.0).unwrap();
        let near = Ensemble::even(3, &constant(0.0), slow).unwrap();
        // The latest of one disk and of the first of two others: 50 + 25 - 50 / 3.
        assert!((near.commit().mean() / (75.0 - 50.0 / 3.0) - 1.0).abs() < 2e-3);
    }

    #[test]
    fn more_under_way_help_until_the_server_has_no_more() {
        assert_eq!(interval_ms(250.0, 50, 0.1).unwrap(), 5.0);
        assert_eq!(interval_ms(250.0, 5000, 0.1).unwrap(), 0.1);
        assert!(interval_ms(1.0, 0, 0.0).is_err());
    }

    #[test]
    fn a_contact_server_that_is_not_there_is_refused() {
        let ensemble = Ensemble::even(3, &constant(1.0), constant(0.0)).unwrap();
        assert!(Network::new(constant(1.0), ensemble, Contact::Follower(2)).is_err());
        assert!(Ensemble::even(0, &constant(1.0), constant(0.0)).is_err());
    }
}
