//! TLS with servers: whom to trust, what to show, and the stream of it for those who bring sockets of their own.

mod failure;
mod options;
mod stream;

pub use failure::TlsFailure;
pub use options::{Tls, TlsError, TlsOptions};
pub use stream::TlsStream;
