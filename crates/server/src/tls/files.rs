//! The files of TLS, of clients and of servers: keys, certificates, revocations, and when they have changed.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use rustls::pki_types::CertificateDer;
use stoa_keys::{KeyStore, Revocation, Unknown, key_store, revocation_lists, trust_store};

use crate::config::Settings;

/// No file of certificates, or of revoked ones, is longer; what is longer is none.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// How often the files are looked at. Clusters put a changed secret in its place within a minute.
const LOOK: Duration = Duration::from_secs(10);

/// Where they are, and the passwords of those that have one.
#[derive(Clone, Default)]
pub(crate) struct Files {
    pub(crate) certificate: PathBuf,
    /// Where the key is in a file of its own.
    pub(crate) key: Option<PathBuf>,
    pub(crate) password: Option<String>,
    pub(crate) authority: Option<PathBuf>,
    pub(crate) authority_password: Option<String>,
    pub(crate) revoked: Option<PathBuf>,
}

impl fmt::Debug for Files {
    /// Without the passwords.
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_list().entries(self.all()).finish()
    }
}

/// What the files looked like: another one, and one of them was changed.
type Stamp = Vec<Option<(SystemTime, u64)>>;

impl Files {
    /// Those for clients.
    pub(crate) fn of_clients(settings: &Settings) -> Option<Self> {
        Some(Self {
            certificate: settings.tls_certificate.clone()?,
            key: settings.tls_key.clone(),
            password: settings.tls_password.clone(),
            authority: settings.tls_authority.clone(),
            authority_password: settings.tls_authority_password.clone(),
            revoked: settings.tls_revoked.clone(),
        })
    }

    /// Those for other servers.
    pub(crate) fn of_peers(settings: &Settings) -> Option<Self> {
        Some(Self {
            certificate: settings.peer_tls_certificate.clone()?,
            key: settings.peer_tls_key.clone(),
            password: settings.peer_tls_password.clone(),
            authority: settings.peer_tls_authority.clone(),
            authority_password: settings.peer_tls_authority_password.clone(),
            revoked: settings.peer_tls_revoked.clone(),
        })
    }

    /// Those for other sites.
    #[expect(dead_code, reason = "no server connects to another site yet")]
    pub(crate) fn of_sites(settings: &Settings) -> Option<Self> {
        settings.own_site()?;
        Some(Self {
            certificate: settings.site_tls_certificate.clone()?,
            key: settings.site_tls_key.clone(),
            authority: settings.site_tls_authority.clone(),
            revoked: settings.site_tls_revoked.clone(),
            ..Self::default()
        })
    }

    fn all(&self) -> impl Iterator<Item = &PathBuf> {
        [Some(&self.certificate), self.key.as_ref(), self.authority.as_ref(), self.revoked.as_ref()]
            .into_iter()
            .flatten()
    }

    /// By what a change shows. Links are followed: clusters exchange what they lead to.
    fn stamp(&self) -> Stamp {
        let of = |path: &PathBuf| {
            let about = fs::metadata(path).ok()?;
            Some((about.modified().ok()?, about.len()))
        };
        self.all().map(of).collect()
    }

    /// Reads the certificate with its key.
    ///
    /// # Errors
    /// Which file cannot be used, and why; as with the others.
    pub(crate) fn own(&self) -> Result<KeyStore, String> {
        let (path, password) = (&self.certificate, self.password.as_deref());
        let bytes = read(path)?;
        let Some(key) = &self.key else { return key_store(&bytes, password).map_err(of(path)) };
        KeyStore::of_pem_pair(&bytes, &read(key)?, password)
            .map_err(|error| format!("{} with the key {}: {error}", path.display(), key.display()))
    }

    /// Reads the certificates that are trusted; none where no file is named.
    pub(crate) fn trusted(&self) -> Result<Vec<CertificateDer<'static>>, String> {
        let Some(path) = &self.authority else { return Ok(Vec::new()) };
        trust_store(&read(path)?, self.authority_password.as_deref()).map_err(of(path))
    }

    /// Reads the lists of revoked certificates, if there are any.
    pub(crate) fn revoked(&self) -> Result<Option<Revocation>, String> {
        let Some(path) = &self.revoked else { return Ok(None) };
        let lists = revocation_lists(&read(path)?).map_err(of(path))?;
        Revocation::new(lists, Unknown::Refuse).map(Some).map_err(of(path))
    }

    /// Says that something is wrong with the trusted certificates, or with the lists of revoked ones.
    pub(crate) fn distrust(&self) -> impl FnOnce(stoa_keys::KeyError) -> String {
        let path = self.authority.clone();
        move |error| match path {
            Some(path) => format!("{}: {error}", path.display()),
            None => error.to_string(),
        }
    }
}

