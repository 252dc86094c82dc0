//! Requests under way.

use alloc::boxed::Box;
use alloc::collections::VecDeque;
use core::future::Future;
use core::pin::Pin;
use core::task::{Context, Poll};
use core::time::Duration;

use super::service::Service;

/// How many requests are under way at most: while there is no answer, more of them would ask for nothing new.
const UNDER_WAY_MAX: usize = 64;

type Pinned<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// A request of which there is one each interval, whether the one before was answered or not, or one after the
/// other. They are made in their order, and their answers are taken in that order.
pub(super) struct Flight<'a, S, T> {
    service: &'a S,
    every: Option<Duration>,
    request: Box<dyn Fn() -> Pinned<'a, T> + Send + Sync + 'a>,
    under_way: VecDeque<Leg<'a, T>>,
    pause: Option<Pinned<'a, ()>>,
}

enum Leg<'a, T> {
    UnderWay(Pinned<'a, T>),
    Landed(T),
}

impl<'a, S: Service, T> Flight<'a, S, T> {
    /// Nothing is asked before something polls.
    pub(super) fn new<F: Future<Output = T> + Send + 'a>(
        service: &'a S,
        every: Option<Duration>,
        request: impl Fn() -> F + Send + Sync + 'a,
    ) -> Self {
        let request = Box::new(move || Box::pin(request()) as Pinned<'a, T>);
        Self { service, every, request, under_way: VecDeque::new(), pause: None }
    }

    /// Forgets what is under way, and begins anew.
    pub(super) fn restart(&mut self) {
        self.under_way.clear();
        self.pause = None;
    }

    /// Whether it asks without waiting for answers.
    pub(super) fn is_async(&self) -> bool {
        self.every.is_some()
    }

    /// Makes the requests that are due, and takes the next answer.
    pub(super) fn poll(&mut self, context: &mut Context<'_>) -> Poll<T> {
        match self.every {
            None if self.under_way.is_empty() => self.set_out(),
            None => {}
            Some(every) => self.set_out_when_due(every, context),
        }
        for leg in &mut self.under_way {
            if let Leg::UnderWay(request) = leg
                && let Poll::Ready(answer) = request.as_mut().poll(context)
            {
                *leg = Leg::Landed(answer);
            }
        }
        match self.under_way.pop_front() {
            Some(Leg::Landed(answer)) => return Poll::Ready(answer),
            Some(leg) => self.under_way.push_front(leg),
            None => {}
        }
        Poll::Pending
    }

    fn set_out_when_due(&mut self, every: Duration, context: &mut Context<'_>) {
        if self.pause.as_mut().is_some_and(|pause| pause.as_mut().poll(context).is_pending()) {
            return;
        }
        self.pause = None;
        if self.under_way.len() < UNDER_WAY_MAX {
            self.set_out();
            let mut pause: Pinned<'a, ()> = Box::pin(self.service.sleep(every));
            if pause.as_mut().poll(context).is_pending() {
                self.pause = Some(pause);
            } else {
                context.waker().wake_by_ref();
            }
        }
    }

    fn set_out(&mut self) {
        self.under_way.push_back(Leg::UnderWay((self.request)()));
    }
}
