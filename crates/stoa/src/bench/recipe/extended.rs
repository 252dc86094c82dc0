//! The part of a client with a program inside the service: what the client library makes of that.

use std::sync::atomic::Ordering;

use stoa_client::recipes::{Counter, DoubleBarrier, Election, Queue};
use stoa_client::{CreateMode, ErrorCode};
use stoa_tree::PROGRAMS;

use super::participant::{Participant, Played};
use super::{ROOT, Recipe};

/// Ends when it has taken all steps that a call may take.
const GREEDY: &str = r#"on_operation("read", "$ROOT/greedy");

fn read(request) {
    for outer in 0..1000000 {
        for inner in 0..1000000 {
        }
    }
}
"#;

impl Participant {
    /// Does its part again and again, until it is dropped or refused.
    pub(super) async fn run_extended(self, recipe: Recipe) -> Played {
        match recipe {
            Recipe::Counter => self.have_added().await,
            Recipe::Queue => self.have_taken().await,
            Recipe::Barrier => self.be_let_in().await,
            Recipe::Election => self.be_appointed().await,
            Recipe::Greedy => self.be_stopped().await,
        }
    }

    async fn have_added(&self) -> Played {
        let mut counter = Counter::extended(&self.client, &format!("{ROOT}/ctr"));
        loop {
            self.timed("increment", async { counter.add(1).await.map(drop) }).await?;
        }
    }

    async fn have_taken(&self) -> Played {
        let mut queue = Queue::extended(&self.client, &format!("{ROOT}/queue"));
        loop {
            // To add takes no program, and is the same for all.
            self.timed("add", self.add(&format!("{ROOT}/queue/items"))).await?;
            // There is one for everybody.
            self.timed("remove", async { queue.try_take().await.map(drop) }).await?;
        }
    }

    async fn be_let_in(&self) -> Played {
        let path = format!("{ROOT}/barrier");
        let barrier = DoubleBarrier::extended(&self.client, &path, self.shared.clients());
        loop {
            self.shared.meet().await;
            let mut entered = None;
            let enter = async { barrier.enter().await.map(|inside| entered = Some(inside)) };
            self.timed("enter", enter).await?;
            self.shared.meet().await;
            if let Some(entered) = entered {
                entered.leave().await?;
            }
        }
    }

    async fn be_appointed(&self) -> Played {
        let election = Election::extended(&self.client, &format!("{ROOT}/leader"));
        let mut leads = None;
        loop {
            self.begin("change", None);
            let held = match leads.take() {
                Some(held) => election.requeue(held, b"").await?,
                None => election.campaign(b"").await?,
            };
            let now = self.shared.now();
            let began = self.shared.abdicated.swap(now, Ordering::Relaxed);
            self.done(began, now);
            leads = Some(held);
        }
    }

    async fn be_stopped(&self) -> Played {
        let path = format!("{PROGRAMS}/greedy{}:{}", ROOT.replace('/', ":"), self.number);
        let source = GREEDY.replace("$ROOT", ROOT);
        self.client.create(&path, source.as_bytes(), CreateMode::Persistent).await?;
        let call = || async {
            match self.client.get_data(&format!("{ROOT}/greedy")).await {
                Err(ErrorCode::SystemError) => Ok(()),
                called => called.and(Err(ErrorCode::RuntimeInconsistency)),
            }
        };
        loop {
            self.timed("call", call()).await?;
        }
    }
}
