//! The server: the only room with threads, sockets, files and clocks.

pub mod config;
pub mod view;
pub mod words;
