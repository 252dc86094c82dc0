//! A server that says what a test wants it to say.
#![allow(dead_code, reason = "not every test needs all of it")]

use stoa_client::Options;
use stoa_wire::{ConnectRequest, ConnectResponse, Opcode, PASSWORD_LEN, Reader, ReplyHeader, RequestHeader};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

pub(crate) const SESSION: i64 = 99;

pub(crate) async fn read_frame(stream: &mut TcpStream) -> Vec<u8> {
    let len = stream.read_i32().await.unwrap();
    let mut frame = vec![0; usize::try_from(len).unwrap()];
    stream.read_exact(&mut frame).await.unwrap();
    frame
}

pub(crate) async fn write_frame(stream: &mut TcpStream, body: impl FnOnce(&mut Vec<u8>)) {
    let mut frame = Vec::new();
    body(&mut frame);
    stream.write_i32(i32::try_from(frame.len()).unwrap()).await.unwrap();
    stream.write_all(&frame).await.unwrap();
}

/// Accepts a connection and its handshake; returns the session that the client asked for.
pub(crate) async fn accept(listener: &TcpListener) -> (TcpStream, i64) {
    let (mut stream, _) = listener.accept().await.unwrap();
    let hello = read_frame(&mut stream).await;
    let session = ConnectRequest::decode(&hello).unwrap().session_id;
    let response = ConnectResponse {
        protocol_version: 0,
        timeout_ms: 4000,
        session_id: SESSION,
        password: [1; PASSWORD_LEN],
        read_only: Some(false),
    };
    write_frame(&mut stream, |out| response.encode(out)).await;
    (stream, session)
}

/// Its xid, what it is, and its path if it begins with one.
pub(crate) async fn next_request(stream: &mut TcpStream) -> (i32, Opcode, String) {
    let frame = read_frame(stream).await;
    let mut reader = Reader::new(&frame);
    let header = RequestHeader::decode(&mut reader).unwrap();
    let path = reader.str().unwrap_or_default().to_owned();
    (header.xid, Opcode::from_i32(header.opcode).unwrap(), path)
}

pub(crate) async fn answer(stream: &mut TcpStream, xid: i32, err: i32, body: impl FnOnce(&mut Vec<u8>)) {
    write_frame(stream, |out| {
        ReplyHeader { xid, zxid: 7, err }.encode(out);
        body(out);
    })
    .await;
}

pub(crate) fn options(listener: &TcpListener) -> Options {
    Options::new(&listener.local_addr().unwrap().to_string()).unwrap()
}
