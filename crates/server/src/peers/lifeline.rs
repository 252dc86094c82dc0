//! Sockets that end when this process is killed, before the system takes its memory back.
//!
//! Linux ends a killed process in this order: its memory, when its last thread lets go of it, then each
//! thread's table of open files. Memory takes a millisecond for every 20 MB, and all that time the
//! others do not see that the process is gone: with 2 GB they would wait for 90 ms before they elect
//! another leader. So one thread has a table of its own, with one socket to each peer and nothing
//! else (one for each partition that the two have). Of two tables only one can belong to the thread that happens to be the last; the other one is
//! closed at once, and whatever a peer loses first tells it.

use std::collections::BTreeMap;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::mpsc;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};

/// Which partition of this server has a lifeline, and to which peer.
pub(super) type Key = (u8, u64);

/// Hands sockets to the thread that keeps them. Dropping it ends the thread, and the sockets with it.
pub(super) struct Lifelines {
    keeper: OwnedFd,
}

impl Lifelines {
    /// Starts the thread. `Err` where the system does not let a thread have files of its own.
    pub(super) fn start() -> io::Result<Self> {
        // Packets, so that a socket and whom it leads to are one.
        let (near, far) = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        let (begun_in, begun) = mpsc::channel();
        let number = far.as_raw_fd();
        std::thread::Builder::new().name("lifelines".into()).spawn(move || match table::own(number) {
            Ok(requests) => {
                let _ = begun_in.send(Ok(()));
                keep(&requests);
            }
            Err(error) => {
                let _ = begun_in.send(Err(error));
            }
        })?;
        // From now on the far end is in the thread's table alone, so that each end sees the other's end.
        let begun = begun.recv().unwrap_or_else(|_| Err(io::ErrorKind::BrokenPipe.into()));
        drop(far);
        begun.map(|()| Self { keeper: near })
    }

    /// Keeps a socket to a peer in place of the one before.
    pub(super) fn keep(&self, key: Key, socket: OwnedFd) -> io::Result<()> {
        self.send(key, &[socket.as_fd()])
    }

    /// Closes the socket to a peer.
    pub(super) fn end(&self, key: Key) -> io::Result<()> {
        self.send(key, &[])
    }

    fn send(&self, (partition, peer): Key, sockets: &[BorrowedFd<'_>]) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut passed = SendAncillaryBuffer::new(&mut space);
        if !sockets.is_empty() {
            passed.push(SendAncillaryMessage::ScmRights(sockets));
        }
        let (partition, peer) = ([partition], peer.to_ne_bytes());
        let key = [IoSlice::new(&partition), IoSlice::new(&peer)];
        sendmsg(&self.keeper, &key, &mut passed, SendFlags::NOSIGNAL)?;
        Ok(())
    }
}

/// Keeps what is sent until the other side of `requests` ends.
fn keep(requests: &OwnedFd) {
    let mut kept = BTreeMap::new();
    loop {
        let (mut partition, mut peer) = ([0], [0; 8]);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut passed = RecvAncillaryBuffer::new(&mut space);
        let mut key = [IoSliceMut::new(&mut partition), IoSliceMut::new(&mut peer)];
        match recvmsg(requests, &mut key, &mut passed, RecvFlags::CMSG_CLOEXEC) {
            Ok(message) if message.bytes == partition.len() + peer.len() => {}
            Err(Errno::INTR) => continue,
            _ => return,
        }
        let sockets = passed.drain().flat_map(|message| match message {
            RecvAncillaryMessage::ScmRights(sockets) => sockets.collect::<Vec<_>>(),
            _ => Vec::new(),
        });
        let key: Key = (partition[0], u64::from_ne_bytes(peer));
        match sockets.last() {
            Some(socket) => kept.insert(key, socket),
            None => kept.remove(&key),
        };
    }
}

#[cfg(target_os = "linux")]
mod table {
    #![expect(unsafe_code, reason = "the calling thread leaves the process's table of open files")]

    use std::io;
    use std::os::fd::{FromRawFd, OwnedFd, RawFd};

    use rustix::thread::{UnshareFlags, unshare_unsafe};

    const TABLE: &str = "/proc/thread-self/fd";

