//! The server: the only room with threads, sockets, files and clocks.

pub mod config;
pub mod logging;
pub mod process;
pub mod progress;
pub mod view;
pub mod words;
