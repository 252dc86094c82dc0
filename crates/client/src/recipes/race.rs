//! Waiting for one of two.

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