fn of<E: fmt::Display>(path: &Path) -> impl FnOnce(E) -> String {
    move |error| format!("{}: {error}", path.display())
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let failed = |error: std::io::Error| format!("cannot read {}: {error}", path.display());
    if fs::metadata(path).map_err(failed)?.len() > FILE_BYTES_MAX {
        return Err(format!("{} is longer than a file of certificates can be (16 MiB)", path.display()));
    }
    fs::read(path).map_err(failed)
}

/// How something is made from files.
type Make<T> = Box<dyn Fn(&Files) -> Result<T, String> + Send + Sync>;

/// Something that is made from files, and made anew when these have changed.
pub(crate) struct Reloaded<T> {
    /// Whose TLS it is, for the log: `TLS of clients`.
    whose: &'static str,
    files: Files,
    make: Make<T>,
    /// What counts, and what the files were when they were read last.
    current: Mutex<(T, Stamp)>,
    reloads: AtomicU64,
    failed_reloads: AtomicU64,
}

impl<T> fmt::Debug for Reloaded<T> {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.debug_struct("Reloaded").field("files", &self.files).finish_non_exhaustive()
    }
}

impl<T: Clone + Send + 'static> Reloaded<T> {
    /// Makes it for the first time.
    ///
    /// # Errors
    /// Which file cannot be used, and why.
    pub(crate) fn load(
        whose: &'static str,
        files: Files,
        make: impl Fn(&Files) -> Result<T, String> + Send + Sync + 'static,
    ) -> Result<Arc<Self>, String> {
        // Looked at before they are read: a change in between is seen the next time.
        let stamp = files.stamp();
        let current = Mutex::new((make(&files)?, stamp));
        let (reloads, failed_reloads) = Default::default();
        Ok(Arc::new(Self { whose, files, make: Box::new(make), current, reloads, failed_reloads }))
    }

    /// What counts now.
    pub(crate) fn current(&self) -> T {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).0.clone()
    }

    /// How often changed files were taken, and how often they could not be used.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.reloads.load(Ordering::Relaxed), self.failed_reloads.load(Ordering::Relaxed))
    }

    /// Looks at the files now and then, on a thread that ends with the last who holds this.
    ///
    /// # Errors
    /// The thread cannot be started.
    pub(crate) fn watch(self: &Arc<Self>, thread: &str) -> Result<(), String> {
        let weak = Arc::downgrade(self);
        let watching = std::thread::Builder::new().name(thread.to_owned()).spawn(move || {
            loop {
                std::thread::sleep(LOOK);
                let Some(reloaded) = weak.upgrade() else { return };
                reloaded.reload_changed();
            }
        });
        watching.map(drop).map_err(|error| format!("the thread of {}: {error}", self.whose))
    }

    /// Takes the files if they look otherwise than when they were read last.
    pub(crate) fn reload_changed(&self) {
        let stamp = self.files.stamp();
        if self.current.lock().unwrap_or_else(PoisonError::into_inner).1 != stamp {
            self.reload();
        }
    }

    /// Takes the files as they are now, if they can be used; else those before count on.
    pub(crate) fn reload(&self) {
        let (whose, stamp) = (self.whose, self.files.stamp());
        match (self.make)(&self.files) {
            Ok(made) => {
                *self.current.lock().unwrap_or_else(PoisonError::into_inner) = (made, stamp);
                self.reloads.fetch_add(1, Ordering::Relaxed);
                tracing::info!("{whose}: the certificates were read anew, and count for new connections");
            }
            Err(why) => {
                // Said once for each state of the files.
                self.current.lock().unwrap_or_else(PoisonError::into_inner).1 = stamp;
                self.failed_reloads.fetch_add(1, Ordering::Relaxed);
                tracing::error!("{whose} goes on with the certificates that it had: {why}");
            }
        }
    }
}
