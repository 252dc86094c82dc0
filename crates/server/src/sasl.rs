//! SASL of clients: what the settings say of it, and each client's exchange.

use std::fs;
use std::path::PathBuf;

use stoa_core::SaslStep;
use stoa_sasl::{Acceptor, Config, Exchange, Secret, Step, jaas};
use stoa_tree::Identity;

use crate::clock;
use crate::config::Settings;
use crate::logins_file::LoginsFile;
use crate::random;

/// The scheme of ids that SASL proves.
const SCHEME: &str = "sasl";

/// Who may come by SASL.
#[derive(Debug)]
pub(crate) struct ClientSasl {
    acceptor: Acceptor,
    /// Where there is Kerberos.
    logins: Option<LoginsFile>,
    super_users: Vec<String>,
}

fn now_ms() -> u64 {
    u64::try_from(clock::wall_ms()).unwrap_or(0)
}

impl ClientSasl {
    /// As the settings say; `None` where clients are not offered it.
    ///
    /// # Errors
    /// Which file cannot be used, and why.
    pub(crate) fn begin(settings: &Settings) -> Result<Option<Self>, String> {
        let Some(path) = &settings.sasl_config else { return Ok(None) };
        let failed =
            |error: &dyn std::fmt::Display| format!("{}: {error} (setting sasl-config)", path.display());
        let text = fs::read_to_string(path).map_err(|error| failed(&error))?;
        let login = jaas::read(&text, &settings.sasl_section).map_err(|error| failed(&error))?;
        let mut config = Config::new()
            .login(&login)
            .remove_host(settings.kerberos_remove_host)
            .remove_realm(settings.kerberos_remove_realm);
        if let Some(rules) = &settings.kerberos_rules {
            config = config.rules(rules);
        }
        if let Some(realm) = &settings.kerberos_realm {
            config = config.default_realm(realm);
        }
        if let Some(password) = &settings.sasl_super_password {
            config = config.user("super", Secret::new(password.clone()));
        }
        let mut logins = None;
        if let Some(service) = login.kerberos() {
            let keytab = PathBuf::from(service.keytab_path());
            let bytes = fs::read(&keytab)
                .map_err(|error| failed(&format!("the keytab {}: {error}", keytab.display())))?;
            let (file, taken) = LoginsFile::open(&settings.data_dir, now_ms())?;
            logins = Some(file);
            config = config.keytab(&bytes, service.principal()).taken(taken);
        }
        let acceptor = Acceptor::new(config).map_err(|error| failed(&error))?;
        Ok(Some(Self { acceptor, logins, super_users: settings.sasl_super_users.clone() }))
    }

    /// Takes a client's token. Where it proves nothing, why is returned too, for the log.
    pub(crate) fn step(&self, exchange: &mut Option<Exchange>, token: &[u8]) -> (SaslStep, Option<String>) {
        let random = match random::bytes() {
            Ok(random) => random,
            Err(why) => return (SaslStep::Failed, Some(why)),
        };
        let now_ms = now_ms();
        let begun = exchange.get_or_insert_with(|| self.acceptor.begin());
        let step = begun.step(token, now_ms, random);
        if let Some(logins) = &self.logins {
            logins.keep(&self.acceptor, now_ms);
        }
        match step {
            Step::Challenge(token) => (SaslStep::Challenge(token), None),
            Step::Done { token, name } => (SaslStep::Done { token, identities: self.identities(name) }, None),
            Step::Failed(why) => {
                // A client that is kept may try once more.
                *exchange = None;
                (SaslStep::Failed, Some(why))
            }
        }
    }

    fn identities(&self, name: String) -> Vec<Identity> {
        let rank =
            self.super_users.contains(&name).then(|| Identity { scheme: "super".into(), id: String::new() });
        rank.into_iter().chain([Identity { scheme: SCHEME.into(), id: name }]).collect()
    }
}
