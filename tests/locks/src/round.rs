//! A round: one lock, taken by all, while things go wrong.

use std::fmt::Write as _;
use std::time::Duration;

use stoa_client::{Client, ErrorCode, Options};
use tokio::time::{sleep, timeout};

use crate::crew::{Crew, SESSION_TIMEOUT, ways};
use crate::ensemble::{Ensemble, Server};
use crate::guard::{Guard, Seen};
use crate::nemesis::{Deck, Nemesis};

/// Entries after a fault that count as progress: no client could be alone in it.
const PROGRESS: u64 = 20;
/// So long whatever must happen may take.
const PATIENCE: Duration = Duration::from_secs(40);
/// Sessions of processes that were killed end by then, though a new leader grants each its timeout anew.
const GONE_PATIENCE: Duration = Duration::from_secs(15);

/// What is broken, how often, and for whom.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) name: String,
    pub(crate) seed: u64,
    pub(crate) partitions: u8,
    pub(crate) steps: usize,
}

/// What a round has come to.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) seen: Seen,
    pub(crate) told: String,
    pub(crate) complaints: Vec<String>,
}

impl Plan {
    fn subtree(&self) -> String {
        format!("/locks-{}", self.name)
    }

    /// Lets all take the lock while faults are drawn, heals everything, and looks at what is left.
    pub(crate) async fn run(&self, ensemble: &Ensemble, deck: &mut Deck) -> Result<Outcome, String> {
        let guard = Guard::open().await.map_err(|error| format!("cannot listen: {error}"))?;
        let (subtree, clients) = (self.subtree(), ways().len());
        let path = format!("{subtree}/deep/lock");
        let crew = Crew::start(ensemble, &guard, self.seed, vec![path.clone(); clients])?;
        let operator = connect(&ensemble.servers).await?;
        let mut complaints = Vec::new();
        let mut told = Vec::new();
        if timeout(PATIENCE, guard.until_all_entered(clients)).await.is_err() {
            complaints.push(format!("after {PATIENCE:?} not all have had the lock"));
        }
        let nemesis = Nemesis {
            ensemble,
            guard: &guard,
            crew: &crew,
            operator: &operator,
            subtree: &subtree,
            partitions: self.partitions,
            clients,
        };
        for _ in 0..self.steps {
            let faults = deck.draw();
            let names: Vec<_> = faults.iter().map(ToString::to_string).collect();
            told.push(names.join(" with "));
            let problems = nemesis.wreak(&faults).await;
            complaints.extend(problems.iter().map(|problem| format!("{}: {problem}", names.join(" with "))));
            ensemble.heal().await?;
            let wanted = guard.entered() + PROGRESS;
            if timeout(PATIENCE, guard.until_entered(wanted)).await.is_err() {
                complaints.push(format!("no progress for {PATIENCE:?} after {}", names.join(" with ")));
                // It would be the same after each.
                break;
            }
        }
        complaints.extend(finish(ensemble, &guard, crew, &path).await);
        // Nothing depends on it any more.
        let _ = operator.close().await;
        let seen = guard.seen();
        complaints.extend(seen.complaints.iter().cloned());
        let told = tell(&seen, &told.join(", "));
        Ok(Outcome { seen, told, complaints })
    }

    /// Two clients that take one lock, and a third one that takes another one and believes that it was the same: for
    /// the sake of the alarm.
    pub(crate) async fn run_astray(&self, ensemble: &Ensemble) -> Result<Seen, String> {
        let guard = Guard::open().await.map_err(|error| format!("cannot listen: {error}"))?;
        let paths = ["lock", "lock", "other"].map(|name| format!("{}/{name}", self.subtree()));
        let crew = Crew::start(ensemble, &guard, self.seed, paths.to_vec())?;
        let entered = timeout(PATIENCE, guard.until_entered(5 * PROGRESS)).await;
        drop(crew);
        entered.map_err(|_| format!("no progress for {PATIENCE:?} with all well"))?;
        Ok(guard.seen())
    }
}

/// Everything is well: each client must get the lock once more, and leave nothing behind while its session lives.
async fn finish(ensemble: &Ensemble, guard: &Guard, crew: Crew<'_>, path: &str) -> Vec<String> {
    let mut complaints = Vec::new();
    let clients = ways().len();
    guard.end();
    if timeout(PATIENCE, guard.until_resting(clients)).await.is_err() {
        let resting = guard.resting();
        let missing = ways().into_iter().enumerate().filter(|(number, _)| !resting.contains(number));
        let missing: Vec<_> = missing.map(|(number, way)| format!("{number} ({way})")).collect();
        complaints.push(format!("{} have not had the lock for {PATIENCE:?}", missing.join(", ")));
    }
    complaints
        .extend(crew.dead().into_iter().map(|number| format!("the process of client {number} has ended")));
    for (number, server) in ensemble.servers.iter().enumerate() {
        if let Err(left) = until_nothing_is_left(server, path).await {
            complaints.push(format!("server {}: {left}", number + 1));
        }
    }
    let left = crew.close().await;
    complaints.extend(left.into_iter().map(|number| format!("client {number} did not close its session")));
    complaints
}

async fn connect<'a>(servers: impl IntoIterator<Item = &'a Server>) -> Result<Client, String> {
    let addresses: Vec<_> = servers.into_iter().map(Server::address).collect();
    let options = Options::new(&addresses.join(",")).map_err(|error| error.to_string())?;
    let options = options.session_timeout(SESSION_TIMEOUT).connect_timeout(PATIENCE);
    Client::connect(options).await.map_err(|error| error.to_string())
}

/// Waits until there is no leaf at the path of a lock, and no place below it, in the view of a server.
async fn until_nothing_is_left(server: &Server, path: &str) -> Result<(), String> {
    let client = connect([server]).await?;
    let mut left = String::new();
    let gone = async {
        loop {
            left = match look(&client, path).await {
                Ok(None) => return,
                Ok(Some(left)) => left,
                Err(code) => format!("{path} cannot be looked at: {code}"),
            };
            sleep(Duration::from_millis(50)).await;
        }
    };
    let result = timeout(GONE_PATIENCE, gone).await;
    // It has nothing to lose.
    let _ = client.close().await;
    result.map_err(|_| format!("after {GONE_PATIENCE:?} there is {left}"))
}

/// What is left of a lock that nobody has or wants.
async fn look(client: &Client, path: &str) -> Result<Option<String>, ErrorCode> {
    client.sync(path).await?;
    match client.get_children2(path).await {
        Err(ErrorCode::NoNode) => Ok(None),
        Err(code) => Err(code),
        Ok((names, stat)) if names.is_empty() && stat.ephemeral_owner == 0 => Ok(None),
        Ok((names, stat)) if names.is_empty() => {
            Ok(Some(format!("a leaf of session {:#x}", stat.ephemeral_owner)))
        }
        Ok((names, _)) => Ok(Some(format!("below it {}", names.join(" ")))),
    }
}

fn tell(seen: &Seen, faults: &str) -> String {
    let mut by_way = String::new();
    for (number, way) in ways().into_iter().enumerate() {
        let entries = seen.entries.get(&number).copied().unwrap_or(0);
        // A String takes everything.
        let _ = write!(by_way, "{}{way} {entries}", if number == 0 { "" } else { ", " });
    }
    let Seen { writes, refused, overlaps, leaves, places, without, .. } = seen;
    format!(
        "{by_way}; {writes} writes, {refused} refused, {overlaps} overtaken, {without} times without the lock; \
         seen {leaves} leaves and {places} places; {faults}"
    )
}
