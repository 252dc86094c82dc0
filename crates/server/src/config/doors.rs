//! What settings say together of who may come in: TLS, SASL, and what is demanded of clients.

use std::path::Path;

use stoa_core::Authentication;

use super::ensemble::{EnsembleSettings, unreadable};
use super::error::ConfigError;
use super::kind::{ClientCertificates, Kind, Secret, TlsOnPort};
use super::settings::Settings;

impl Settings {
    /// Whether any client can have TLS.
    pub fn has_client_tls(&self) -> bool {
        self.tls_on_port != TlsOnPort::No || self.secure_port != 0
    }

    /// Whether this server speaks TLS with others.
    pub fn has_peer_tls(&self) -> bool {
        self.has_others() && self.peer_tls && self.peer_tls_certificate.is_some()
    }
}

impl Settings {
    /// How clients prove who they are.
    pub(crate) fn authentication(&self) -> Authentication {
        Authentication {
            digest: self.digest_algorithm,
            super_digest: self.super_digest.clone(),
            has_digest: self.digest,
            ensemble_names: self.ensemble_names.clone(),
            has_sasl: self.sasl_config.is_some(),
            allows_failed_sasl: self.allow_failed_sasl,
            demands: self.require_schemes.clone(),
            is_audited: self.audit,
        }
    }
}

impl EnsembleSettings<'_> {
    /// Checks that there are all files that are needed. Returns what has no effect.
    pub(super) fn complete_client_tls(&mut self) -> Result<Option<String>, ConfigError> {
        self.check_schemes()?;
        self.check_admin_tls()?;
        let settings = &*self.settings;
        if !settings.has_client_tls() {
            let without = (settings.tls_certificate.is_some() && !settings.has_admin_tls())
                .then_some("tls-certificate");
            return Ok(without.map(|key| {
                let place = self.place(key);
                format!("{place}: has no effect: no client has TLS until secure-port or tls-on-port says so")
            }));
        }
        let by = if settings.secure_port != 0 { "secure-port" } else { "tls-on-port" };
        if settings.tls_certificate.is_none() {
            let why = "TLS for clients needs a certificate: set tls-certificate (ssl.keyStore.location in a zoo.cfg); \
                       `stoa certificate` makes one for a trial";
            return self.refuse(by, why);
        }
        let asks = settings.tls_client_certificates;
        if asks != ClientCertificates::None && settings.tls_authority.is_none() {
            let why = "certificates of clients are asked for, and none can be believed: set tls-authority \
                       (ssl.trustStore.location in a zoo.cfg), or tls-client-certificates (ssl.clientAuth) to none";
            return self.refuse(by, why);
        }
        if settings.secure_port != 0 && settings.secure_port == settings.port {
            return self.refuse("secure-port", "it is that of `port`: set tls-on-port to only for one port");
        }
        Ok(None)
    }

    fn check_admin_tls(&self) -> Result<(), ConfigError> {
        let settings = &*self.settings;
        if !settings.has_admin_tls() {
            return Ok(());
        }
        let authority = match (&settings.tls_certificate, &settings.peer_tls_certificate) {
            (Some(_), _) => &settings.tls_authority,
            (None, Some(_)) => &settings.peer_tls_authority,
            (None, None) => {
                let why = "admin HTTP with TLS needs a certificate: set tls-certificate or peer-tls-certificate \
                           (in a zoo.cfg ssl.quorum.keyStore.location and ssl.quorum.trustStore.location)";
                return self.refuse("admin-tls", why);
            }
        };
        if settings.has_admin_certificates() && authority.is_none() {
            let why = "certificates are asked for, and none can be believed: set tls-authority";
            return self.refuse("admin-client-certificates", why);
        }
        Ok(())
    }

    /// Nobody could be served where a scheme is demanded that there is not.
    fn check_schemes(&self) -> Result<(), ConfigError> {
        let settings = &*self.settings;
        for scheme in &settings.require_schemes {
            let why = match scheme.as_str() {
                "ip" => continue,
                "digest" if settings.digest => continue,
                "digest" => "digest is demanded of clients, and the setting digest is false",
                "x509" if settings.has_client_tls() => continue,
                "x509" => {
                    "certificates are demanded of clients, and none has TLS: set secure-port or tls-on-port"
                }
                "sasl" if settings.sasl_config.is_some() => continue,
                "sasl" => {
                    "SASL is demanded of clients, and not offered: set sasl-config (STOA_SASL_CONFIG) to the login \
                           configuration that java.security.auth.login.config names for ZooKeeper"
                }
                _ => "expected digest, sasl, x509 or ip",
            };
            return self.refuse("require-schemes", why);
        }
        Ok(())
    }

    /// Takes the passwords of key stores from the files that settings name for them.
    pub(super) fn read_passwords(&mut self) -> Result<(), ConfigError> {
        let settings = &*self.settings;
        let files = [
            ("tls-password", "tls-password-file", &settings.tls_password_file),
            ("tls-authority-password", "tls-authority-password-file", &settings.tls_authority_password_file),
            ("peer-tls-password", "peer-tls-password-file", &settings.peer_tls_password_file),
            (
                "peer-tls-authority-password",
                "peer-tls-authority-password-file",
                &settings.peer_tls_authority_password_file,
            ),
        ];
        for (key, by_file, file) in files.map(|(key, by_file, file)| (key, by_file, file.clone())) {
            let Some(file) = file else { continue };
            let password = self.read_password((key, by_file), &file)?;
            let place = self.place(by_file).clone();
            self.set_place(key, place);
            let settings = &mut *self.settings;
            *match key {
                "tls-password" => &mut settings.tls_password,
                "tls-authority-password" => &mut settings.tls_authority_password,
                "peer-tls-password" => &mut settings.peer_tls_password,
                _ => &mut settings.peer_tls_authority_password,
            } = Some(password);
        }
        Ok(())
    }

    fn read_password(&self, (key, by_file): (&str, &str), file: &Path) -> Result<String, ConfigError> {
        if self.is_set(key) {
            return self.refuse(by_file, format!("{key} is set too; leave one of them out"));
        }
        let text = (self.machine.read)(file).map_err(|source| unreadable(file, source))?;
        let line = text.strip_suffix('\n').unwrap_or(&text);
        match Secret::parse(line.strip_suffix('\r').unwrap_or(line)) {
            Some(password) => Ok(password),
            None => self.refuse(by_file, format!("{} does not hold {}", file.display(), Secret::EXPECTED)),
        }
    }
}
