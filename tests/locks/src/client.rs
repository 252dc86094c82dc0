//! A client process: takes the lock in one way, again and again, and works with what it protects.
//!
//! It is reckless: it never asks whether it still has the lock. So only tokens keep it from doing harm.

use std::time::Duration;

use clap::Args;
use stoa_client::recipes::{Error, Held, Lock, Primitive};
use stoa_client::{Client, ErrorCode, Options};
use stoa_oracle::random::Random;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::mpsc;
use tokio::time::{sleep, timeout};

use crate::resource::Ending;
use crate::words::{Answer, Said};

/// The name of the way in which the lock is left to choose.
pub(crate) const ADAPTIVE: &str = "adaptive";
/// With the ensemble healed and the server not too slow, a session opens long before.
const CONNECT_TIME: Duration = Duration::from_secs(60);
/// Between two writes of who is to stay.
const STAY_PAUSE: Duration = Duration::from_millis(50);
/// So long a client stays at most: longer than any fault and a session's timeout.
const STAY_WRITES: usize = 160;

#[derive(Debug, Args)]
pub(crate) struct ClientArgs {
    #[arg(long)]
    pub(crate) number: usize,
    #[arg(long)]
    pub(crate) servers: String,
    #[arg(long)]
    pub(crate) session_timeout_ms: u64,
    #[arg(long)]
    pub(crate) direct: bool,
    #[arg(long)]
    pub(crate) path: String,
    /// A primitive's name, or `adaptive`
    #[arg(long)]
    pub(crate) way: String,
    /// Where the resource listens
    #[arg(long)]
    pub(crate) resource: String,
    #[arg(long)]
    pub(crate) seed: u64,
}

/// The resource, as a client sees it.
struct Desk {
    answers: mpsc::Receiver<Answer>,
    stream: OwnedWriteHalf,
}

impl Desk {
    async fn open(address: &str) -> Result<Self, String> {
        let stream = TcpStream::connect(address).await.map_err(|error| format!("{address}: {error}"))?;
        let (reading, stream) = stream.into_split();
        let (tell, answers) = mpsc::channel(1);
        tokio::spawn(listen(reading, tell));
        Ok(Self { answers, stream })
    }

    async fn say(&mut self, said: Said) -> Result<Answer, String> {
        let line = format!("{said}\n");
        self.stream.write_all(line.as_bytes()).await.map_err(|error| error.to_string())?;
        self.hear().await
    }

    async fn hear(&mut self) -> Result<Answer, String> {
        self.answers.recv().await.ok_or_else(|| "the resource is gone".to_owned())
    }
}

/// Hears what the resource says. A process that nobody listens to any more has nothing to live for.
async fn listen(reading: OwnedReadHalf, tell: mpsc::Sender<Answer>) {
    let mut lines = BufReader::new(reading).lines();
    while let Ok(Some(line)) = lines.next_line().await {
        let Ok(answer) = line.parse() else { break };
        if tell.send(answer).await.is_err() {
            break;
        }
    }
    std::process::exit(1);
}

/// Works until it is told to close its session.
pub(crate) async fn run(args: ClientArgs) -> Result<(), String> {
    let mut desk = Desk::open(&args.resource).await?;
    let options = Options::new(&args.servers).map_err(|error| error.to_string())?;
    let options = options
        .session_timeout(Duration::from_millis(args.session_timeout_ms))
        .connect_timeout(CONNECT_TIME)
        .direct(args.direct);
    let client = Client::connect(options).await.map_err(|error| error.to_string())?;
    let lock = match args.way.as_str() {
        ADAPTIVE => Lock::new(&client, &args.path),
        way => {
            let primitive: Primitive = way.parse().map_err(|error| format!("{error}"))?;
            Lock::with(&client, &args.path, primitive)
        }
    };
    let mut worker = Worker { client, lock, path: args.path, random: Random::new(args.seed) };
    let mut answer = desk.say(Said::Hello(args.number)).await?;
    while answer == Answer::Take {
        let said = worker.turn(&mut desk).await?;
        answer = desk.say(said).await?;
    }
    while answer != Answer::Close {
        answer = desk.hear().await?;
    }
    worker.client.close().await.map_err(|code| format!("cannot close its session: {code}"))
}

struct Worker {
    client: Client,
    lock: Lock<Client>,
    path: String,
    random: Random,
}

impl Worker {
    fn ms(&mut self, limit: usize) -> Duration {
        Duration::from_millis(self.random.below(limit) as u64)
    }

    /// Takes the lock once. Returns how that ended.
    async fn turn(&mut self, desk: &mut Desk) -> Result<Said, String> {
        // Now and then all think for long, and the lock is free.
        let pause = if self.random.once_in(4) { 800 } else { 50 };
        sleep(self.ms(pause)).await;
        let held = match self.take().await {
            Ok(Some(held)) => held,
            Ok(None) | Err(Error::SessionLost) => return Ok(Said::Nothing),
            Err(error) if is_for_now(&error) => return Ok(Said::Nothing),
            Err(error) => return Ok(Said::Problem(format!("while it waited: {error}"))),
        };
        let seen = self.work(&held, desk).await?;
        let was_alone = desk.say(Said::Leave(seen)).await? == Answer::Done;
        // Who was not alone has something to explain.
        if was_alone && self.random.once_in(8) {
            drop(held);
            return Ok(Said::Over(Ending::Dropped));
        }
        Ok(match held.release().await {
            Ok(()) => Said::Over(Ending::Released),
            Err(Error::SessionLost) => Said::Over(Ending::Lost),
            // It is given back in the background.
            Err(error) if is_for_now(&error) => Said::Over(Ending::Dropped),
            Err(error) => Said::Problem(format!("when it gave the lock back: {error}")),
        })
    }

    /// `None` is to have given up.
    async fn take(&mut self) -> Result<Option<Held<Client>>, Error> {
        match self.random.below(8) {
            0 => self.lock.try_acquire().await,
            1 => {
                let patience = self.ms(300);
                timeout(patience, self.lock.acquire()).await.map_or(Ok(None), |held| held.map(Some))
            }
            _ => self.lock.acquire().await.map(Some),
        }
    }

    /// Works with what the lock protects, as long as that lets it. Says, if it has looked, whether it holds the lock
    /// by a leaf.
    async fn work(&mut self, held: &Held<Client>, desk: &mut Desk) -> Result<Option<bool>, String> {
        let token = held.token();
        let (writes, stays) = match desk.say(Said::Enter(token)).await? {
            Answer::Done => (self.random.below(4), false),
            Answer::Stay => (STAY_WRITES, true),
            _ => return Ok(None),
        };
        for _ in 0..writes {
            let pause = if stays { STAY_PAUSE } else { self.ms(6) };
            sleep(pause).await;
            if desk.say(Said::Write(token)).await? != Answer::Done {
                return Ok(None);
            }
        }
        if stays || !self.random.once_in(3) {
            return Ok(None);
        }
        let stat = self.client.exists(&self.path).await.ok().flatten();
        Ok(stat.and_then(|stat| match stat.ephemeral_owner {
            0 => Some(false),
            // What stands there in a later session is no matter.
            owner => (owner == held.session()).then_some(true),
        }))
    }
}

/// Refusals that are to be expected of servers that have no leader.
fn is_for_now(error: &Error) -> bool {
    matches!(error, Error::Refused { code: ErrorCode::SystemError | ErrorCode::NotReadOnly, .. })
}
