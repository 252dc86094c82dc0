//! One direction of one connection.

use std::io;
use std::sync::Arc;

use bytes::BytesMut;
use tokio::io::AsyncWriteExt as _;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};

use crate::alarm::Alarm;
use crate::line::{Line, SEGMENT_BYTES};
use crate::link::{Direction, Shared};

/// Bytes that are read at a time, at most and at least. What was read shares its memory with what is read next.
const READ_MAX: usize = 64 << 10;
const READ_MIN: usize = 4 << 10;

/// Carries bytes until the end of them has arrived.
pub(crate) async fn pump(
    shared: Arc<Shared>,
    direction: Direction,
    from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
) -> io::Result<()> {
    let mut state = shared.state();
    let mut alarm = Alarm::new()?;
    let mut line = Line::opening(shared.opening(direction));
    let mut buffer = BytesMut::new();
    loop {
        let is_cut = state.borrow_and_update().cut[direction as usize];
        let now = shared.now();
        while let Some(bytes) = if is_cut { None } else { line.receive(now) } {
            if bytes.is_empty() {
                return to.shutdown().await;
            }
            to.write_all(&bytes).await?;
        }
        // What would make it go on: something that arrives, room in front of the link, bytes, a change.
        let opens = Some(shared.open_at(direction)).filter(|at| *at > now);
        let reads = !is_cut && opens.is_none() && line.has_room();
        let next = line.next().into_iter().chain(opens).min().filter(|_| !is_cut);
        tokio::select! {
            changed = state.changed() => changed.map_err(io::Error::other)?,
            rung = alarm.until(next.unwrap_or_default(), shared.now()), if next.is_some() => rung?,
            ready = from.readable(), if reads => {
                ready?;
                if buffer.capacity() < READ_MIN {
                    buffer.reserve(READ_MAX);
                }
                match from.try_read_buf(&mut buffer) {
                    Ok(0) => line.end(shared.carry(direction, 0)),
                    Ok(_) => send(&shared, direction, &mut line, &mut buffer),
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    Err(error) => return Err(error),
                }
            }
        }
    }
}

/// Puts what was read on its way. On a narrow link each segment arrives by itself.
fn send(shared: &Shared, direction: Direction, line: &mut Line, buffer: &mut BytesMut) {
    let is_narrow = shared.quality(direction).bandwidth.is_some();
    while !buffer.is_empty() {
        let bytes = buffer.len().min(if is_narrow { SEGMENT_BYTES } else { usize::MAX });
        let piece = buffer.split_to(bytes).freeze();
        line.send(shared.carry(direction, bytes), piece);
    }
}
