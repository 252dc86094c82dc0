//! The files of TLS for clients: key, certificates, revocations.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::ServerConfig;
use stoa_keys::{
    Choice, ClientTrust, Demand, KeyStore, Revocation, Unknown, key_store, revocation_lists, server_config,
    trust_store,
};

use crate::config::{ClientCertificates, Settings};

/// No file of certificates, or of revoked ones, is longer; what is longer is none.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// Where they are, and what is to be made of them.
#[derive(Clone, Debug)]
pub(super) struct Files {
    certificate: PathBuf,
    key: Option<PathBuf>,
    password: Option<String>,
    authority: Option<PathBuf>,
    authority_password: Option<String>,
    revoked: Option<PathBuf>,
    demand: Demand,
    protocols: Vec<String>,
    ciphers: Vec<String>,
}

/// What the files looked like: another one, and one of them was changed.
pub(super) type Stamp = Vec<Option<(SystemTime, u64)>>;

impl Files {
    pub(super) fn of(settings: &Settings) -> Self {
        Self {
            // Without one the settings were refused.
            certificate: settings.tls_certificate.clone().unwrap_or_default(),
            key: settings.tls_key.clone(),
            password: settings.tls_password.clone(),
            authority: settings.tls_authority.clone(),
            authority_password: settings.tls_authority_password.clone(),
            revoked: settings.tls_revoked.clone(),
            demand: match settings.tls_client_certificates {
                ClientCertificates::None => Demand::None,
                ClientCertificates::Want => Demand::Want,
                ClientCertificates::Need => Demand::Need,
            },
            protocols: settings.tls_protocols.clone(),
            ciphers: settings.tls_ciphers.clone(),
        }
    }

    fn all(&self) -> impl Iterator<Item = &PathBuf> {
        [Some(&self.certificate), self.key.as_ref(), self.authority.as_ref(), self.revoked.as_ref()]
            .into_iter()
            .flatten()
    }

    /// By what a change shows. Links are followed: clusters exchange what they lead to.
    pub(super) fn stamp(&self) -> Stamp {
        let of = |path: &PathBuf| {
            let about = fs::metadata(path).ok()?;
            Some((about.modified().ok()?, about.len()))
        };
        self.all().map(of).collect()
    }

    /// Reads all of them.
    ///
    /// # Errors
    /// Which one cannot be used, and why.
    pub(super) fn load(&self) -> Result<Arc<ServerConfig>, String> {
        let trusted = match &self.authority {
            Some(path) => trust_store(&read(path)?, self.authority_password.as_deref()).map_err(of(path))?,
            None => Vec::new(),
        };
        let revoked = match &self.revoked {
            Some(path) => {
                let lists = revocation_lists(&read(path)?).map_err(of(path))?;
                Some(Revocation::new(lists, Unknown::Refuse).map_err(of(path))?)
            }
            None => None,
        };
        let trust =
            ClientTrust::new(trusted, self.demand, revoked).map_err(|error| match &self.authority {
                Some(path) => format!("{}: {error}", path.display()),
                None => error.to_string(),
            })?;
        let choice = Choice::new(&self.protocols, &self.ciphers)
            .map_err(|error| format!("{error} (settings tls-protocols and tls-ciphers)"))?;
        if !choice.ignored().is_empty() {
            tracing::warn!("tls-ciphers: there are no {}", choice.ignored().join(", "));
        }
        let config = server_config(self.own()?, trust, &choice);
        config.map(Arc::new).map_err(|error| format!("{}: {error}", self.certificate.display()))
    }

    fn own(&self) -> Result<KeyStore, String> {
        let (path, password) = (&self.certificate, self.password.as_deref());
        let bytes = read(path)?;
        let Some(key) = &self.key else { return key_store(&bytes, password).map_err(of(path)) };
        KeyStore::of_pem_pair(&bytes, &read(key)?, password)
            .map_err(|error| format!("{} with the key {}: {error}", path.display(), key.display()))
    }
}

fn of<E: std::fmt::Display>(path: &Path) -> impl FnOnce(E) -> String {
    move |error| format!("{}: {error}", path.display())
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
    if fs::metadata(path).map_err(failed)?.len() > FILE_BYTES_MAX {
        return Err(format!("{} is longer than a file of certificates can be (16 MiB)", path.display()));
    }
    fs::read(path).map_err(failed)
}
