//! Files with certificates and keys.

use stoa_keys::{Choice, ClientTrust, Demand, KeyStore, ServerTrust, StoreFormat};

/// The password of the stores in the corpus.
const PASSWORD: &str = "changeit";

/// A key store, a trust store, lists of revoked certificates or a name: the first byte chooses which, and whether there
/// is a password.
pub fn key_store(data: &[u8]) {
    let Some((first, bytes)) = data.split_first() else { return };
    let password = (first & 1 == 0).then_some(PASSWORD);
    match first >> 1 {
        0 => keys(stoa_keys::key_store(bytes, password), bytes),
        1 => trusts(bytes, password),
        2 => {
            let middle = bytes.len() / 2;
            keys(KeyStore::of_pem_pair(&bytes[..middle], &bytes[middle..], password), b"-----BEGIN");
        }
        3 => {
            let certificate = bytes.into();
            let (_, _) = (stoa_keys::subject(&certificate), stoa_keys::revocation_lists(bytes));
        }
        _ => {
            let _ = std::str::from_utf8(bytes).map(stoa_keys::parses_as_name);
        }
    }
}

fn keys(store: Result<KeyStore, stoa_keys::KeyError>, bytes: &[u8]) {
    let store = match store {
        Ok(store) => store,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    assert!(StoreFormat::of(bytes).is_ok() && !store.chain().is_empty());
    let Ok(choice) = Choice::new(&[""; 0], &[""; 0]) else { panic!("all that there is can be chosen") };
    // Its certificate may be none that rustls takes, such as one of version 1.
    let _ = stoa_keys::server_config(store, ClientTrust::none(), &choice);
}

fn trusts(bytes: &[u8], password: Option<&str>) {
    let certificates = match stoa_keys::trust_store(bytes, password) {
        Ok(certificates) => certificates,
        Err(error) => return assert!(!error.to_string().is_empty()),
    };
    for certificate in &certificates {
        let _ = stoa_keys::subject(certificate);
    }
    let clients = ClientTrust::new(certificates.clone(), Demand::Want, None);
    assert_eq!(clients.is_ok(), ServerTrust::new(certificates, true, None).is_ok());
}
