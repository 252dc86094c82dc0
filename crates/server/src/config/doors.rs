//! What settings say together of who may come in: TLS, SASL, and what is demanded of clients.

use std::path::PathBuf;

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
    /// Reads the passwords, and checks that there are all files that are needed. Returns what has no effect.
    pub(super) fn complete_client_tls(&mut self) -> Result<Option<String>, ConfigError> {
        for (key, file) in [
            ("tls-password", self.settings.tls_password_file.clone()),
            ("tls-authority-password", self.settings.tls_authority_password_file.clone()),
        ] {
            if let Some(file) = file {
                self.read_password(key, file)?;
            }
        }
        self.check_schemes()?;
        let settings = &*self.settings;
        if !settings.has_client_tls() {
            let without = settings.tls_certificate.is_some().then_some("tls-certificate");
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

    fn read_password(&mut self, key: &'static str, file: PathBuf) -> Result<(), ConfigError> {
        let by_file = if key == "tls-password" { "tls-password-file" } else { "tls-authority-password-file" };
        if self.is_set(key) {
            return self.refuse(by_file, format!("{key} is set too; leave one of them out"));
        }
        let text = (self.machine.read)(&file).map_err(|source| unreadable(&file, source))?;
        let line = text.strip_suffix('\n').unwrap_or(&text);
        let Some(password) = Secret::parse(line.strip_suffix('\r').unwrap_or(line)) else {
            let why = format!("{} does not hold {}", file.display(), Secret::EXPECTED);
            return self.refuse(by_file, why);
        };
        let place = self.place(by_file).clone();
        self.set_place(key, place);
        match key {
            "tls-password" => self.settings.tls_password = Some(password),
            _ => self.settings.tls_authority_password = Some(password),
        }
        Ok(())
    }
}
