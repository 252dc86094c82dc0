//! Waiting for one of two, and for both.

use core::future::{Future, poll_fn};
use core::pin::pin;
use core::task::Poll;

/// The one that was first.
pub(super) enum First<A, B> {
    This(A),
    That(B),
}

/// Waits for the first of two futures, and drops the other; when both are done, the first is `This`.
pub(super) async fn first<A, B>(this: impl Future<Output = A>, that: impl Future<Output = B>) -> First<A, B> {
    let (mut this, mut that) = (pin!(this), pin!(that));
    poll_fn(|context| {
        if let Poll::Ready(output) = this.as_mut().poll(context) {
            return Poll::Ready(First::This(output));
        }
        that.as_mut().poll(context).map(First::That)
    })
    .await
}

/// Waits for both of two futures. Requests of the first are made before those of the second, so that the service
/// carries them out in that order, without a round trip between them.
pub(super) async fn both<A, B>(this: impl Future<Output = A>, that: impl Future<Output = B>) -> (A, B) {
    let (mut this, mut that) = (pin!(this), pin!(that));
    let (mut of_this, mut of_that) = (None, None);
    poll_fn(|context| {
        if of_this.is_none()
            && let Poll::Ready(output) = this.as_mut().poll(context)
        {
            of_this = Some(output);
        }
        if of_that.is_none()
            && let Poll::Ready(output) = that.as_mut().poll(context)
        {
            of_that = Some(output);
        }
        if of_this.is_none() || of_that.is_none() {
            return Poll::Pending;
        }
        of_this.take().zip(of_that.take()).map_or(Poll::Pending, Poll::Ready)
    })
    .await
}

/// The same, if there is a second one.
pub(super) async fn with<A, B>(
    this: Option<impl Future<Output = A>>,
    that: impl Future<Output = B>,
) -> (Option<A>, B) {
    match this {
        Some(this) => {
            let (this, that) = both(this, that).await;
            (Some(this), that)
        }
        None => (None, that.await),
    }
}
