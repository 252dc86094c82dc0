//! Options for TLS with servers, which all commands share that are clients.

use std::path::{Path, PathBuf};

use clap::Args;
use stoa_client::tls::{Tls, TlsOptions};

use crate::failure::{Context as _, Failure, Result};

/// Nothing that is read here is longer.
const FILE_BYTES_MAX: u64 = 1 << 20;
const PASSWORD_BYTES_MAX: usize = 4096;

/// Whom to trust, and what to show.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "TLS")]
pub(crate) struct TlsArgs {
    /// Speaks TLS with servers whose certificates are of an authority in this file, or stand in it: PEM, PKCS12 or JKS
    #[arg(long, env = "STOA_CLIENT_TLS_AUTHORITY", value_name = "FILE")]
    tls_authority: Option<PathBuf>,
    /// Certificate to show, with its key unless that is in a file of its own: PEM, PKCS12 or JKS
    #[arg(long, env = "STOA_CLIENT_TLS_CERTIFICATE", value_name = "FILE", requires = "tls_authority")]
    tls_certificate: Option<PathBuf>,
    /// Private key of the certificate, in PEM
    #[arg(long, env = "STOA_CLIENT_TLS_KEY", value_name = "FILE", requires = "tls_certificate")]
    tls_key: Option<PathBuf>,
    /// File with the password of these files
    #[arg(long, env = "STOA_CLIENT_TLS_PASSWORD_FILE", value_name = "FILE", requires = "tls_authority")]
    tls_password_file: Option<PathBuf>,
    /// Trusts every certificate of the authority, whatever host it is for
    #[arg(long, env = "STOA_CLIENT_TLS_NO_HOST_CHECK", requires = "tls_authority")]
    tls_no_host_check: bool,
}

impl TlsArgs {
    /// TLS as they say; `None` is none.
    pub(crate) fn tls(&self) -> Result<Option<Tls>> {
        let Some(authority) = &self.tls_authority else { return Ok(None) };
        let mut options = TlsOptions::new(&read(authority)?).check_host(!self.tls_no_host_check);
        if let Some(path) = &self.tls_certificate {
            options = options.certificate(&read(path)?);
        }
        if let Some(path) = &self.tls_key {
            options = options.key(&read(path)?);
        }
        if let Some(path) = &self.tls_password_file {
            options = options.password(&password(path)?);
        }
        options.build().map(Some).map_err(|error| {
            let files = [&self.tls_authority, &self.tls_certificate, &self.tls_key];
            let names: Vec<_> = files.into_iter().flatten().map(|path| path.display().to_string()).collect();
            Failure::usage(format!("cannot use the files for TLS ({}): {error}", names.join(", ")))
        })
    }
}

fn read(path: &Path) -> Result<Vec<u8>> {
    let context = || format!("cannot read {}", path.display());
    let length = std::fs::metadata(path).context(context())?.len();
    if length > FILE_BYTES_MAX {
        let why = "it is longer than 1 MiB, and no certificate";
        return Err(Failure::usage(format!("{}: {why}", context())));
    }
    std::fs::read(path).context(context())
}

/// The password in a file, without the end of its line.
fn password(path: &Path) -> Result<String> {
    let bytes = read(path)?;
    let text = std::str::from_utf8(&bytes).ok().filter(|text| text.len() <= PASSWORD_BYTES_MAX);
    let text = text.ok_or_else(|| Failure::usage(format!("there is no password in {}", path.display())))?;
    Ok(text.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser as _;

    #[derive(Debug, clap::Parser)]
    struct Command {
        #[command(flatten)]
        tls: TlsArgs,
    }

    fn parsed(line: &str) -> std::result::Result<TlsArgs, String> {
        let parts = std::iter::once("stoa").chain(line.split_whitespace());
        Command::try_parse_from(parts).map(|command| command.tls).map_err(|error| error.to_string())
    }

    #[test]
    fn the_authority_switches_it_on_and_the_rest_needs_it() {
        assert!(parsed("").unwrap().tls().unwrap().is_none());
        for line in ["--tls-certificate a", "--tls-no-host-check", "--tls-password-file a"] {
            assert!(parsed(line).unwrap_err().contains("--tls-authority"), "{line}");
        }
        let key = "--tls-authority a --tls-key b";
        assert!(parsed(key).unwrap_err().contains("--tls-certificate"));
    }

    #[test]
    fn a_file_that_is_no_certificate_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("authority.pem");
        std::fs::write(&path, "nothing").unwrap();
        let args = TlsArgs { tls_authority: Some(path.clone()), ..TlsArgs::default() };
        let failure = args.tls().unwrap_err();
        assert!(matches!(failure, Failure::Usage(_)), "{failure}");
        assert!(failure.to_string().contains(&path.display().to_string()), "{failure}");
        std::fs::remove_file(&path).unwrap();
        assert!(args.tls().unwrap_err().to_string().starts_with("cannot read"));
    }

    #[test]
    fn a_password_ends_with_its_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("password");
        std::fs::write(&path, " secret \r\n").unwrap();
        assert_eq!(password(&path), Ok(" secret ".to_owned()));
        std::fs::write(&path, [0xff]).unwrap();
        assert!(password(&path).is_err());
    }
}
