//! Watches as their owner sees them.

use stoa_client_core::{Event, WatchEnd};
use tokio::sync::mpsc;

use crate::recipes::Events;

/// Events that wait for their reader, at most. A watch that falls further behind ends with
/// [`WatchEnd::Lagged`], rather than to hold up everybody else or to grow without bound.
pub(crate) const EVENTS_MAX: usize = 1024;

/// Where events of a watch go.
pub(crate) type Sink = mpsc::Sender<Result<Event, WatchEnd>>;

/// A watch that was set. Dropping it makes the client forget it.
#[derive(Debug)]
pub struct Watch {
    events: mpsc::Receiver<Result<Event, WatchEnd>>,
    end: Option<WatchEnd>,
}

impl Watch {
    pub(crate) fn channel() -> (Sink, Self) {
        let (sink, events) = mpsc::channel(EVENTS_MAX);
        (sink, Self { events, end: None })
    }

    /// Waits for the next event.
    ///
    /// # Errors
    /// With the reason when there will be none any more.
    pub async fn next(&mut self) -> Result<Event, WatchEnd> {
        if let Some(end) = self.end {
            return Err(end);
        }
        // Every end is told, except when there was no room to tell it.
        let next = self.events.recv().await.unwrap_or(Err(WatchEnd::Lagged));
        self.end = next.as_ref().err().copied();
        next
    }
}

impl Events for Watch {
    async fn next(&mut self) -> Result<Event, WatchEnd> {
        Self::next(self).await
    }
}
