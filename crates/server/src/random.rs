//! Randomness of the operating system.

use rustix::rand::{GetRandomFlags, getrandom};

/// Random bytes fit for secrets.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], String> {
    let mut bytes = [0; N];
    let mut len = 0;
    while len < N {
        len += getrandom(&mut bytes[len..], GetRandomFlags::empty())
            .map_err(|error| format!("the system gives no random numbers: {error}"))?;
    }
    Ok(bytes)
}