    /// Gives the calling thread a table of its own, with standard input, output and error, and of all
    /// other files only `kept`, which is returned. To be called at the beginning of a thread, before
    /// it has opened or been given any file.
    pub(super) fn own(kept: RawFd) -> io::Result<OwnedFd> {
        // SAFETY: threads must not use files of another table. This one was given none: what it goes
        // on with is `kept`, which the copied table has under the same number because the caller
        // keeps it open meanwhile, and what it receives or opens itself.
        unsafe { unshare_unsafe(UnshareFlags::FILES)? };
        // SAFETY: the number is open in this table, and nothing else in this thread refers to it.
        let owned = unsafe { OwnedFd::from_raw_fd(kept) };
        let mut copied = Vec::new();
        for entry in std::fs::read_dir(TABLE)? {
            let number = entry?.file_name().to_str().and_then(|name| name.parse::<RawFd>().ok());
            copied.extend(number.filter(|number| *number > 2 && *number != kept));
        }
        // The listing's own number was among them.
        copied.retain(|number| std::fs::symlink_metadata(format!("{TABLE}/{number}")).is_ok());
        for number in copied {
            // SAFETY: this table was made a moment ago by copying, so the number is open in it and
            // nothing in this thread owns it; what the other threads own has its entry in theirs.
            unsafe { rustix::io::close(number) };
        }
        Ok(owned)
    }
}

#[cfg(not(target_os = "linux"))]
mod table {
    use std::io;
    use std::os::fd::{OwnedFd, RawFd};

    /// Only Linux has such tables, and only there the order in which a process ends is known.
    pub(super) fn own(_: RawFd) -> io::Result<OwnedFd> {
        Err(io::ErrorKind::Unsupported.into())
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::net::{TcpListener, TcpStream};
    use std::os::unix::fs::MetadataExt;
    use std::time::Duration;

    use super::*;

    /// A socket, and its other side.
    fn connection() -> (OwnedFd, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let far = listener.accept().unwrap().0;
        far.set_read_timeout(Some(Duration::from_secs(8))).unwrap();
        (near.into(), far)
    }

    fn is_open(mut far: &TcpStream) -> bool {
        far.set_nonblocking(true).unwrap();
        let read = far.read(&mut [0]);
        far.set_nonblocking(false).unwrap();
        read.is_err_and(|error| error.kind() == io::ErrorKind::WouldBlock)
    }

    fn ends(mut far: TcpStream) -> bool {
        matches!(far.read(&mut [0]), Ok(0))
    }

    #[test]
    fn a_socket_is_kept_until_it_is_replaced_or_ended_or_nobody_wants_it() {
        let lifelines = Lifelines::start().unwrap();
        let [(a, far_a), (b, far_b), (c, far_c), (d, far_d)] = std::array::from_fn(|_| connection());
        lifelines.keep((0, 1), a).unwrap();
        lifelines.keep((0, 2), b).unwrap();
        lifelines.keep((1, 1), d).unwrap();
        lifelines.end((0, 2)).unwrap();
        assert!(ends(far_b));
        // The thread has done everything up to there.
        assert!(is_open(&far_a) && is_open(&far_d));
        lifelines.keep((0, 1), c).unwrap();
        assert!(ends(far_a) && is_open(&far_d));
        lifelines.end((1, 1)).unwrap();
        assert!(ends(far_d) && is_open(&far_c));
        drop(lifelines);
        assert!(ends(far_c));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_thread_has_no_file_but_its_own() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let inode = |file: std::fs::Metadata| (file.dev(), file.ino());
        let ours = inode(file.as_file().metadata().unwrap());
        let lifelines = Lifelines::start().unwrap();
        let (socket, far) = connection();
        lifelines.keep((0, 1), socket).unwrap();
        let has_ours = |thread: std::path::PathBuf| {
            let mut files = std::fs::read_dir(thread.join("fd")).unwrap();
            files.any(|file| std::fs::metadata(file.unwrap().path()).is_ok_and(|file| inode(file) == ours))
        };
        let (mut keepers, mut without) = (0, 0);
        for thread in std::fs::read_dir("/proc/self/task").unwrap() {
            let thread = thread.unwrap().path();
            let name = std::fs::read_to_string(thread.join("comm")).unwrap_or_default();
            keepers += usize::from(name.trim() == "lifelines");
            without += usize::from(name.trim() == "lifelines" && !has_ours(thread));
        }
        // Another test's thread may not have got so far.
        assert!(keepers > 0 && without > 0, "{without} of {keepers} threads");
        drop(lifelines);
        assert!(ends(far));
    }
}
