//! A network between two servers that can be made worse.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

use super::bind;

#[derive(Default)]
struct Faults {
    /// Nothing passes any more; the connections stay.
    silent: Cell<bool>,
    /// All connections end after so many more bytes.
    bytes_left: Cell<Option<usize>>,
    cut: Notify,
}

/// Passes connections on to a target.
pub(super) struct Proxy {
    pub(super) address: SocketAddr,
    faults: Rc<Faults>,
}

impl Proxy {
    pub(super) fn to(target: SocketAddr) -> Self {
        let listener = bind();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        let listener = TcpListener::from_std(listener).unwrap();
        let faults = Rc::new(Faults::default());
        let shared = Rc::clone(&faults);
        tokio::task::spawn_local(async move {
            while let Ok((near, _)) = listener.accept().await {
                if let Ok(far) = TcpStream::connect(target).await {
                    tokio::task::spawn_local(connection(near, far, Rc::clone(&shared)));
                }
            }
        });
        Self { address, faults }
    }

    pub(super) fn fall_silent(&self) {
        self.faults.silent.set(true);
    }

    pub(super) fn cut_after(&self, bytes: Option<usize>) {
        self.faults.bytes_left.set(bytes);
    }
}

async fn connection(near: TcpStream, far: TcpStream, faults: Rc<Faults>) {
    let (near_in, near_out) = near.into_split();
    let (far_in, far_out) = far.into_split();
    tokio::select! {
        () = pass(near_in, far_out, &faults) => {}
        () = pass(far_in, near_out, &faults) => {}
        () = faults.cut.notified() => {}
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, faults: &Faults) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(len) = from.read(&mut buffer).await {
        if faults.silent.get() {
            std::future::pending::<()>().await;
        }
        if let Some(left) = faults.bytes_left.get() {
            faults.bytes_left.set(Some(left.saturating_sub(len)));
            if left < len {
                faults.cut.notify_waiters();
                return;
            }
        }
        if len == 0 || to.write_all(&buffer[..len]).await.is_err() {
            return;
        }
    }
}
