//! The bare echo server: what any server with these frames on this machine costs at least.
//!
//! It answers every frame with a frame of a given size and looks at nothing but lengths. One read
//! and one write a turn and connection, own buffers, one thread: like the server, without the work.

use std::io::{ErrorKind, Write as _};
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;

use clap::Args;
use stoa_wire::{begin_frame, end_frame, next_frame};
use tokio::net::{TcpListener, TcpStream};

use crate::failure::{Context as _, Result};

const FRAME_BYTES_MAX: usize = 4 << 20;
const BUFFER_BYTES: usize = 64 << 10;

/// Options of `stoa bench echo-server`.
#[derive(Debug, Args)]
pub(crate) struct EchoServerArgs {
    /// Port on 127.0.0.1; 0 lets the system choose. The address is printed
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Bytes of each answer, the length in front of it not counted
    #[arg(long, default_value_t = 188)]
    reply_bytes: usize,
}

/// Runs until killed.
pub(crate) fn run(args: &EchoServerArgs) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_io()
        .build()
        .context("cannot start the runtime")?;
    let local = tokio::task::LocalSet::new();
    local.block_on(&runtime, serve(args))
}

async fn serve(args: &EchoServerArgs) -> Result<()> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, args.port));
    let listener = TcpListener::bind(address).await.context(format!("cannot listen on {address}"))?;
    let address = listener.local_addr().context("cannot read the address")?;
    writeln!(std::io::stdout(), "listening on {address}").context("cannot print the address")?;
    let mut reply = Vec::new();
    let start = begin_frame(&mut reply);
    reply.resize(reply.len() + args.reply_bytes, 0);
    end_frame(&mut reply, start);
    let reply: Rc<[u8]> = reply.into();
    loop {
        let (stream, _) = listener.accept().await.context("cannot accept a connection")?;
        stream.set_nodelay(true).context("cannot set TCP_NODELAY")?;
        tokio::task::spawn_local(echo(stream, Rc::clone(&reply)));
    }
}

/// Serves one connection until it ends or breaks.
async fn echo(stream: TcpStream, reply: Rc<[u8]>) {
    let mut input = vec![0; BUFFER_BYTES];
    let mut filled = 0;
    let mut output = Vec::with_capacity(BUFFER_BYTES);
    loop {
        if stream.readable().await.is_err() {
            return;
        }
        match stream.try_read(&mut input[filled..]) {
            Ok(0) => return,
            Ok(len) => filled += len,
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(_) => return,
        }
        let mut handled = 0;
        loop {
            match next_frame(&input[handled..filled], FRAME_BYTES_MAX) {
                Ok(Some((_, rest))) => {
                    handled = filled - rest.len();
                    output.extend_from_slice(&reply);
                }
                Ok(None) => break,
                Err(_) => return,
            }
        }
        input.copy_within(handled..filled, 0);
        filled -= handled;
        if filled == input.len() {
            input.resize(filled * 2, 0);
        }
        if write_all(&stream, &output).await.is_err() {
            return;
        }
        output.clear();
    }
}

async fn write_all(stream: &TcpStream, mut bytes: &[u8]) -> std::io::Result<()> {
    while !bytes.is_empty() {
        match stream.try_write(bytes) {
            Ok(len) => bytes = &bytes[len..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => stream.writable().await?,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
