//! Runs the tasks of one process, in an order that follows from what wakes them.

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

pub(super) type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Tasks that can go on.
#[derive(Default)]
struct Ready(Mutex<BTreeSet<u64>>);

impl Ready {
    fn insert(&self, id: u64) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(id);
    }

    fn pop(&self) -> Option<u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).pop_first()
    }
}

struct Alarm {
    id: u64,
    ready: Arc<Ready>,
}

impl Wake for Alarm {
    fn wake(self: Arc<Self>) {
        self.ready.insert(self.id);
    }
}

/// The tasks of a process.
#[derive(Default)]
pub(super) struct Executor {
    tasks: BTreeMap<u64, Task>,
    next: u64,
    ready: Arc<Ready>,
}

impl Executor {
    pub(super) fn spawn(&mut self, task: Task) -> u64 {
        let id = self.next;
        self.next += 1;
        self.tasks.insert(id, task);
        self.ready.insert(id);
        id
    }

    /// Lets everybody go on who can. Returns whether anybody could.
    pub(super) fn turn(&mut self) -> bool {
        let mut has_moved = false;
        while let Some(id) = self.ready.pop() {
            let Some(task) = self.tasks.get_mut(&id) else { continue };
            has_moved = true;
            let waker = Waker::from(Arc::new(Alarm { id, ready: Arc::clone(&self.ready) }));
            if let Poll::Ready(()) = task.as_mut().poll(&mut Context::from_waker(&waker)) {
                self.tasks.remove(&id);
            }
        }
        has_moved
    }

    pub(super) fn has(&self, id: u64) -> bool {
        self.tasks.contains_key(&id)
    }

    pub(super) fn len(&self) -> usize {
        self.tasks.len()
    }
}
